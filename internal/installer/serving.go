package installer

import (
	"context"
	"os"
	"slices"

	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/journal"
)

// serving are the handlers of a type that the runtime serves now as its release that
// was verified last has them. They are nil if that cannot be told, and empty, but
// there, if there are none.
func (i *Installer) serving(ctx context.Context, kind string) []string {
	if kind == "" {
		return nil
	}
	r, err := i.journal.Read(kind)
	if err != nil {
		return nil
	}
	if r.Now == nil {
		return []string{}
	}
	seen, err := i.runtime.Probe(ctx)
	if err != nil {
		return nil
	}
	return i.servedOf(seen, r.Now)
}

// servedOf are the handlers of a release that are served from its own programs, as
// far as those are still there.
func (i *Installer) servedOf(seen cri.Seen, r *journal.Release) []string {
	j, err := i.rendered(r)
	if err != nil || seen.Handlers == nil {
		return nil
	}
	out := []string{}
	for _, name := range r.Handlers {
		one, program := &job{}, ""
		one.release.Handlers = []string{name}
		for _, h := range j.containerd {
			if h.Name == name {
				one.containerd, program = append(one.containerd, h), h.RuntimePath
			}
		}
		for _, h := range j.crio {
			if h.Name == name {
				program = h.RuntimePath
			}
		}
		if served(seen, one) == nil && i.there(program) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// there says whether a program of the node is still where it was put; "" is one of
// the node's own.
func (i *Installer) there(program string) bool {
	if program == "" {
		return true
	}
	_, err := os.Stat(i.real(program))
	return err == nil
}
