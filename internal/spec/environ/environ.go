// Package environ is the environment of a process in the making.
package environ

import "strings"

// Env is a list of variables, each there once.
type Env struct {
	List  []string // "NAME=value", in the order in which the names came
	index map[string]int
}

// New is a list to begin with.
func New(first ...string) *Env {
	e := &Env{index: map[string]int{}}
	for _, f := range first {
		name, value, _ := strings.Cut(f, "=")
		e.Set(name, value)
	}
	return e
}

// Set adds a variable, or gives it another value at its place.
func (e *Env) Set(name, value string) {
	if i, ok := e.index[name]; ok {
		e.List[i] = name + "=" + value
		return
	}
	e.index[name] = len(e.List)
	e.List = append(e.List, name+"="+value)
}

// Add sets all variables of the list, and returns what in it is none.
func (e *Env) Add(list []string) (bad []string) {
	for _, v := range list {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" || strings.ContainsRune(v, 0) {
			bad = append(bad, v)
			continue
		}
		e.Set(name, value)
	}
	return bad
}
