package runtimeclass

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
)

// Classes is where classes are found: a map, or a few lines around the lister of
// an informer. What Get returns is read only, so it may be the cache's own.
type Classes interface {
	// Get returns nil if there is no such class.
	Get(name string) *nodev1.RuntimeClass
	// Names lists the classes that exist, in any order. It is called for
	// messages only.
	Names() []string
}

// Map is classes by their name.
type Map map[string]*nodev1.RuntimeClass

// NewMap makes a Map of classes.
func NewMap(list ...*nodev1.RuntimeClass) Map {
	m := Map{}
	for _, c := range list {
		m[c.Name] = c
	}
	return m
}

// Get returns a class, or nil.
func (m Map) Get(name string) *nodev1.RuntimeClass { return m[name] }

// Names lists the classes by name.
func (m Map) Names() []string { return slices.Sorted(maps.Keys(m)) }

// NameOf is the class that a pod asks for. Nil and "" both ask for none, and so
// for the default behaviour: no class at all.
func NameOf(pod *corev1.Pod) string {
	if pod == nil || pod.Spec.RuntimeClassName == nil {
		return ""
	}
	return *pod.Spec.RuntimeClassName
}

// Find is the class of that name, or a *MissingError.
func Find(classes Classes, name string) (*nodev1.RuntimeClass, error) {
	var names []string
	if classes != nil {
		if c := classes.Get(name); c != nil {
			return c, nil
		}
		names = slices.Sorted(slices.Values(classes.Names()))
	}
	return nil, &MissingError{Name: name, Existing: names, Nearest: nearest(name, names)}
}

// MissingError is that a class does not exist.
type MissingError struct {
	Name     string
	Existing []string // all that do, by name
	Nearest  string   // of these the one that was probably meant; may be empty
}

// mostNames bounds a message: clusters with thousands of classes exist.
const mostNames = 20

// Error names the class, those that exist, and the one that was probably meant.
func (e *MissingError) Error() string {
	text := fmt.Sprintf("there is no RuntimeClass %q", e.Name)
	if len(e.Existing) == 0 {
		return text + ", nor any other; create it, or leave runtimeClassName out for the default runtime"
	}
	shown, more := e.Existing, ""
	if len(shown) > mostNames {
		shown, more = shown[:mostNames], fmt.Sprintf(" and %d more", len(e.Existing)-mostNames)
	}
	text += "; there are " + strings.Join(shown, ", ") + more
	if len(e.Existing) == 1 {
		text = fmt.Sprintf("there is no RuntimeClass %q; there is only %s", e.Name, e.Existing[0])
	}
	if e.Nearest != "" {
		text += "; did you mean " + e.Nearest + "?"
	}
	return text
}

// nearest is the candidate that differs from word by the fewest letters, or ""
// if all differ by more than a third of it.
func nearest(word string, candidates []string) string {
	if len(word) > 64 {
		return "" // nobody's slip of the finger
	}
	best, most := "", len(word)/3+1
	row := make([]int, len(word)+most+1)
	for _, c := range candidates {
		// The difference in length is the least that the distance can be;
		// asking that first, and one row for all, keeps thousands of names cheap.
		if d := len(c) - len(word); d > most || -d > most {
			continue
		}
		if d := distance(word, c, row[:len(c)+1]); d < most || d == most && best == "" {
			best, most = c, d
		}
	}
	return best
}

// distance is the number of letters to add, drop or change between a and b. It
// works in row, one longer than b.
func distance(a, b string, row []int) int {
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
