package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/sentry"
)

// insidePIDFile is where runsc writes the number that an exec has in its sandbox.
const insidePIDFile = "pid.inside"

// killInside kills what an exec has started in a sandbox. On the host there is
// only the runsc that waits for it, which has to end even if the sandbox hangs:
// then what is inside ends with the sandbox.
func (h *Handler) killInside(ctx context.Context, container string, x *execution) {
	ctx, cancel := context.WithTimeout(ctx, orderLimit)
	defer cancel()
	pid, err := x.pidInside()
	if errors.Is(err, fs.ErrNotExist) {
		return // it did not start, or was killed before
	}
	if err == nil {
		var socket string
		if socket, err = h.socket(container); err == nil {
			err = sentry.KillTree(ctx, socket, container, pid)
		}
	}
	if err != nil && !sentry.Refused(err) && !errors.Is(err, errdefs.ErrNotFound) {
		h.cfg.Log.Warn("a command goes on in its sandbox until that ends", "container", container, "exec", x.id, "error", err)
	}
}

func (x *execution) pidInside() (int32, error) {
	text, err := os.ReadFile(filepath.Join(x.folder, insidePIDFile))
	if err != nil {
		return 0, err
	}
	pid, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 32)
	if err == nil && pid <= 0 {
		err = fmt.Errorf("%d is no number of a process", pid)
	}
	return int32(pid), err
}
