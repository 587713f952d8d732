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
	"sync/atomic"
	"time"

	"fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Config is what a Registry is made from.
type Config struct {
	Wanted
	// Shelf is the folder of the revisions that pods are on; empty for none, and
	// then pods are always on what is on the disk.
	Shelf string
	// Idle leaves the shelf as it is.
	Idle bool
	// Uses counts the pods of each revision. Nil where nobody knows.
	Uses func() map[pod.HandlerUse]int
	// Search is where programs are looked for; nil means SearchPath().
	Search []string
	// ProbeTimeout bounds one trial of a handler; zero means 15 seconds,
	// because a machine that has just booted is slow.
	ProbeTimeout time.Duration
	// Log gets what trials found; nil means slog.Default().
	Log *slog.Logger

	over chan struct{} // closed when Run ends: trials under way are given up
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
	cfg       Config
	kinds     map[string]Kind[H]
	revisions *revisions[H]

	// set is replaced as a whole: by who has writer, and where a program is
	// discovered. Readers take no lock.
	set    atomic.Pointer[set[H]]
	writer sync.Mutex
	found  background    // looks for programs that were installed meanwhile
	news   chan struct{} // gets an element when there may be something to try
	giveUp func()        // closes cfg.over
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
	cfg.over = make(chan struct{})
	r := &Registry[H]{cfg: cfg, kinds: kinds, revisions: openRevisions(cfg, kinds), news: make(chan struct{}, 1)}
	r.giveUp = sync.OnceFunc(func() { close(cfg.over) })
	first, _, err := r.plan(cfg.Wanted)
	if err != nil {
		return nil, err
	}
	r.set.Store(first)
	if !cfg.Idle {
		r.revisions.tidy()
		r.revisions.retire(func(name string) bool {
			return first.entries[name] != nil || first.wanted.Discover && slices.Contains(discoverable, name)
		})
	}
	return r, nil
}

// Run tries all handlers at once, and each again when its time has come, until
// ctx ends, and then gives up those under way. Nobody has to wait for it before
// asking for a handler.
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
	r.giveUp()
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
// errdefs.ErrPrecondition, or errdefs.ErrUnavailable where another trial may soon
// find that it does. All name the handlers that work.
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
	t := e.usable(ctx)
	if !t.info.Ready {
		why, kind := t.refusal()
		return none, fmt.Errorf("runtime handler %q does not work here: %s (%s): %w", e.def.Name, why, r.inventory(ctx, e), kind)
	}
	return e.driverOf(t), nil
}

// Serving resolves the handler of a pod that exists, in the revision that it was
// started with, if that is known. It does not matter whether the handler works
// for new pods, or is still configured.
func (r *Registry[H]) Serving(name, revision string) (H, error) {
	if revision != "" {
		if k := r.revisions.find(name, revision); k != nil {
			return k.driver, nil
		}
	}
	e := r.find(name)
	if k := r.revisions.find(name, ""); e == nil && k != nil {
		return k.driver, nil
	}
	if e == nil && r.set.Load().wanted.Discover && slices.Contains(discoverable, name) {
		e = r.add(name) // its program is gone; its pods are not
	}
	if e == nil {
		var none H
		return none, fmt.Errorf("find runtime handler %q of an existing pod: it is in no configuration file any more; put it back until the pod is removed: %w", name, errdefs.ErrPrecondition)
	}
	return e.driverOf(e.last.Load()), nil
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
	list = append(r.addMissing(list), r.draining()...)
	slices.SortFunc(list, func(a, b pod.HandlerInfo) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// NameOf is the handler that a name stands for, "" being the default, as far as
// is known: it looks at nothing and waits for no trial. It is "" for none.
func (r *Registry[H]) NameOf(name string) string {
	e := r.find(name)
	if name == "" {
		e = r.defaultKnown()
	}
	if e == nil && name != "" && r.revisions.find(name, "") != nil {
		return name // it drains
	}
	if e == nil {
		return ""
	}
	return e.def.Name
}

// Offers says whether there is a handler for new pods, working or not.
func (r *Registry[H]) Offers(name string) bool { return r.find(name) != nil }

// Described is how a handler is described, or was when its last pod was started.
func (r *Registry[H]) Described(name string) v1alpha1.Handler {
	if e := r.find(name); e != nil {
		return e.def.Handler
	}
	if k := r.revisions.find(name, ""); k != nil {
		return k.Definition
	}
	return v1alpha1.Handler{}
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
	return r.defaultThat(func(e *entry[H]) bool { return e.usable(ctx).info.Ready })
}

// defaultKnown is defaultEntry by what is known already.
func (r *Registry[H]) defaultKnown() *entry[H] {
	return r.defaultThat(func(e *entry[H]) bool { return e.known().Ready })
}

func (r *Registry[H]) defaultThat(works func(*entry[H]) bool) *entry[H] {
	if d := r.set.Load().wanted.Default; d != "" {
		return r.find(d)
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
func (r *Registry[H]) find(name string) *entry[H] { return r.set.Load().entries[name] }

// discoverNew adds the programs that have been installed since the last call.
func (r *Registry[H]) discoverNew() {
	now := r.set.Load()
	if !now.wanted.Discover {
		return
	}
	for _, name := range discoverable {
		if now.entries[name] != nil {
			continue
		}
		if _, err := (Definition{Name: name, Search: r.cfg.Search}).Program(); err == nil {
			r.add(name)
		}
	}
}

// all returns the entries in the order of their names.
func (r *Registry[H]) all() []*entry[H] {
	now := r.set.Load()
	var list []*entry[H]
	for _, name := range now.names() {
		list = append(list, now.entries[name])
	}
	return list
}

// add adds a handler that was discovered, unless it is there already, or a
// change that was made meanwhile leaves it out.
func (r *Registry[H]) add(name string) *entry[H] {
	for {
		now := r.set.Load()
		kind, known := r.kinds[KindOCI]
		if e := now.entries[name]; e != nil || !known || !now.wanted.Discover {
			return e
		}
		e := newEntry(Definition{Name: name, Search: r.cfg.Search}, kind, r.cfg, r.revisions)
		e.discovered = true
		next := &set[H]{wanted: now.wanted, since: time.Now(), entries: maps.Clone(now.entries)}
		next.entries[name] = e
		if r.set.CompareAndSwap(now, next) {
			r.tellNews()
			return e
		}
	}
}

func (r *Registry[H]) names() []string { return r.set.Load().names() }

func (r *Registry[H]) unknown(ctx context.Context, name string) error {
	names, standard := r.names(), r.set.Load().wanted.Default
	if name != "" {
		if err := r.refuseDraining(name, r.inventory(ctx, nil)); err != nil {
			return err
		}
	}
	switch {
	case len(names) == 0 && (name != "" || standard == ""):
		return fmt.Errorf("find runtime handler %q: none exists; neither crun nor runc is in %s; install one, or describe handlers in /etc/fairlead/config.toml: %w",
			name, strings.Join(r.cfg.Search, ", "), errdefs.ErrNotFound)
	case name == "" && standard != "":
		return fmt.Errorf("find the default runtime handler: %s (%s): %w", r.missing().Reason, r.inventory(ctx, nil), errdefs.ErrNotFound)
	case name == "":
		return fmt.Errorf("find a default runtime handler: none works here (%s): %w", r.inventory(ctx, nil), r.whyNoDefault())
	}
	hint := ""
	if near := v1alpha1.Nearest(name, names); near != "" {
		hint = fmt.Sprintf(", did you mean %q?", near)
	}
	return fmt.Errorf("there is no runtime handler %q here%s (handlers are as they are since %s; %s): %w", name, hint,
		r.set.Load().since.UTC().Format(time.RFC3339), r.inventory(ctx, nil), errdefs.ErrNotFound)
}

// whyNoDefault is the kind of the error where no handler works that could be the
// default.
func (r *Registry[H]) whyNoDefault() error {
	for _, e := range r.all() {
		if _, kind := e.latest().refusal(); kind == errdefs.ErrUnavailable {
			return kind
		}
	}
	return errdefs.ErrPrecondition
}

// inventory tells which handlers work and which do not, and why, apart from
// the one that the sentence is about.
func (r *Registry[H]) inventory(ctx context.Context, about *entry[H]) string {
	var works, fails []string
	for _, e := range r.all() {
		switch info := e.current(ctx).info; {
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
