package journal

import (
	"slices"
	"testing"
	"time"
)

// What was only staged is nobody's, by name.
func TestHandlersOfARecord(t *testing.T) {
	at := time.Unix(1, 0)
	now, staged, written := &Release{Handlers: []string{"a", "b"}}, &Release{Handlers: []string{"b", "c"}}, &Release{Handlers: []string{"b", "c"}, Since: at}
	old := []Release{{Handlers: []string{"never"}}, {Handlers: []string{"a", "old"}, Since: at}}
	for name, c := range map[string]struct {
		record                 Record
		owned, given, handlers []string
	}{
		"none":             {Record{}, nil, nil, nil},
		"installed":        {Record{Now: now, Old: old}, []string{"a", "b"}, nil, []string{"a", "b", "old"}},
		"staged":           {Record{Next: staged}, nil, nil, nil},
		"written":          {Record{Next: written}, []string{"b", "c"}, []string{"b", "c"}, []string{"b", "c"}},
		"upgrade, staged":  {Record{Now: now, Next: staged}, []string{"a", "b"}, nil, []string{"a", "b"}},
		"upgrade, written": {Record{Now: now, Next: written}, []string{"a", "b", "b", "c"}, []string{"c"}, []string{"a", "b", "c"}},
	} {
		r := c.record
		if got := r.Owned(); !slices.Equal(got, c.owned) {
			t.Errorf("%s: it owns %q", name, got)
		}
		if got := r.Given(); !slices.Equal(got, c.given) {
			t.Errorf("%s: the change brings %q", name, got)
		}
		if got := r.Handlers(); !slices.Equal(got, c.handlers) {
			t.Errorf("%s: pods may be on %q", name, got)
		}
	}
	r := Record{Now: now}
	if r.Retire(now); len(r.Old) != 1 || r.Old[0].Until.IsZero() || !now.Until.IsZero() {
		t.Errorf("%+v", r)
	}
}
