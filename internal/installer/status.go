package installer

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/journal"
	"fairlead.run/internal/installer/restart"
	"fairlead.run/internal/installer/stage"
	"fairlead.run/internal/installer/view"
)

// Status is what is known of one type on the node.
type Status struct {
	Type     string   `json:"type"`
	Version  string   `json:"version,omitempty"`
	Phase    string   `json:"phase"`
	Folder   string   `json:"folder"`
	Handlers []string `json:"handlers,omitempty"`
	// Served says whether the runtime serves all handlers; Pods counts sandboxes
	// on them.
	Served bool `json:"served"`
	Pods   int  `json:"pods"`
	// Old are versions that pods may still be on.
	Old       []string  `json:"old,omitempty"`
	LastError string    `json:"lastError,omitempty"`
	Retry     time.Time `json:"retry,omitzero"`
}

// Status lists what is installed, from the journal and the runtime. The error says
// that the runtime did not answer; the list is there all the same.
func (i *Installer) Status(ctx context.Context) ([]Status, error) {
	seen, failed := i.ask(ctx)
	sandboxes, err := i.runtime.Sandboxes(ctx)
	if failed == nil {
		failed = err
	}
	all, err := i.list(seen, sandboxes)
	return all, cmp.Or(err, failed)
}

// Recorded is Status where New does not find out which runtime is to be asked: all that
// the journal has.
func Recorded(o Options) ([]Status, error) {
	i := &Installer{options: o.withDefaults()}
	i.journal.Dir = i.real(i.options.State)
	return i.list(cri.Seen{}, nil)
}

func (i *Installer) list(seen cri.Seen, sandboxes []cri.Sandbox) ([]Status, error) {
	types, err := i.journal.Types()
	if err != nil {
		return nil, err
	}
	all := []Status{}
	for _, kind := range types {
		r, err := i.journal.Read(kind)
		if err != nil {
			return all, err
		}
		s := Status{Type: kind, Phase: string(r.Phase), Folder: r.Base, LastError: r.LastError, Retry: r.Retry}
		if r.Phase == journal.Done {
			s.Phase = "done"
		}
		if r.Now != nil {
			s.Version, s.Handlers = r.Now.Version, r.Now.Handlers
			s.Served = !slices.ContainsFunc(s.Handlers, func(h string) bool { return !slices.Contains(seen.Handlers, h) })
		}
		for _, old := range r.Old {
			s.Old = append(s.Old, old.Version)
		}
		for _, b := range sandboxes {
			if slices.Contains(s.Handlers, b.Handler) {
				s.Pods++
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// Installed says which of the sources are not on the node in any version.
func (i *Installer) Installed(sources []Source) error {
	for _, s := range sources {
		p, _, err := stage.ReadManifest(s.Dir)
		if err != nil {
			return err
		}
		r, err := i.journal.Read(p.Type)
		if err != nil {
			return err
		}
		if r.Now == nil {
			return fault.New(payload.NotInstalled, "%s is not installed, so that there is nothing to upgrade; fairlead install brings it", p.Type)
		}
	}
	return nil
}

// Answers asks whether the runtime answers; one that is not ready does.
func (i *Installer) Answers(ctx context.Context) error { return i.runtime.Answers(ctx) }

// Events is the file of the node in which its monitor leaves what it has done. It
// goes with the boot.
func (i *Installer) Events() string { return i.real(filepath.Join(view.Told, "monitor.json")) }

// Reviver is how a runtime that hangs is brought back: other than for a change of
// its configuration, a signal that it would have to take does not do.
func (i *Installer) Reviver() (restart.Restarter, error) {
	if _, ok := i.restarter.(restart.Hangup); ok {
		return nil, fault.New(payload.ConfigurationProblem, "one that hangs takes no SIGHUP; choose systemd, command or none")
	}
	return i.restarter, nil
}

// TypeOf is the type of a payload.
func TypeOf(dir string) (string, error) {
	p, _, err := stage.ReadManifest(dir)
	if err != nil {
		return "", err
	}
	return p.Type, nil
}
