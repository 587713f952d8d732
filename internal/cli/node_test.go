package cli

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"

	"fairlead.run/internal/errdefs"
)

// TestANodeDoesNotWaitForAnotherCRI: a runtime that answers, and has no CRI v1, will not
// have it later.
func TestANodeDoesNotWaitForAnotherCRI(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	a := &app{endpoint: path, err: t.Output()}
	if _, err := a.patiently(t.Context(), slog.New(slog.DiscardHandler)); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("got %v", err)
	}
}
