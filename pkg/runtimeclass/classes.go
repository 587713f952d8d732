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
