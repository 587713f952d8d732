package events

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The numbers that the clients of Kubernetes have.
const (
	burst    = 25              // events about one object that may come at once
	refill   = 5 * time.Minute // in which it gains one more
	similar  = 10              // events with one reason and different messages
	window   = 10 * time.Minute
	maxKnown = 4096 // objects, kinds and events, of each
)

// memory is what has been said, used by one goroutine.
type memory struct {
	objects map[corev1.ObjectReference]*bucket
	kinds   map[kind]*group
	events  map[happening]*said
}

// said is an event that the API server has, or will have.
type said struct {
	name    string // empty until it has it
	message string
	count   int32
	at      time.Time
}

type kind struct {
	about        corev1.ObjectReference
	kind, reason string
}

type happening struct {
	kind
	message string
}

// group is the messages of one kind of the last minutes.
type group struct {
	messages map[string]bool
	at       time.Time
}

type bucket struct {
	tokens float64
	at     time.Time
}

func newMemory() *memory {
	return &memory{objects: map[corev1.ObjectReference]*bucket{}, kinds: map[kind]*group{}, events: map[happening]*said{}}
}

// say is what to say of something that happened, or nil if too much is said.
func (m *memory) say(h happened) *said {
	about := h.about
	about.ResourceVersion = "" // another for each change of the object
	k := kind{about, h.kind, h.reason}
	key, message := happening{k, h.message}, h.message
	if m.many(k, h) {
		key.message, message = "", "(combined from similar events): "+h.message
		message = shortened(message)
	}
	about.FieldPath = ""
	if !m.allowed(about, h.at) {
		return nil
	}
	s := m.events[key]
	if s == nil {
		bounded(m.events, func(s *said) time.Time { return s.at })
		s = &said{}
		m.events[key] = s
	}
	s.count, s.message, s.at = s.count+1, message, h.at
	return s
}

// many says that there are so many different messages of a kind that they are
// told as one.
func (m *memory) many(k kind, h happened) bool {
	g := m.kinds[k]
	if g == nil || h.at.Sub(g.at) > window {
		bounded(m.kinds, func(g *group) time.Time { return g.at })
		g = &group{messages: map[string]bool{}}
		m.kinds[k] = g
	}
	g.at = h.at
	if len(g.messages) >= similar {
		return true
	}
	g.messages[h.message] = true
	return len(g.messages) >= similar
}

// allowed takes a token of an object, if it has one.
func (m *memory) allowed(about corev1.ObjectReference, at time.Time) bool {
	b := m.objects[about]
	if b == nil {
		bounded(m.objects, func(b *bucket) time.Time { return b.at })
		b = &bucket{tokens: burst, at: at}
		m.objects[about] = b
	}
	if gain := at.Sub(b.at); gain > 0 {
		b.tokens = min(burst, b.tokens+float64(gain)/float64(refill))
		b.at = at
	}
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// bounded makes room in a map that is full: the older half goes.
func bounded[K comparable, V any](in map[K]V, at func(V) time.Time) {
	if len(in) < maxKnown {
		return
	}
	var oldest, newest time.Time
	for _, v := range in {
		t := at(v)
		if oldest.IsZero() || t.Before(oldest) {
			oldest = t
		}
		if t.After(newest) {
			newest = t
		}
	}
	middle := oldest.Add(newest.Sub(oldest) / 2)
	for k, v := range in {
		if !at(v).After(middle) {
			delete(in, k)
		}
	}
}
