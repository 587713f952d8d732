// Package selinux works out the SELinux labels of pods and containers: from
// what the caller asks for, and where that says nothing, from the contexts that
// the node's policy has for containers.
//
// It labels nothing itself, and keeps no record: which level a pod was given is
// in the pod's.
package selinux

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"

	"github.com/opencontainers/selinux/go-selinux"
	"github.com/opencontainers/selinux/go-selinux/label"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Labels gives labels. Its zero value gives none, as on a host without SELinux.
type Labels struct {
	process, file selinux.Context // of a container that asks for nothing
	check         func(label string) error
}

// New looks at the node and its policy. A warning says why containers are not
// labelled although SELinux is enabled.
func New() (_ *Labels, warning string) {
	if !selinux.GetEnabled() {
		return &Labels{}, ""
	}
	process, file, err := label.InitLabels(nil)
	selinux.ReleaseLabel(process) // levels are given by the core
	switch {
	case err != nil:
		return &Labels{}, fmt.Sprintf("the policy's contexts for containers cannot be read: %v", err)
	case process == "" || file == "":
		return &Labels{}, "the policy has no contexts for containers (lxc_contexts names no process and file); install one that has, such as container-selinux"
	}
	l := &Labels{check: selinux.SecurityCheckContext}
	for _, p := range []struct {
		text string
		into *selinux.Context
	}{{process, &l.process}, {file, &l.file}} {
		if *p.into, err = selinux.NewContext(p.text); err == nil {
			err = l.known(p.text)
		}
		if err != nil {
			return &Labels{}, fmt.Sprintf("the policy's own contexts for containers cannot be used: %v", err)
		}
	}
	return l, ""
}

// Pod are the labels of a new pod: of the process that it may have, and of the
// files that its containers share. Where the caller asks for no level, pick
// chooses one.
func (l *Labels) Pod(r *pod.Record, h pod.HandlerInfo, pick func(levels iter.Seq[string]) string) (pod.Labels, error) {
	if !l.labels(h) {
		return pod.Labels{}, nil
	}
	s := &r.Config.Security
	level := ""
	if s.SELinux == nil || s.SELinux.Level == "" {
		level = pick(Levels(r.ID))
	}
	return l.make(s.SELinux, level, s.Privileged, onNode(s, s))
}

// Container are the labels of a container, which has its pod's level unless it
// asks for another.
func (l *Labels) Container(r *pod.Record, c *pod.Container, h pod.HandlerInfo) (pod.Labels, error) {
	if !l.labels(h) {
		return pod.Labels{}, nil
	}
	s := &c.Config.Security
	options := s.SELinux
	if options == nil {
		options = r.Config.Security.SELinux
	}
	level := r.Labels.Level()
	if level == "" { // the pod is older than what gives levels
		for level = range Levels(r.ID) {
			break
		}
	}
	return l.make(options, level, s.Privileged, onNode(&r.Config.Security, s))
}

func (l *Labels) labels(h pod.HandlerInfo) bool { return l.process != nil && h.Features.SELinux }

// onNode says whether processes see those of the node, or share their memory.
func onNode(inPod, own *pod.Security) bool {
	return own.Namespaces.PID == pod.NamespaceNode || inPod.Namespaces.IPC == pod.NamespaceNode
}

// make puts labels together. A privileged process has none, and one that works
// on those of the node only the type that was asked for: the policy gives it
// that of an unconfined container.
func (l *Labels) make(o *pod.SELinuxOptions, level string, privileged, onNode bool) (pod.Labels, error) {
	asked := pod.SELinuxOptions{}
	if o != nil {
		asked = *o
	}
	if asked.Level != "" {
		level = asked.Level
	}
	process, file := maps.Clone(l.process), maps.Clone(l.file)
	for _, part := range []struct{ name, value string }{{"user", asked.User}, {"role", asked.Role}, {"type", asked.Type}} {
		if !wellFormed(part.value) {
			return pod.Labels{}, invalid("%s %q has characters that no label has", part.name, part.value)
		}
		if part.value != "" {
			process[part.name] = part.value
		}
	}
	if !wellFormed(strings.ReplaceAll(level, ":", "")) {
		return pod.Labels{}, invalid("level %q has characters that no label has", level)
	}
	for _, c := range []selinux.Context{process, file} {
		c["user"] = process["user"]
		if c["level"] != "" || asked.Level != "" {
			c["level"] = level
		}
	}
	if asked.User == "" {
		file["user"] = l.file["user"]
	}
	out := pod.Labels{Process: process.Get(), Mount: file.Get()}
	if o != nil {
		if err := errors.Join(l.known(out.Process), l.known(out.Mount)); err != nil {
			return pod.Labels{}, err
		}
	}
	if privileged || onNode && asked.Type == "" {
		out.Process = ""
	}
	return out, nil
}

// wellFormed keeps out what would end a label where it is written down, as in
// the options of a mount.
func wellFormed(part string) bool {
	return !strings.ContainsFunc(part, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.,-", r))
	})
}

// known asks the kernel. Where it does not answer, the runtime will find out.
func (l *Labels) known(label string) error {
	if err := l.check(label); errors.Is(err, unix.EINVAL) {
		return invalid("make the label %s, which the policy that is loaded does not know", label)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("linux.security_context.selinux_options %s: %w", fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
}

// categories is how many of them a policy has, as is usual.
const categories = 1024

// Levels are all pairs of categories, in an order of the pod's own.
func Levels(id pod.ID) iter.Seq[string] {
	sum := sha256.Sum256([]byte(id))
	start := binary.BigEndian.Uint64(sum[:8])
	return func(yield func(string) bool) {
		for i := range uint64(categories * (categories - 1)) {
			n := (start%(categories*(categories-1)) + i) % (categories * (categories - 1))
			first := n % categories
			second := (first + 1 + n/categories) % categories
			if !yield(fmt.Sprintf("s0:c%d,c%d", min(first, second), max(first, second))) {
				return
			}
		}
	}
}
