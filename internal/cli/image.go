package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

// imageView is an image as image ls shows it.
type imageView struct {
	ID      string   `json:"id"`
	Tags    []string `json:"tags,omitempty"`
	Digests []string `json:"digests,omitempty"`
	Size    uint64   `json:"size"`
	Pinned  bool     `json:"pinned"`
}

func (a *app) imageCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "image", Short: "Pull, list, remove, import and export images", Args: args(cobra.NoArgs)}
	cmd.AddCommand(a.imagePullCommand(), a.imageListCommand(), a.imageRemoveCommand(), a.imageImportCommand(), a.imageExportCommand())
	return cmd
}

func (a *app) imagePullCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Pull images from their registries",
		Args:  args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, list []string) error {
			return a.with(cmd.Context(), func(s *session) error {
				p := &puller{session: s, display: newDisplay(a.err)}
				defer p.display.close()
				for _, image := range list {
					id, err := p.Pull(cmd.Context(), image, nil)
					if err != nil {
						return err
					}
					_, _ = fmt.Fprintln(a.out, id)
				}
				return nil
			})
		},
	}
}

func (a *app) imageListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the images of this machine",
		Args:    args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.checkOutput(); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(s *session) error { return a.listImages(cmd.Context(), s) })
		},
	}
	a.outputFlag(cmd)
	return cmd
}

func (a *app) listImages(ctx context.Context, s *session) error {
	resp, err := s.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	list := make([]imageView, 0, len(resp.GetImages()))
	for _, i := range resp.GetImages() {
		list = append(list, imageView{ID: i.GetId(), Tags: i.GetRepoTags(), Digests: i.GetRepoDigests(), Size: i.GetSize(), Pinned: i.GetPinned()})
	}
	slices.SortFunc(list, func(x, y imageView) int {
		return strings.Compare(strings.Join(x.Tags, ",")+x.ID, strings.Join(y.Tags, ",")+y.ID)
	})
	return a.print(list, func() [][]string {
		rows := [][]string{{"IMAGE", "ID", "SIZE"}}
		for _, i := range list {
			names := i.Tags
			if len(names) == 0 {
				names = []string{""}
			}
			for _, n := range names {
				rows = append(rows, []string{n, short(strings.TrimPrefix(i.ID, "sha256:")), size(int64(i.Size))})
			}
		}
		return rows
	})
}

func (a *app) imageRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm IMAGE...",
		Short: "Remove images, by name or id",
		Args:  args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, list []string) error {
			return a.with(cmd.Context(), func(s *session) error {
				var errs []error
				for _, image := range list {
					if err := removeImage(cmd.Context(), s, image); err != nil {
						errs = append(errs, err)
						continue
					}
					_, _ = fmt.Fprintln(a.out, image)
				}
				return errors.Join(errs...)
			})
		},
	}
}

// removeImage looks first, because the CRI's RemoveImage does not say that
// there was nothing to remove.
func removeImage(ctx context.Context, s *session, image string) error {
	spec := &runtimeapi.ImageSpec{Image: image}
	found, err := s.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec})
	if err == nil && found.GetImage() == nil {
		return fmt.Errorf("there is no image %s on this machine; fairlead image ls lists those that are: %w", image, errdefs.ErrNotFound)
	}
	if err == nil {
		_, err = s.Images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: spec})
	}
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("remove image %s: %w", image, err)
	}
	return nil
}
