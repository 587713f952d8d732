package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/errdefs"
)

func (a *app) imageImportCommand() *cobra.Command {
	var ref string
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Import images from an archive",
		Long: "Import images from an OCI or docker archive, plain or compressed, as docker save, skopeo and\n" +
			"fairlead image export write them. FILE may be - for standard input.",
		Args: args("FILE"),
		RunE: func(cmd *cobra.Command, list []string) error {
			in, err := a.openArchive(cmd.Context(), list[0])
			if err != nil {
				return err
			}
			defer func() { _ = in.Close() }()
			return a.with(cmd.Context(), func(s *session) error { return a.importImages(cmd.Context(), s, in, ref) })
		},
	}
	cmd.Flags().StringVar(&ref, "name", "", "name for the image (default the names in the archive)")
	return cmd
}

func (a *app) openArchive(ctx context.Context, path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(leavingReader(ctx, a.in)), nil
	}
	f, err := leaving(ctx, func() (*os.File, error) { return os.Open(path) })
	if err != nil {
		return nil, fmt.Errorf("import images: %w", err)
	}
	return struct {
		io.Reader
		io.Closer
	}{leavingReader(ctx, f), f}, nil
}

// admin starts a call, or says that the runtime is another's.
func (s *session) admin(ctx context.Context, method string) (grpc.ClientStream, error) {
	if s.Conn() == nil || s.Name != "fairlead" {
		return nil, fmt.Errorf("%s is %s, which has no way to move archives: %w", s.Address, s.Name, errdefs.ErrUnimplemented)
	}
	return adminv1.Open(ctx, s.Conn(), method)
}

func (a *app) importImages(ctx context.Context, s *session, in io.Reader, ref string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.admin(ctx, "Import")
	if err != nil {
		return fmt.Errorf("import images: %w", err)
	}
	// io.EOF of a send says that the server is done; its answer says why.
	err = adminv1.SendJSON(stream, adminv1.ImportRequest{Ref: ref})
	if err == nil {
		_, err = io.CopyBuffer(struct{ io.Writer }{adminv1.Writer{S: stream}}, struct{ io.Reader }{in}, make([]byte, adminv1.ChunkSize))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("import images: %w", err)
	}
	if err := stream.CloseSend(); err != nil {
		return fmt.Errorf("import images: %w", err)
	}
	var reply adminv1.ImportReply
	if err := adminv1.ReceiveJSON(stream, &reply); err != nil {
		return fmt.Errorf("import images: %w", err)
	}
	for _, i := range reply.Images {
		if len(i.Tags) == 0 {
			_, _ = fmt.Fprintln(a.out, i.ID)
		}
		for _, t := range i.Tags {
			_, _ = fmt.Fprintln(a.out, t)
		}
	}
	return nil
}

func (a *app) imageExportCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "export -o FILE IMAGE...",
		Short: "Export images to an OCI archive",
		Args:  args("IMAGE..."),
		RunE: func(cmd *cobra.Command, list []string) error {
			if err := a.checkFile(file, "an archive"); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(s *session) error { return a.exportImages(cmd.Context(), s, list, file) })
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write, or - for standard output")
	return cmd
}

func (a *app) exportImages(ctx context.Context, s *session, refs []string, file string) error {
	return a.writeFile(file, func(w io.Writer) error { return receiveArchive(ctx, s, refs, w) })
}

func receiveArchive(ctx context.Context, s *session, refs []string, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.admin(ctx, "Export")
	if err != nil {
		return fmt.Errorf("export images: %w", err)
	}
	if err := adminv1.SendJSON(stream, adminv1.ExportRequest{Refs: refs}); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("export images: %w", err)
	}
	if err := stream.CloseSend(); err != nil {
		return fmt.Errorf("export images: %w", err)
	}
	w := bufio.NewWriterSize(out, adminv1.ChunkSize)
	if _, err := io.Copy(w, &adminv1.Reader{S: stream}); err != nil {
		return fmt.Errorf("export images: %w", err)
	}
	return w.Flush()
}
