package spec

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/moby/sys/capability"
	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/spec/host"
)

// defaultCapabilities are what containers have had since Docker's first
// versions, and what images have come to rely on.
var defaultCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID",
	"CAP_SETUID", "CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
}

// knownCapabilities are all that any kernel has, as far as this build knows.
var knownCapabilities = func() map[string]bool {
	known := map[string]bool{}
	for _, c := range capability.ListKnown() {
		known[host.CapabilityName(c)] = true
	}
	return known
}()

// capabilities are the default set with the request's changes. "ALL" counts
// first, so that names after it take back or give again. A capability that
// this host does not have is left out, with a warning if somebody named it.
func (b *build) capabilities(context.Context) error {
	s := b.security()
	if s.Privileged {
		if missing := b.lacking(); len(missing) > 0 {
			b.warn("privileged: this host cannot give %s", strings.Join(missing, ", "))
		}
		b.setCapabilities(b.cfg.Host.Capabilities, nil)
		return nil
	}
	have := slices.Clone(defaultCapabilities)
	var ambient []string
	if c := s.Capabilities; c != nil {
		add, addAll, err := capNames("add_capabilities", c.Add)
		if err != nil {
			return err
		}
		drop, dropAll, err := capNames("drop_capabilities", c.Drop)
		if err != nil {
			return err
		}
		var allAmbient bool
		if ambient, allAmbient, err = capNames("add_ambient_capabilities", c.Ambient); err != nil {
			return err
		}
		if addAll {
			have = slices.Clone(b.cfg.Host.Capabilities)
		}
		if dropAll {
			have = nil
		}
		if allAmbient {
			ambient = slices.Clone(b.cfg.Host.Capabilities)
		}
		isDropped := func(name string) bool { return slices.Contains(drop, name) }
		have = slices.DeleteFunc(slices.Concat(have, add, ambient), isDropped)
		ambient = slices.DeleteFunc(ambient, isDropped)
		b.warnMissing(slices.Concat(add, ambient))
	}
	b.setCapabilities(have, ambient)
	return nil
}

// setCapabilities keeps to what the host has. Inheritable is what is ambient
// and nothing else: anything more in it would outlast a change of user.
func (b *build) setCapabilities(have, ambient []string) {
	have, ambient = b.onHost(have), b.onHost(ambient)
	b.spec.Process.Capabilities = &specs.LinuxCapabilities{
		Bounding: have, Effective: slices.Clone(have), Permitted: slices.Clone(have),
		Inheritable: ambient, Ambient: slices.Clone(ambient),
	}
}

// onHost is each name once, in a fixed order, without those that are missing.
func (b *build) onHost(names []string) []string {
	var out []string
	for _, n := range names {
		if slices.Contains(b.cfg.Host.Capabilities, n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (b *build) warnMissing(names []string) {
	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		if !slices.Contains(b.cfg.Host.Capabilities, n) {
			b.warn("capability %s: this host cannot give it", n)
		}
	}
}

// lacking is the known capabilities that this host cannot give.
func (b *build) lacking() []string {
	var out []string
	for n := range knownCapabilities {
		if !slices.Contains(b.cfg.Host.Capabilities, n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// capNames reads names with or without "CAP_", in any case, and says whether
// "ALL" was among them.
func capNames(field string, names []string) (out []string, all bool, err error) {
	for i, n := range names {
		upper := strings.ToUpper(n)
		if upper == "ALL" {
			all = true
			continue
		}
		full := "CAP_" + strings.TrimPrefix(upper, "CAP_")
		if !knownCapabilities[full] {
			return nil, false, invalid(fmt.Sprintf("linux.security_context.capabilities.%s[%d]", field, i), "%q is no capability", n)
		}
		out = append(out, full)
	}
	return out, all, nil
}
