package spec

import (
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/selinux/go-selinux/label"
	"golang.org/x/sys/unix"
)

// selinux labels the process, and the file systems that the runtime makes.
func (b *build) selinux(context.Context) error {
	b.spec.Process.SelinuxLabel, b.spec.Linux.MountLabel = b.req.Labels.Process, b.req.Labels.Mount
	return nil
}

// relabel gives files to the container, or to the containers of all levels.
func (b *build) relabel(source string, shared bool) error {
	if b.req.Labels.Mount == "" {
		return nil
	}
	if err := label.Relabel(source, b.req.Labels.Mount, shared); err != nil && !errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("label %s for SELinux: %w", source, err)
	}
	return nil
}
