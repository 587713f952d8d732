// Package events tells followers what happens to pods and containers. It makes
// the events from the records before and after each change, so that there is one
// for everything that was committed, whoever did it, and none for what was not.
//
// It keeps nothing for those who come later: what there is, is in the records.
package events

import (
	"slices"
	"sync"
	"time"

	"fairlead.run/internal/pod"
)

// backlog is how many events a follower may be behind. At 200 events a second
// that is ten seconds.
const backlog = 2048

// Feed passes events on. The zero value is ready.
type Feed struct {
	mu        sync.Mutex
	followers map[chan pod.Notice]bool
}

// Follow returns a channel on which every event from now on arrives in the
// order of the changes. It is closed when the follower is too far behind; what
// it had not missed is still in it. stop must be called.
func (f *Feed) Follow() (seen <-chan pod.Notice, stop func()) {
	c := make(chan pod.Notice, backlog)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.followers == nil {
		f.followers = map[chan pod.Notice]bool{}
	}
	f.followers[c] = true
	return c, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.followers, c)
	}
}

// Changed is told of each change of a record, in order: old is nil for a new
// pod, and now for one that was deleted. It waits for nobody.
func (f *Feed) Changed(old, now *pod.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.followers) == 0 {
		return
	}
	for _, e := range between(old, now) {
		e.At = time.Now()
		for c := range f.followers {
			select {
			case c <- e:
			default:
				close(c)
				delete(f.followers, c)
			}
		}
	}
}

// between are the events that lead from one record to the next.
func between(old, now *pod.Record) []pod.Notice {
	var out []pod.Notice
	add := func(r *pod.Record, id string, kinds []pod.NoticeKind) {
		for _, k := range kinds {
			out = append(out, pod.Notice{Kind: k, ID: id, Record: r})
		}
	}
	after := now
	if now == nil {
		after = old
	}
	for _, c := range containers(now) {
		before := pod.State("")
		if was := find(old, c.ID); was != nil {
			before = was.State
		}
		kinds := steps(before, c.State)
		if ranUnseen(before, c) {
			kinds = slices.Insert(kinds, len(kinds)-1, pod.NoticeStarted)
		}
		add(after, string(c.ID), kinds)
	}
	for _, c := range containers(old) {
		if find(now, c.ID) == nil && made(c.State) {
			add(after, string(c.ID), []pod.NoticeKind{pod.NoticeDeleted})
		}
	}
	switch {
	case now == nil:
		if made(old.State) {
			add(after, string(old.ID), []pod.NoticeKind{pod.NoticeDeleted})
		}
	case old == nil:
		add(now, string(now.ID), steps("", now.State))
	default:
		add(now, string(now.ID), steps(old.State, now.State))
	}
	return out
}

func containers(r *pod.Record) []*pod.Container {
	if r == nil {
		return nil
	}
	return r.Containers
}

func find(r *pod.Record, id pod.ContainerID) *pod.Container {
	if r == nil {
		return nil
	}
	return r.Container(id)
}

// made says whether somebody was told that it exists.
func made(s pod.State) bool { return s != "" && s != pod.Creating }

// ranUnseen says whether a container has both started and ended with one change.
func ranUnseen(before pod.State, c *pod.Container) bool {
	return (before == pod.Created || !made(before)) && c.State == pod.Exited && c.Process != nil
}

// steps are the events of one thing that goes from a state to another. What
// could not be observed for a while is told of again when it can be.
func steps(before, now pod.State) []pod.NoticeKind {
	if before == now {
		return nil
	}
	var out []pod.NoticeKind
	if !made(before) && made(now) {
		out = append(out, pod.NoticeCreated)
	}
	switch now {
	case pod.Running:
		out = append(out, pod.NoticeStarted)
	case pod.Exited:
		out = append(out, pod.NoticeStopped)
	}
	return out
}
