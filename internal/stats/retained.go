package stats

import (
	"sync"
	"time"
)

// What nobody has asked about for forgetAfter is forgotten when there are twice
// as many values as remained the last time, and more than fewValues.
const (
	forgetAfter = 15 * time.Minute
	fewValues   = 256
)

// memory keeps a value for each id as long as somebody asks for it. Nobody has
// to tell it of what is no more, and it costs those who ask nothing.
type memory[V any] struct {
	mu    sync.Mutex
	all   map[string]*kept[V]
	limit int
}

type kept[V any] struct {
	value V
	asked time.Time
}

// with calls f with the value of an id, a new one if there is none. f must not
// take long.
func (m *memory[V]) with(id string, now time.Time, f func(*V)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.all[id]
	if k == nil {
		m.sweep(now)
		k = &kept[V]{}
		m.all[id] = k
	}
	k.asked = now
	f(&k.value)
}

// update is with for a value that is there, without asking for it.
func (m *memory[V]) update(id string, f func(*V)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.all[id]; k != nil {
		f(&k.value)
	}
}

func (m *memory[V]) drop(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, id)
}

func (m *memory[V]) sweep(now time.Time) {
	if m.all == nil {
		m.all, m.limit = map[string]*kept[V]{}, fewValues
	}
	if len(m.all) < m.limit {
		return
	}
	for id, k := range m.all {
		if now.Sub(k.asked) > forgetAfter {
			delete(m.all, id)
		}
	}
	m.limit = max(fewValues, 2*len(m.all))
}
