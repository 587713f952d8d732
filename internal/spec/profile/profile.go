// Package profile checks and adapts seccomp profiles. It reads no files, and knows
// nothing of containers.
package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// AllowClone3 is for gVisor, whose filters refuse by EPERM, whatever they say. The
// default refuses clone3 by ENOSYS, upon which the C library starts a thread by
// clone; upon EPERM it starts none. What clone3 could make that clone may not,
// namespaces, is not the host's there.
func AllowClone3(filter *specs.LinuxSeccomp) {
	for i := range filter.Syscalls {
		if s := &filter.Syscalls[i]; s.Action == specs.ActErrno && slices.Equal(s.Names, []string{"clone3"}) {
			s.Action, s.ErrnoRet = specs.ActAllow, nil
		}
	}
}

var actions = []specs.LinuxSeccompAction{
	specs.ActKill, specs.ActKillProcess, specs.ActKillThread, specs.ActTrap, specs.ActErrno,
	specs.ActTrace, specs.ActAllow, specs.ActLog, specs.ActNotify,
}

// Check refuses what would otherwise go through as "no filter at all".
func Check(content []byte) error {
	var p seccomp.Seccomp
	dec := json.NewDecoder(bytes.NewReader(content))
	if err := dec.Decode(&p); err != nil {
		return fmt.Errorf("is no seccomp profile: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("has something behind the profile's end")
	}
	if !slices.Contains(actions, p.DefaultAction) {
		return fmt.Errorf("defaultAction %q is none of %s", p.DefaultAction, actionNames())
	}
	for i, call := range p.Syscalls {
		if call == nil || !slices.Contains(actions, call.Action) {
			return fmt.Errorf("syscalls[%d] has no action, or none of %s", i, actionNames())
		}
	}
	return nil
}

func actionNames() string {
	names := make([]string, len(actions))
	for i, a := range actions {
		names[i] = string(a)
	}
	return strings.Join(names, ", ")
}
