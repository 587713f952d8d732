package tree

import (
	"errors"
	"fmt"
	"time"

	"fairlead.run/internal/errdefs"
)

// Taker takes values out of a tree and says that they are used. Values of
// another type than is asked for are collected in Err.
type Taker struct{ wrong []error }

// Err says which values were of a wrong type, and where they are.
func (t *Taker) Err() error { return errors.Join(t.wrong...) }

// Refuse adds a value that cannot be used to Err.
func (t *Taker) Refuse(n *Node, format string, args ...any) {
	t.wrong = append(t.wrong, fmt.Errorf("%s:%d: %s: %s: %w", n.File, n.Line, n.Key, fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument))
}

// take is the value of n, if it is there and of type T.
func take[T any](t *Taker, n *Node, want string) (v T, ok bool) {
	if n == nil {
		return v, false
	}
	n.used = true
	if v, ok = n.Value.(T); !ok {
		t.Refuse(n, "this is no %s", want)
	}
	return v, ok
}

// String takes a string; without one it is empty.
func (t *Taker) String(n *Node) string {
	s, _ := take[string](t, n, "string in quotes")
	return s
}

// Bool takes true or false; without it is false.
func (t *Taker) Bool(n *Node) bool {
	b, _ := take[bool](t, n, "true or false")
	return b
}

// Int takes a number; without one ok is false.
func (t *Taker) Int(n *Node) (int64, bool) { return take[int64](t, n, "whole number") }

// Strings takes a list of strings.
func (t *Taker) Strings(n *Node) []string {
	list, ok := take[[]any](t, n, "list")
	if !ok {
		return nil
	}
	out := make([]string, 0, len(list))
	for _, v := range list {
		s, text := v.(string)
		if !text {
			t.Refuse(n, "%v is no string in quotes", v)
			return nil
		}
		out = append(out, s)
	}
	return out
}

// Duration takes a time span as Go writes it, or in nanoseconds.
func (t *Taker) Duration(n *Node) (time.Duration, bool) {
	if n == nil {
		return 0, false
	}
	if ns, number := n.Value.(int64); number {
		n.used = true
		return time.Duration(ns), true
	}
	text := t.String(n)
	if text == "" {
		return 0, false
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Refuse(n, "%q is no duration", text)
		return 0, false
	}
	return d, true
}

// Table takes a table itself, not what is in it.
func (t *Taker) Table(n *Node) *Node {
	if n == nil {
		return nil
	}
	if n.Table == nil {
		n.used = true
		t.Refuse(n, "this is no table")
		return nil
	}
	return n
}
