package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/keylock"
	"fairlead.run/internal/lifecycle/events"
	"fairlead.run/internal/pod"
)

// book is the memory of all records: a cache of the store, and the only way to
// change it. A record in it is never modified: a change makes a new one, so
// that readers need no lock and no copy.
type book struct {
	store   Store
	commits keylock.Locks[pod.ID] // one change of a record at a time
	feed    events.Feed           // told of every change, in order

	mu         sync.RWMutex
	pods       map[pod.ID]*pod.Record
	containers map[pod.ContainerID]pod.ID
	ended      map[pod.ContainerID]chan struct{} // closed when the container is Exited
	early      map[pod.ContainerID]pod.Exit      // ends seen before the start was committed
	undone     map[pod.ContainerID]time.Time     // when a start was taken back; ends until then are of nobody
	recovering map[pod.ID]chan struct{}          // closed when the pod was observed after a restart
	claimed    map[pod.ID]string                 // SELinux levels of pods whose record is still to be written
}

func newBook(s Store) *book {
	return &book{
		store:      s,
		pods:       map[pod.ID]*pod.Record{},
		containers: map[pod.ContainerID]pod.ID{},
		ended:      map[pod.ContainerID]chan struct{}{},
		early:      map[pod.ContainerID]pod.Exit{},
		undone:     map[pod.ContainerID]time.Time{},
		recovering: map[pod.ID]chan struct{}{},
		claimed:    map[pod.ID]string{},
	}
}

// adopt takes a record as the store has it, to be recovered.
func (b *book) adopt(r *pod.Record) {
	b.recovering[r.ID] = make(chan struct{})
	b.publish(r)
}

// recovered lets the requests for a pod through.
func (b *book) recovered(id pod.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if wait := b.recovering[id]; wait != nil {
		close(wait)
		delete(b.recovering, id)
	}
}

// await blocks until the pod was recovered.
func (b *book) await(ctx context.Context, id pod.ID) error {
	b.mu.RLock()
	wait := b.recovering[id]
	b.mu.RUnlock()
	if wait == nil {
		return nil
	}
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("pod %s is still being recovered after a restart: %w", id.Short(), context.Cause(ctx))
	}
}

// unobserved are the pods that are still to be recovered.
func (b *book) unobserved() []pod.ID {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Sorted(maps.Keys(b.recovering))
}

// add writes the record of a new pod.
func (b *book) add(ctx context.Context, r *pod.Record) error {
	if err := b.store.Put(ctx, r); err != nil {
		return err
	}
	b.publish(r)
	return nil
}

// claimLevel gives a pod the first of the SELinux levels that no other pod or
// container has, until its record is written or removed.
func (b *book) claimLevel(id pod.ID, levels iter.Seq[string]) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := map[string]bool{}
	for _, l := range b.claimed {
		taken[l] = true
	}
	for _, r := range b.pods {
		taken[r.Labels.Level()] = true
		for _, c := range r.Containers {
			if o := c.Config.Security.SELinux; o != nil {
				taken[o.Level] = true
			}
		}
	}
	for l := range levels {
		b.claimed[id] = l
		if !taken[l] {
			break
		}
	}
	return b.claimed[id]
}

// change applies f to a copy of the pod's record and commits the copy. f may
// modify the record and the containers in it, but not what their maps, slices
// and pointers lead to.
func (b *book) change(ctx context.Context, id pod.ID, f func(*pod.Record) error) (*pod.Record, error) {
	unlock, err := b.commits.Lock(context.WithoutCancel(ctx), id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	old, err := b.pod(id)
	if err != nil {
		return nil, err
	}
	r := clone(old)
	if err := f(r); err != nil {
		return nil, err
	}
	if err := b.put(ctx, r); err != nil {
		return nil, err
	}
	b.publish(r)
	return r, nil
}

// put writes a record. What stands in for one that cannot be read stays in
// memory: another version of the program may be able to read it.
func (b *book) put(ctx context.Context, r *pod.Record) error {
	if r.Salvaged() {
		return nil
	}
	return b.store.Put(ctx, r)
}

// changeContainer is change for one container, which f gets beside its pod.
func (b *book) changeContainer(ctx context.Context, id pod.ContainerID, f func(*pod.Record, *pod.Container) error) (*pod.Container, error) {
	old, _, err := b.container(id)
	if err != nil {
		return nil, err
	}
	var changed *pod.Container
	_, err = b.change(ctx, old.ID, func(r *pod.Record) error {
		if changed = r.Container(id); changed == nil {
			return unknownContainer(string(id))
		}
		return f(r, changed)
	})
	return changed, err
}

// remove forgets a pod and its containers.
func (b *book) remove(ctx context.Context, id pod.ID) error {
	unlock, err := b.commits.Lock(context.WithoutCancel(ctx), id)
	if err != nil {
		return err
	}
	defer unlock()
	if err := b.store.Delete(ctx, id); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.pods[id]; r != nil {
		b.forgetContainers(r, nil)
		b.feed.Changed(r, nil)
	}
	delete(b.pods, id)
	delete(b.claimed, id)
	return nil
}

// publish makes r what readers see.
func (b *book) publish(r *pod.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.pods[r.ID]
	if old != nil {
		b.forgetContainers(old, r)
	}
	b.pods[r.ID] = r
	delete(b.claimed, r.ID) // the record has it
	b.feed.Changed(old, r)
	for _, c := range r.Containers {
		b.containers[c.ID] = r.ID
		if b.ended[c.ID] == nil {
			b.ended[c.ID] = make(chan struct{})
		}
		if c.State == pod.Exited {
			closeOnce(b.ended[c.ID])
		}
	}
}

// forgetContainers drops what is kept of the containers of old that kept, if
// any, no longer has. b.mu is held.
func (b *book) forgetContainers(old, kept *pod.Record) {
	for _, c := range old.Containers {
		if kept != nil && kept.Container(c.ID) != nil {
			continue
		}
		closeOnce(b.ended[c.ID])
		delete(b.ended, c.ID)
		delete(b.containers, c.ID)
		delete(b.early, c.ID)
		delete(b.undone, c.ID)
	}
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// end is closed once the container is Exited or gone.
func (b *book) end(id pod.ContainerID) <-chan struct{} {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if c := b.ended[id]; c != nil {
		return c
	}
	gone := make(chan struct{})
	close(gone)
	return gone
}

// keepEarly notes an end that came before its start was committed.
func (b *book) keepEarly(id pod.ContainerID, e pod.Exit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.early[id] = e
}

// undo notes that the container's process was ended because its start could not
// be recorded. That end is told later, and is not the next process's.
func (b *book) undo(id pod.ContainerID, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.undone[id] = now
}

// ofUndone says whether an end is that of a process whose start was taken back.
func (b *book) ofUndone(id pod.ContainerID, e pod.Exit) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	at, ok := b.undone[id]
	return ok && !e.FinishedAt.After(at)
}

func (b *book) takeEarly(id pod.ContainerID) (pod.Exit, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.early[id]
	delete(b.early, id)
	if at, undone := b.undone[id]; undone && !e.FinishedAt.After(at) {
		return e, false
	}
	return e, ok
}

func (b *book) pod(id pod.ID) (*pod.Record, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if r := b.pods[id]; r != nil {
		return r, nil
	}
	return nil, unknownPod(string(id))
}

func (b *book) container(id pod.ContainerID) (*pod.Record, *pod.Container, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if r := b.pods[b.containers[id]]; r != nil {
		if c := r.Container(id); c != nil {
			return r, c, nil
		}
	}
	return nil, nil, unknownContainer(string(id))
}

// list returns every record, the oldest pod first.
func (b *book) list() []*pod.Record {
	b.mu.RLock()
	all := make([]*pod.Record, 0, len(b.pods))
	for _, r := range b.pods {
		all = append(all, r)
	}
	b.mu.RUnlock()
	slices.SortFunc(all, func(x, y *pod.Record) int {
		return cmp.Or(x.CreatedAt.Compare(y.CreatedAt), cmp.Compare(x.ID, y.ID))
	})
	return all
}

// named is the pod with that metadata that was not stopped, or "" if there is none.
func (b *book) named(m pod.Metadata) pod.ID {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for id, r := range b.pods {
		if r.Config.Metadata == m && r.State != pod.Exited {
			return id
		}
	}
	return ""
}

// live says whether the pod exists and was not stopped.
func (b *book) live(id pod.ID) bool {
	r, err := b.pod(id)
	return err == nil && r.State != pod.Exited
}

// findPod resolves a full id or the beginning of exactly one.
func (b *book) findPod(prefix string) (*pod.Record, error) {
	if r, err := b.pod(pod.ID(prefix)); err == nil {
		return r, nil
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	var found []string
	for id := range b.pods {
		if prefix != "" && strings.HasPrefix(string(id), prefix) {
			found = append(found, string(id))
		}
	}
	if len(found) != 1 {
		return nil, notOne("pod", prefix, found)
	}
	return b.pods[pod.ID(found[0])], nil
}

// findContainer resolves a full id or the beginning of exactly one.
func (b *book) findContainer(prefix string) (*pod.Record, *pod.Container, error) {
	if r, c, err := b.container(pod.ContainerID(prefix)); err == nil {
		return r, c, nil
	}
	b.mu.RLock()
	var found []string
	for id := range b.containers {
		if prefix != "" && strings.HasPrefix(string(id), prefix) {
			found = append(found, string(id))
		}
	}
	b.mu.RUnlock()
	if len(found) != 1 {
		return nil, nil, notOne("container", prefix, found)
	}
	return b.container(pod.ContainerID(found[0]))
}

func notOne(kind, prefix string, found []string) error {
	if len(found) == 0 {
		return fmt.Errorf("%s %q: %w", kind, prefix, errdefs.ErrNotFound)
	}
	slices.Sort(found)
	return fmt.Errorf("%s %q could be any of %s; give more of the id: %w",
		kind, prefix, strings.Join(found, ", "), errdefs.ErrInvalidArgument)
}

// clone copies the record and its containers, but nothing below them.
func clone(r *pod.Record) *pod.Record {
	out := *r
	out.Containers = make([]*pod.Container, len(r.Containers))
	for i, c := range r.Containers {
		copied := *c
		out.Containers[i] = &copied
	}
	return &out
}
