package spec

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/opencontainers/selinux/go-selinux/label"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/pod"
)

// selinux labels the process and the files that it may change.
func (b *build) selinux(context.Context) error {
	if !b.cfg.Host.SELinux || !b.req.Handler.Features.SELinux {
		return nil
	}
	options := b.security().SELinux
	if options == nil {
		options = b.pod().Security.SELinux
	}
	process, mount, err := label.InitLabels(selinuxOptions(options, b.req.Record.ID))
	if err != nil {
		return invalid("linux.security_context.selinux_options", "%v", err)
	}
	b.spec.Linux.MountLabel = mount
	if !b.security().Privileged {
		b.spec.Process.SelinuxLabel = process
	}
	return nil
}

// selinuxOptions always name a level, so that the containers of a pod share
// one and may use each other's files. Where the caller gives none it follows
// from the pod's id: nothing has to be reserved, or found again after a restart.
func selinuxOptions(o *pod.SELinuxOptions, id pod.ID) []string {
	var out []string
	level := categories(id)
	if o != nil {
		for _, part := range []struct{ name, value string }{{"user", o.User}, {"role", o.Role}, {"type", o.Type}} {
			if part.value != "" {
				out = append(out, part.name+":"+part.value)
			}
		}
		if o.Level != "" {
			level = o.Level
		}
	}
	return append(out, "level:"+level)
}

// categories picks two of SELinux's 1024 categories.
func categories(id pod.ID) string {
	sum := sha256.Sum256([]byte(id))
	n := binary.BigEndian.Uint64(sum[:8])
	first := n % 1024
	second := (first + 1 + n/1024%1023) % 1024
	return fmt.Sprintf("s0:c%d,c%d", min(first, second), max(first, second))
}

// relabel gives a mount's files to the container.
func (b *build) relabel(source string) error {
	if b.spec.Linux.MountLabel == "" {
		return nil
	}
	if err := label.Relabel(source, b.spec.Linux.MountLabel, false); err != nil && !errors.Is(err, unix.ENOTSUP) {
		return fmt.Errorf("label %s for SELinux: %w", source, err)
	}
	return nil
}
