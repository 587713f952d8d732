package runtime

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime/shelf"
)

// revision is a handler as some pods have it: with the definition and the program
// that it had when they were started.
type revision[H any] struct {
	shelf.Revision     // under revisions.mu
	held           int // trials that are under way; under revisions.mu
	driver         H
	info           atomic.Pointer[pod.HandlerInfo] // as it was observed last
}

// revisions are those that pods may be on. They outlive the daemon on the shelf;
// without one, they are not told apart.
type revisions[H any] struct {
	cfg   Config
	kinds map[string]Kind[H]
	shelf *shelf.Shelf // nil without one

	writer sync.Mutex // held while folders come and go, and before mu
	mu     sync.Mutex
	all    []*revision[H]
}

func openRevisions[H any](cfg Config, kinds map[string]Kind[H]) *revisions[H] {
	k := &revisions[H]{cfg: cfg, kinds: kinds}
	if cfg.Shelf == "" {
		return k
	}
	var list []shelf.Revision
	var err error
	if k.shelf, list, err = shelf.Open(cfg.Shelf); err != nil {
		cfg.Log.Warn("a revision of a handler cannot be read; pods on it are served by the handler as it is now", "error", err)
	}
	for _, r := range list {
		if kind, ok := kinds[(Definition{Handler: r.Definition}).Kind()]; ok {
			k.all = append(k.all, k.open(r, kind))
		}
	}
	return k
}

func (k *revisions[H]) open(r shelf.Revision, kind Kind[H]) *revision[H] {
	rev := &revision[H]{Revision: r}
	info := r.Info
	info.Name = r.Handler
	rev.info.Store(&info)
	d := Definition{Name: r.Handler, Handler: r.Definition, Search: k.cfg.Search, Pinned: r.Program}
	rev.driver = kind.Open(d, func() pod.HandlerInfo { return *rev.info.Load() })
	return rev
}

// hold is the revision of a definition whose program is there now, which stays
// until it is released. It is nil where there is none to keep: then the handler
// is tried as it is.
func (k *revisions[H]) hold(d Definition, kind Kind[H]) *revision[H] {
	if k.shelf == nil {
		return nil
	}
	source, err := d.Program()
	if err != nil {
		return nil // the trial tells why
	}
	k.writer.Lock()
	defer k.writer.Unlock()
	var known []shelf.Revision
	k.mu.Lock()
	for _, r := range k.all {
		known = append(known, r.Revision)
	}
	k.mu.Unlock()
	r, err := k.shelf.Put(d.Name, d.Handler, source, known)
	if err != nil {
		k.cfg.Log.Warn("a handler's program cannot be kept; pods run on the one that is on the disk", "error", err)
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, have := range k.all {
		if have.Handler == r.Handler && have.ID == r.ID {
			have.Source, have.File = r.Source, r.File
			have.held++
			return have
		}
	}
	rev := k.open(r, kind)
	rev.held = 1
	k.all = append(k.all, rev)
	return rev
}

// release ends what hold began.
func (k *revisions[H]) release(r *revision[H]) {
	if r == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	r.held--
}

// worked notes what a trial of a revision has found that worked.
func (k *revisions[H]) worked(r *revision[H], info pod.HandlerInfo) {
	r.info.Store(&info)
	k.change(r, func(s *shelf.Revision) { s.Info, s.Removed = info, time.Time{} })
}

// change writes a revision down. What cannot be written is only missing after a
// restart.
func (k *revisions[H]) change(r *revision[H], f func(*shelf.Revision)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f(&r.Revision)
	if err := k.shelf.Save(r.Revision); err != nil {
		k.cfg.Log.Warn("the revision of a handler cannot be written down", "handler", r.Handler, "error", err)
	}
}

// tidy is for before the first trial.
func (k *revisions[H]) tidy() {
	if k.shelf == nil {
		return
	}
	if err := k.shelf.Tidy(); err != nil {
		k.cfg.Log.Warn("what was left of a revision of a handler cannot be removed", "error", err)
	}
}

// source is the program that a revision was found as last.
func (k *revisions[H]) source(r *revision[H]) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return r.Source
}

// find is a revision of a handler, or nil. Without an id it is any of them.
func (k *revisions[H]) find(name, id string) *revision[H] {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range slices.Backward(k.all) {
		if r.Handler == name && (id == "" || r.ID == id) {
			return r
		}
	}
	return nil
}

// retire notes that a handler is not offered any more.
func (k *revisions[H]) retire(offered func(name string) bool) {
	now := time.Now()
	for _, r := range k.list() {
		k.mu.Lock()
		news := r.Removed.IsZero()
		k.mu.Unlock()
		if news && !offered(r.Handler) {
			k.change(r, func(s *shelf.Revision) { s.Removed = now })
		}
	}
}

func (k *revisions[H]) list() []*revision[H] {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.all)
}

// removedAt is when a handler was taken from new pods.
func (k *revisions[H]) removedAt(name string) (at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.all {
		if r.Handler == name && r.Removed.After(at) {
			at = r.Removed
		}
	}
	return at
}

// drop forgets those of some revisions that no trial holds and that are not
// needed. What cannot be removed stays known.
func (k *revisions[H]) drop(some []*revision[H], needed func(*revision[H]) bool) error {
	k.writer.Lock()
	defer k.writer.Unlock()
	var failed []error
	for _, r := range some {
		if !k.forget(r, needed) {
			continue
		}
		if err := k.shelf.Drop(r.Revision); err != nil {
			failed = append(failed, err)
			k.mu.Lock()
			k.all = append(k.all, r)
			k.mu.Unlock()
		}
	}
	return errors.Join(failed...)
}

// forget says whether a revision was known and is forgotten.
func (k *revisions[H]) forget(r *revision[H], needed func(*revision[H]) bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.Index(k.all, r)
	if i < 0 || r.held > 0 || needed(r) {
		return false
	}
	k.all = slices.Delete(k.all, i, i+1)
	return true
}

// Prune forgets revisions of handlers that no pod is on and no new one will be.
// While a pod is being started, which starting tells, nobody knows which one it
// will be on: then nothing is forgotten, and waits is true.
func (r *Registry[H]) Prune(starting func() bool) (waits bool, err error) {
	if r.revisions.shelf == nil || r.cfg.Uses == nil {
		return false, nil
	}
	r.writer.Lock()
	defer r.writer.Unlock()
	// In this order: a pod that begins to start after the first line gets a revision
	// that is offered, and one that began before is seen by one of the next two.
	some := slices.DeleteFunc(r.revisions.list(), r.offered)
	if len(some) == 0 {
		return false, nil
	}
	if starting() {
		return true, nil
	}
	used := r.cfg.Uses()
	return false, r.revisions.drop(some, func(k *revision[H]) bool {
		return r.offered(k) || used[pod.HandlerUse{Handler: k.Handler, Revision: k.ID}] > 0 || used[pod.HandlerUse{Handler: k.Handler}] > 0
	})
}

// offered says whether a new pod may get a revision.
func (r *Registry[H]) offered(k *revision[H]) bool {
	e := r.find(k.Handler)
	if e == nil {
		return false
	}
	t := e.last.Load() // before its first trial, any may be the one
	return t == nil || t.revision == k
}

// draining are the handlers that are not offered any more and have pods.
func (r *Registry[H]) draining() []pod.HandlerInfo {
	if r.cfg.Uses == nil {
		return nil
	}
	now, used := r.set.Load(), r.podsOf()
	var out []pod.HandlerInfo
	for _, k := range r.revisions.list() {
		named := func(i pod.HandlerInfo) bool { return i.Name == k.Handler }
		if now.entries[k.Handler] != nil || used[k.Handler] == 0 || slices.ContainsFunc(out, named) {
			continue
		}
		info := *k.info.Load()
		info.Ready, info.Trying, info.Draining, info.Default = false, false, true, false
		info.Reason = r.whyDraining(k.Handler, used[k.Handler])
		out = append(out, info)
	}
	return out
}

// podsOf counts the pods of each handler.
func (r *Registry[H]) podsOf() map[string]int {
	out := map[string]int{}
	for use, n := range r.cfg.Uses() {
		out[use.Handler] += n
	}
	return out
}

func (r *Registry[H]) whyDraining(name string, pods int) string {
	noun := "pods"
	if pods == 1 {
		noun = "pod"
	}
	since := ""
	if at := r.revisions.removedAt(name); !at.IsZero() {
		since = " at " + at.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("it was removed%s and is gone with its last pod; it has %d %s", since, pods, noun)
}

// refuseDraining says why a handler that only drains gets no new pod, or nil.
func (r *Registry[H]) refuseDraining(name, inventory string) error {
	for _, i := range r.draining() {
		if i.Name == name {
			return fmt.Errorf("runtime handler %q takes no new pods: %s (%s): %w", name, i.Reason, inventory, errdefs.ErrPrecondition)
		}
	}
	return nil
}
