package spec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/profile"
)

// profileLimit is the largest seccomp profile that is read.
const profileLimit = 4 << 20

const seccompField = "linux.security_context.seccomp"

// seccomp filters system calls. Nothing said means no filter, as the CRI has
// it; a privileged container never has one.
func (b *build) seccomp(context.Context) error {
	p := b.security().Seccomp
	if p == nil || b.security().Privileged || p.Type == pod.ProfileUnconfined {
		return nil
	}
	able := b.cfg.Host.Seccomp && b.req.Handler.Features.Seccomp
	switch {
	case p.Type == pod.ProfileRuntimeDefault && !able:
		b.warn("%s RuntimeDefault: the kernel or handler %s has no seccomp, so nothing is filtered", seccompField, b.req.Handler.Name)
		return nil
	case p.Type == pod.ProfileRuntimeDefault:
		filter, err := seccomp.GetDefaultProfile(b.spec)
		if err != nil {
			return fmt.Errorf("make the default seccomp filter: %w", err)
		}
		b.spec.Linux.Seccomp = b.withoutX32(filter)
		if b.req.Handler.OwnKernel {
			profile.AllowClone3(filter)
		}
		return nil
	case p.Type != pod.ProfileLocalhost:
		return invalid(seccompField+".profile_type", "%q is not known", p.Type)
	case !able:
		return unsupported(seccompField, "names profile %s, and the kernel or handler %s has no seccomp", p.Ref, b.req.Handler.Name)
	}
	return b.localSeccomp(p.Ref)
}

// withoutX32 takes the rules for x32 out where the kernel cannot run it. They
// are half of the work of making the filter, which the runtime does anew for
// each container and for each exec: 4 ms of 8.
func (b *build) withoutX32(filter *specs.LinuxSeccomp) *specs.LinuxSeccomp {
	if !b.cfg.Host.X32 {
		filter.Architectures = slices.DeleteFunc(filter.Architectures, func(a specs.Arch) bool { return a == specs.ArchX32 })
	}
	return filter
}

func (b *build) localSeccomp(ref string) error {
	const field = seccompField + ".localhost_ref"
	if !filepath.IsAbs(ref) || filepath.Clean(ref) != ref {
		return invalid(field, "%q is not a plain absolute path", ref)
	}
	content, err := readProfile(ref)
	if errors.Is(err, fs.ErrNotExist) {
		return invalid(field, "%s: the node has no such file; put the profile there first", ref)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", field, ref, err)
	}
	if err := profile.Check(content); err != nil {
		return invalid(field, "%s: %v", ref, err)
	}
	filter, err := seccomp.LoadProfile(string(content), b.spec)
	if err != nil {
		return invalid(field, "%s: %v", ref, err)
	}
	b.spec.Linux.Seccomp = filter
	return nil
}

func readProfile(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe must not make us wait
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > profileLimit {
		return nil, fmt.Errorf("not a regular file of at most %d bytes: %w", profileLimit, errdefs.ErrInvalidArgument)
	}
	return io.ReadAll(io.LimitReader(f, profileLimit))
}
