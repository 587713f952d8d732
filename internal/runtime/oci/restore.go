package oci

import (
	"errors"
	"os"
	"path/filepath"

	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime/oci/criu"
)

// restoreArgs let a process go on from what was captured of it.
func restoreArgs(s pod.StartRequest, pidFile string) ([]string, error) {
	work, err := criu.PrepareRestore(s.Bundle.Path, s.Restore, s.Stdin)
	return []string{
		"restore", "--detach", "--bundle", s.Bundle.Path, "--pid-file", pidFile,
		"--image-path", s.Restore, "--work-path", work, "--ext-unix-sk", "--file-locks",
	}, err
}

// restored deletes what a process went on from, which is as large as its memory.
func (h *Handler) restored(s pod.StartRequest) {
	if s.Restore == "" {
		return
	}
	if err := errors.Join(os.RemoveAll(s.Restore), os.RemoveAll(filepath.Join(s.Bundle.Path, criu.Folder))); err != nil {
		h.cfg.Log.Warn("what a container was restored from is still on the disk, until the container is removed", "container", s.ID, "error", err)
	}
}
