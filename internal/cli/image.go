package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"fairlead.run/internal/node/inventory"
)

func (a *app) imageCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "image", Short: "Pull, list, remove, import and export images", Args: args(), RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(a.imagePullCommand(), a.imageListCommand(), a.imageRemoveCommand(), a.imageImportCommand(), a.imageExportCommand())
	return cmd
}

func (a *app) imagePullCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Pull images from their registries",
		Args:  args("IMAGE..."),
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
		Short: "Remove images, by name or id",
		Args:  args("IMAGE..."),
		RunE: func(cmd *cobra.Command, list []string) error {
			return a.with(cmd.Context(), func(s *session) error {
				var errs []error
				for _, image := range list {
					if err := inventory.RemoveImage(cmd.Context(), s.Images, image); err != nil {
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
