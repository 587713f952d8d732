package v1alpha1

import (
	"fmt"
	"strings"
)

// Error is one mistake in the configuration.
type Error struct {
	File   string // the file, or "--flag"; empty for a Config that was made by hand
	Line   int    // from 1; 0 is unknown
	Column int    // from 1, in bytes; 0 is unknown
	Key    string // "network.bridge"; empty where the file is no TOML
	Msg    string // what is wrong, and what to do
}

// Error is "file:line:column: key: message", without what is not known.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Line > 0 && e.Column > 0 {
		fmt.Fprintf(&b, ":%d", e.Column)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	if e.Key != "" {
		b.WriteString(e.Key + ": ")
	}
	b.WriteString(e.Msg)
	return b.String()
}

// place is where a value came from.
type place struct {
	file string
	line int
}

// wrong is the error about a value, at the place where it was set.
func (c *Config) wrong(key, format string, args ...any) error {
	at := c.origins[key]
	return &Error{File: at.file, Line: at.line, Key: key, Msg: fmt.Sprintf(format, args...)}
}
