package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Config is what a Registry is made from.
type Config struct {
	// Handlers are the configured ones. With none, those of crun and runc that
	// are installed are the handlers, now or later.
	Handlers map[string]v1alpha1.Handler
	// Default is the configured name of the default handler; empty means crun if
	// it works here, else runc, else the first that works.
	Default string
	// Search is where programs are looked for; nil means SearchPath().
	Search []string
	// ProbeTimeout bounds one trial of a handler; zero means 15 seconds,
	// because a machine that has just booted is slow.
	ProbeTimeout time.Duration
	// Log gets what trials found; nil means slog.Default().
	Log *slog.Logger
}

// Kind is what a Registry needs to know of one kind of handler. H is the type
// of the drivers, which belongs to those who use them.
type Kind[H any] struct {
	// Probe tries a handler and describes it. It ends when ctx does. It sets
	// Ready, or the Reason why not; the registry fills in what the definition
	// says.
	Probe func(ctx context.Context, d Definition) pod.HandlerInfo
	// Fingerprint is cheap, and changes when another trial may end differently.
	Fingerprint func(d Definition) string
	// Open makes the driver, of a handler that works or not. info describes the
	// handler at any time.
	Open func(d Definition, info func() pod.HandlerInfo) H
}

// Registry keeps handlers. H is the type of their drivers.
type Registry[H any] struct {
	cfg      Config
	kinds    map[string]Kind[H]
	discover bool

	mu      sync.Mutex
	entries map[string]*entry[H]
	found   background    // looks for programs that were installed meanwhile
	news    chan struct{} // gets an element when there may be something to try
}

// New makes a registry. It tries nothing yet: Run does, and until then whoever
// asks for a handler waits for the trial of that one.
func New[H any](cfg Config, kinds map[string]Kind[H]) (*Registry[H], error) {
	if cfg.Search == nil {
		cfg.Search = SearchPath()
	}
	if cfg.ProbeTimeout <= 0 {
		cfg.ProbeTimeout = 15 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	r := &Registry[H]{cfg: cfg, kinds: kinds, discover: len(cfg.Handlers) == 0, entries: map[string]*entry[H]{}, news: make(chan struct{}, 1)}
	for name, h := range cfg.Handlers {
		d := Definition{Name: name, Handler: h, Search: cfg.Search}
		kind, ok := kinds[d.Kind()]
		if !ok {
			return nil, fmt.Errorf("configure handler %s: there is no kind %q, but %s: %w", name, d.Kind(),
				strings.Join(slices.Sorted(maps.Keys(kinds)), ", "), errdefs.ErrInvalidArgument)
		}
		r.entries[name] = newEntry(d, kind, cfg)
	}
	if d := cfg.Default; d != "" && !r.discover && r.entries[d] == nil {
		return nil, fmt.Errorf("configure the default handler: there is no %q, but %s: %w", d,
			strings.Join(r.names(), ", "), errdefs.ErrInvalidArgument)
	}
	return r, nil
}

// Run tries all handlers at once, and each again when its time has come, until
// ctx ends. Nobody has to wait for it before asking for a handler.
func (r *Registry[H]) Run(ctx context.Context) error {
	r.found.run(r.discoverNew)
	r.found.await(ctx)
	r.refresh(ctx, func(*entry[H]) bool { return true })
	r.warnMissing()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-r.news:
		case <-time.After(time.Until(r.nextDue())):
		}
		now := time.Now()
		r.refresh(ctx, func(e *entry[H]) bool { return !e.due().After(now) })
	}
	r.leave(context.WithoutCancel(ctx), r.all())
	return ctx.Err()
}

// refresh begins to try what is due. One that hangs keeps nobody else from it.
func (r *Registry[H]) refresh(ctx context.Context, due func(*entry[H]) bool) {
	for _, e := range r.all() {
		if due(e) {
			e.refreshed.run(func() { e.current(ctx) })
		}
	}
}

// dueAtLeast is the least time between two looks at what is due: a handler is due
// all the time while its trial is under way.
const dueAtLeast = time.Second

// nextDue is when the first handler has to be tried again.
func (r *Registry[H]) nextDue() time.Time {
	next, least := time.Now().Add(verifyEvery), time.Now().Add(dueAtLeast)
	for _, e := range r.all() {
		if at := e.due(); at.Before(next) {
			next = at
		}
	}
	if next.Before(least) {
		return least
	}
	return next
}

// Verify tries a handler now, whether it is due or not, and returns what that
// found. It tells the steps as they begin. What a busy machine lets fail takes
// nothing from the pods: List has what is in force afterwards.
func (r *Registry[H]) Verify(ctx context.Context, name string, tell func(step string)) (pod.HandlerInfo, error) {
	r.discoverNew()
	e := r.find(name)
	if name == "" {
		e = r.defaultKnown()
	}
	if e == nil {
		return pod.HandlerInfo{}, r.unknown(ctx, name)
	}
	found, err := e.verify(ctx, tell)
	if err != nil {
		return found, fmt.Errorf("verify runtime handler %s: %w", e.def.Name, err)
	}
	return found, nil
}

// leaveTime is how long trials that are given up may tidy up after themselves.
const leaveTime = 3 * time.Second

// leave waits for them, but not for one that hangs.
func (r *Registry[H]) leave(ctx context.Context, all []*entry[H]) {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	r.found.leave(ctx)
	for _, e := range all {
		e.refreshed.leave(ctx)
	}
}

// Get resolves a name, "" being the default. The error of a name that stands
// for no handler wraps errdefs.ErrNotFound, that of one that does not work here
// errdefs.ErrUnavailable; both name the handlers that do.
func (r *Registry[H]) Get(name string) (H, error) {
	var none H
	// A trial has its own deadline. This is for one that does not keep it.
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.ProbeTimeout+getMargin)
	defer cancel()
	r.discoverNew()
	e := r.find(name)
	if name == "" {
		e = r.defaultEntry(ctx)
	}
	if e == nil {
		return none, r.unknown(ctx, name)
	}
	if info := e.usable(ctx); !info.Ready {
		return none, fmt.Errorf("runtime handler %q does not work here: %s (%s): %w", e.def.Name, info.Reason, r.inventory(ctx, e), errdefs.ErrUnavailable)
	}
	return e.driver, nil
}

// Serving resolves the handler of a pod that exists. It does not matter whether
// the handler works for new pods.
func (r *Registry[H]) Serving(name string) (H, error) {
	e := r.find(name)
	if e == nil && r.discover && slices.Contains(discoverable, name) {
		e = r.add(name) // its program is gone; its pods are not
	}
	if e == nil {
		var none H
		return none, fmt.Errorf("find runtime handler %q of an existing pod: it is in no configuration file any more; put it back until the pod is removed: %w", name, errdefs.ErrPrecondition)
	}
	return e.driver, nil
}

// List describes all handlers in the order of their names. It waits a moment
// for what has changed to be tried, and then tells what was known before: a
// runtime that hangs, or a folder of programs that does, delays nobody.
func (r *Registry[H]) List() []pod.HandlerInfo {
	ctx, cancel := context.WithTimeout(context.Background(), listWait)
	defer cancel()
	r.found.run(r.discoverNew)
	r.found.await(ctx)
	all := r.all()
	for _, e := range all {
		e.refreshed.run(func() { e.current(context.Background()) })
	}
	for _, e := range all {
		e.refreshed.await(ctx)
	}
	// One that is still being tried may yet be the default.
	standard := r.defaultKnown()
	var list []pod.HandlerInfo
	for _, e := range all {
		info := e.known()
		info.Default = e == standard
		list = append(list, info)
	}
	return r.addMissing(list)
}

// NameOf is the handler that a name stands for, "" being the default, as far as
// is known: it looks at nothing and waits for no trial. It is "" for none.
func (r *Registry[H]) NameOf(name string) string {
	e := r.find(name)
	if name == "" {
		e = r.defaultKnown()
	}
	if e == nil {
		return ""
	}
	return e.def.Name
}

const (
	// listWait is what List waits for all trials together.
	listWait = time.Second
	// getMargin is what Get waits for a trial beyond its deadline.
	getMargin = time.Second
)

// defaultEntry is the handler that "" stands for, or nil. The configured one is
// it whether it works or not: pods must not change their runtime by surprise.
func (r *Registry[H]) defaultEntry(ctx context.Context) *entry[H] {
	return r.defaultThat(func(e *entry[H]) bool { return e.usable(ctx).Ready })
}

// defaultKnown is defaultEntry by what is known already.
func (r *Registry[H]) defaultKnown() *entry[H] {
	return r.defaultThat(func(e *entry[H]) bool { return e.known().Ready })
}

func (r *Registry[H]) defaultThat(works func(*entry[H]) bool) *entry[H] {
	if r.cfg.Default != "" {
		return r.find(r.cfg.Default)
	}
	all := r.all()
	for _, name := range append(slices.Clone(discoverable), r.names()...) {
		i := slices.IndexFunc(all, func(e *entry[H]) bool { return e.def.Name == name })
		if i >= 0 && works(all[i]) {
			return all[i]
		}
	}
	return nil
}

// find returns the entry of a name, or nil.
func (r *Registry[H]) find(name string) *entry[H] {
	for _, e := range r.all() {
		if e.def.Name == name {
			return e
		}
	}
	return nil
}

// discoverNew adds the programs that have been installed since the last call.
func (r *Registry[H]) discoverNew() {
	if !r.discover {
		return
	}
	for _, name := range discoverable {
		if r.has(name) {
			continue
		}
		if _, err := (Definition{Name: name, Search: r.cfg.Search}).Program(); err == nil {
			r.add(name)
		}
	}
}

// all returns the entries in the order of their names.
func (r *Registry[H]) all() []*entry[H] {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*entry[H]
	for _, name := range slices.Sorted(maps.Keys(r.entries)) {
		list = append(list, r.entries[name])
	}
	return list
}

func (r *Registry[H]) add(name string) *entry[H] {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.entries[name]
	if kind, known := r.kinds[KindOCI]; !ok && known {
		e = newEntry(Definition{Name: name, Search: r.cfg.Search}, kind, r.cfg)
		r.entries[name] = e
		select {
		case r.news <- struct{}{}:
		default:
		}
	}
	return e
}

func (r *Registry[H]) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entries[name] != nil
}

func (r *Registry[H]) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.entries))
}

func (r *Registry[H]) unknown(ctx context.Context, name string) error {
	names := r.names()
	switch {
	case len(names) == 0 && (name != "" || r.cfg.Default == ""):
		return fmt.Errorf("find runtime handler %q: none exists; neither crun nor runc is in %s; install one, or describe handlers in /etc/fairlead/config.toml: %w",
			name, strings.Join(r.cfg.Search, ", "), errdefs.ErrNotFound)
	case name == "" && r.cfg.Default != "":
		return fmt.Errorf("find the default runtime handler: %s (%s): %w", r.missing().Reason, r.inventory(ctx, nil), errdefs.ErrNotFound)
	case name == "":
		return fmt.Errorf("find a default runtime handler: none works here (%s): %w", r.inventory(ctx, nil), errdefs.ErrUnavailable)
	}
	hint := ""
	if near := v1alpha1.Nearest(name, names); near != "" {
		hint = fmt.Sprintf(", did you mean %q?", near)
	}
	return fmt.Errorf("there is no runtime handler %q here%s (%s): %w", name, hint, r.inventory(ctx, nil), errdefs.ErrNotFound)
}

// inventory tells which handlers work and which do not, and why, apart from
// the one that the sentence is about.
func (r *Registry[H]) inventory(ctx context.Context, about *entry[H]) string {
	var works, fails []string
	for _, e := range r.all() {
		switch info := e.current(ctx); {
		case e == about:
		case info.Ready:
			works = append(works, info.Name)
		default:
			fails = append(fails, fmt.Sprintf("%s does not: %s", info.Name, info.Reason))
		}
	}
	if len(works) == 0 {
		works = []string{"none"}
	}
	return strings.Join(append([]string{"handlers that work: " + strings.Join(works, ", ")}, fails...), "; ")
}

// errTried says that the time of a caller was up, not that of the trial.
var errTried = errors.New("it is still being tried; ask again")
