package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/node/images"
	"fairlead.run/internal/node/inventory"
)

func (a *app) imageCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "image", Short: "Pull, list, remove, import and export images", Args: args(), RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(a.imagePullCommand(), a.imageListCommand(), a.imageRemoveCommand(), a.imageImportCommand(), a.imageExportCommand())
	return cmd
}

func (a *app) imagePullCommand() *cobra.Command {
	var platform string
	cmd := &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Pull images from their registries",
		Args:  args("IMAGE..."),
		RunE: func(cmd *cobra.Command, list []string) error {
			return a.with(cmd.Context(), func(s *session) error {
				p := &puller{session: s, display: newDisplay(a.err), platform: platform}
				defer p.display.close()
				for _, image := range list {
					id, err := p.Pull(cmd.Context(), images.Pull{Image: image})
					if err != nil {
						return err
					}
					_, _ = fmt.Fprintln(a.out, id)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&platform, "platform", "", "variant to pull, as linux/arm64 (default: that of this machine)")
	return cmd
}

func (a *app) imageListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the images of this machine",
		Args:    args(),
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
	list, err := inventory.Images(ctx, s.Images)
	if err != nil {
		return err
	}
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
		Short: "Remove names of images, and images without another name",
		Long: "Remove names of images. An image goes with its last name; given its id instead, it goes with all of\n" +
			"its names. Printed is what went: a line \"untagged NAME\" for each name, \"removed ID\" for the image.\n\n" +
			"At another runtime than Fairlead (--endpoint), an image always goes with all of its names.",
		Args: args("IMAGE..."),
		RunE: func(cmd *cobra.Command, list []string) error {
			return a.with(cmd.Context(), func(s *session) error {
				var errs []error
				for _, image := range list {
					errs = append(errs, a.removeImage(cmd.Context(), s, image))
				}
				return errors.Join(errs...)
			})
		},
	}
}

func (a *app) removeImage(ctx context.Context, s *session, image string) error {
	if s.Conn() == nil || s.Name != "fairlead" {
		if err := inventory.RemoveImage(ctx, s.Images, image); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(a.out, "removed %s\n", image)
		return nil
	}
	gone, err := adminv1.Remove(ctx, s.Conn(), adminv1.RemoveRequest{Ref: image})
	if err != nil {
		return err
	}
	if len(gone.Untagged) == 0 && gone.Removed == "" {
		return inventory.NoImage(image)
	}
	for _, name := range gone.Untagged {
		_, _ = fmt.Fprintf(a.out, "untagged %s\n", name)
	}
	if gone.Removed != "" {
		_, _ = fmt.Fprintf(a.out, "removed %s\n", gone.Removed)
	}
	return nil
}
