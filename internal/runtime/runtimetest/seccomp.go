package runtimetest

import (
	"context"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// seccompFilters fails if a container has no filter, or one that belongs to
// another container: handlers may keep what they have worked out for one.
func seccompFilters(ctx context.Context, s *scene) {
	if !s.h.Info().Features.Seccomp {
		s.Skip("the handler has no seccomp")
	}
	const refused, allowed = "touch refused", "touch done"
	other := []string{"link"}
	calls := []string{"utimensat", "utimes", "utime", "futimesat"} // those that touch may take
	for _, tt := range []struct {
		calls []string
		want  string
	}{{other, allowed}, {calls, refused}, {calls, refused}, {other, allowed}, {calls, refused}} {
		b := s.script("echo > /tmp/file; touch /tmp/file && echo " + allowed + " || echo " + refused + "; exec sleep 1000")
		errno := uint(1)
		b.spec.Linux.Seccomp = &specs.LinuxSeccomp{
			DefaultAction: specs.ActAllow,
			Syscalls:      []specs.LinuxSyscall{{Names: tt.calls, Action: specs.ActErrno, ErrnoRet: &errno}},
		}
		b.write()
		b.start(ctx).said(ctx, tt.want)
		b.exec(ctx, "/bin/true")
	}
}
