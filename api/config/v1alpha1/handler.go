package v1alpha1

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Origin is the file and line where a key was set, as "FILE:LINE", or "a flag".
func (c *Config) Origin(key string) string {
	if p, ok := c.origins[key]; ok {
		return p.String()
	}
	return "a flag"
}

// CheckHandlerName says why a name can be none of a handler, or nil.
func CheckHandlerName(name string) error {
	if !dnsLabel.MatchString(name) {
		return fmt.Errorf("%q is no handler name: lower case letters, digits and -, up to 63", name)
	}
	return nil
}

// ParseHandlers reads the handlers in a file that has nothing else. Every mistake
// is in the error, as *Error values that errors.Join has joined.
func ParseHandlers(file string, data []byte) (map[string]Handler, error) {
	c := Default()
	if err := c.merge(file, data); err != nil {
		return nil, err
	}
	if err := c.checkHandlers(); err != nil {
		return nil, err
	}
	return c.Handlers, nil
}

// EditHandler changes keys of a handler in a file of ParseHandlers, which may be
// empty. A setting is KEY=VALUE: the value as in the file, where quotes around
// text may be left out; nothing behind the = takes the key out.
func EditHandler(data []byte, name string, settings []string) ([]byte, error) {
	file := struct {
		Handlers map[string]map[string]any `toml:"handlers"`
	}{}
	if err := toml.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	table := file.Handlers[name]
	if table == nil {
		table = map[string]any{}
	}
	for _, s := range settings {
		key, text, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q is no setting; want KEY=VALUE, as in path=/usr/bin/runc", s)
		}
		if err := set(table, strings.Split(key, "."), text); err != nil {
			return nil, fmt.Errorf("setting %q: %w", s, err)
		}
	}
	file.Handlers = map[string]map[string]any{name: table}
	return toml.Marshal(file)
}

// set changes one value in a table, by the names of the tables in it and its own.
func set(table map[string]any, path []string, text string) error {
	for ; len(path) > 1; path = path[1:] {
		below, ok := table[path[0]].(map[string]any)
		if !ok && table[path[0]] != nil {
			return errors.New(path[0] + " is no table")
		}
		if !ok {
			below = map[string]any{}
			table[path[0]] = below
		}
		table = below
	}
	if text == "" {
		delete(table, path[0])
		return nil
	}
	var value struct {
		V any `toml:"v"`
	}
	if toml.Unmarshal([]byte("v = "+text), &value) != nil {
		value.V = text
	}
	table[path[0]] = value.V
	return nil
}
