package runtime

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
)

var (
	probed    = failpoint.Register("handlers.probed")
	committed = failpoint.Register("handlers.committed")
)

// Wanted is which handlers there shall be.
type Wanted struct {
	Handlers map[string]v1alpha1.Handler
	// Default is the name of the default handler; empty means crun if it works
	// here, else runc, else the first that works.
	Default string
	// Discover adds those of crun, runc and runsc that are installed, now or later.
	Discover bool
	// Origin says where a handler is described, as file, line and key. Nil where
	// nobody knows.
	Origin func(name string) string
}

// Change is what Apply has changed, by names.
type Change struct {
	Added, Changed, Removed []string
}

func (c *Change) none() bool { return len(c.Added)+len(c.Changed)+len(c.Removed) == 0 }

// set is the handlers that there are. Nobody changes one that was published.
type set[H any] struct {
	wanted  Wanted
	since   time.Time
	entries map[string]*entry[H]
}

// names are in order.
func (s *set[H]) names() []string { return slices.Sorted(maps.Keys(s.entries)) }

// Apply changes the handlers, all at once or not at all: those that are new or
// described differently are tried, and if one does not work the error says why
// and nothing has changed. tell, if any, is told the steps. commit, if any, is
// called when all work and before they are offered; its error leaves all as it was.
func (r *Registry[H]) Apply(ctx context.Context, w Wanted, tell func(step string), commit func() error) (Change, error) {
	r.writer.Lock()
	defer r.writer.Unlock()
	next, change, err := r.plan(w)
	if err != nil {
		return Change{}, err
	}
	if commit == nil && change.none() {
		r.publish(next)
		return change, nil
	}
	for _, name := range slices.Concat(change.Added, change.Changed) {
		e := next.entries[name]
		info, err := e.verify(ctx, tell)
		if err == nil && !info.Ready {
			err = fmt.Errorf("%s: %w", info.Reason, errdefs.ErrPrecondition)
		}
		if err != nil {
			return Change{}, fmt.Errorf("runtime handler %s does not work, and nothing was changed: %w", name, err)
		}
	}
	if err := failpoint.Hit(probed); err != nil {
		return Change{}, err
	}
	if commit != nil {
		if err := commit(); err != nil {
			return Change{}, err
		}
	}
	if err := failpoint.Hit(committed); err != nil {
		return Change{}, err
	}
	r.publish(next)
	r.revisions.retire(func(name string) bool { return next.entries[name] != nil })
	r.tellNews()
	return change, nil
}

// publish offers a set. What was discovered while it was made stays.
func (r *Registry[H]) publish(next *set[H]) {
	for {
		now := r.set.Load()
		for name, e := range now.entries {
			if next.wanted.Discover && e.discovered && next.entries[name] == nil {
				next.entries[name] = e
			}
		}
		if r.set.CompareAndSwap(now, next) {
			return
		}
	}
}

// plan makes the next set. What is described as before stays what it is.
func (r *Registry[H]) plan(w Wanted) (*set[H], Change, error) {
	var change Change
	before := &set[H]{}
	if now := r.set.Load(); now != nil {
		before = now
	}
	next := &set[H]{wanted: w, since: time.Now(), entries: map[string]*entry[H]{}}
	for _, name := range slices.Sorted(maps.Keys(w.Handlers)) {
		d := Definition{Name: name, Handler: w.Handlers[name], Search: r.cfg.Search}
		kind, ok := r.kinds[d.Kind()]
		if !ok {
			return nil, change, fmt.Errorf("configure handler %s: there is no kind %q, but %s: %w", name, d.Kind(),
				strings.Join(slices.Sorted(maps.Keys(r.kinds)), ", "), errdefs.ErrInvalidArgument)
		}
		old := before.entries[name]
		switch {
		case old == nil:
			change.Added = append(change.Added, name)
		case reflect.DeepEqual(old.def.Handler, d.Handler):
			next.entries[name] = old
			old.describedAt(w)
			continue
		default:
			change.Changed = append(change.Changed, name)
		}
		next.entries[name] = newEntry(d, kind, r.cfg, r.revisions)
		next.entries[name].describedAt(w)
	}
	for _, name := range before.names() {
		switch {
		case next.entries[name] != nil:
		case w.Discover && before.entries[name].discovered:
			next.entries[name] = before.entries[name]
		default:
			change.Removed = append(change.Removed, name)
		}
	}
	if d := w.Default; d != "" && !w.Discover && next.entries[d] == nil {
		return nil, change, fmt.Errorf("configure the default handler: there is no %q, but %s: %w", d,
			strings.Join(next.names(), ", "), errdefs.ErrInvalidArgument)
	}
	return next, change, nil
}

// tellNews wakes Run.
func (r *Registry[H]) tellNews() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}
