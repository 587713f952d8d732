package v1alpha1

import (
	"fmt"
	"reflect"
	"strings"
)

// Flag is a command line flag that overrides a key of the files. It satisfies
// the Value interfaces of flag and of spf13/pflag.
type Flag struct {
	Name  string // without dashes
	Usage string
	key   string
	value string
	given bool
}

// Flags are the flags that the configuration has. A command registers each of
// them, parses its arguments, and passes all to Override after Load.
func Flags() []*Flag {
	var flags []*Flag
	defaults := reflect.ValueOf(Default()).Elem()
	walk(nil, defaults, func(key []string, f reflect.StructField, v reflect.Value) {
		if name := f.Tag.Get("flag"); name != "" {
			flags = append(flags, &Flag{
				Name:  name,
				Usage: usage(f),
				key:   strings.Join(key, "."),
				value: v.String(),
			})
		}
	})
	return flags
}

// usage is the first sentence of the key's description, as flags are described.
func usage(f reflect.StructField) string {
	text := strings.TrimSuffix(f.Tag.Get("doc"), ".")
	if zero := f.Tag.Get("zero"); zero != "" {
		text += " (default: " + zero + ")"
	}
	return strings.ToLower(text[:1]) + text[1:]
}

// String is the value, at first the default.
func (f *Flag) String() string {
	if f == nil {
		return ""
	}
	return f.value
}

// Set implements flag.Value.
func (f *Flag) Set(value string) error {
	f.value, f.given = value, true
	return nil
}

// Type implements pflag.Value.
func (f *Flag) Type() string { return "string" }

// Override puts the flags that were given over what the files say.
func (c *Config) Override(flags []*Flag) error {
	byKey := map[string]*Flag{}
	for _, f := range flags {
		if f.given {
			byKey[f.key] = f
		}
	}
	if c.origins == nil {
		c.origins = map[string]place{}
	}
	walk(nil, reflect.ValueOf(c).Elem(), func(key []string, _ reflect.StructField, v reflect.Value) {
		name := strings.Join(key, ".")
		f, given := byKey[name]
		if !given {
			return
		}
		v.SetString(f.value)
		c.origins[name] = place{file: "--" + f.Name}
		delete(byKey, name)
	})
	for key, f := range byKey {
		return fmt.Errorf("flag --%s: there is no key %s", f.Name, key)
	}
	return nil
}

// walk visits every key that is not itself a table, in the order of the structs.
func walk(key []string, v reflect.Value, visit func([]string, reflect.StructField, reflect.Value)) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Tag.Get("toml") == "" {
			continue
		}
		name := append(append([]string(nil), key...), f.Tag.Get("toml"))
		if isTable(f.Type) {
			walk(name, v.Field(i), visit)
			continue
		}
		visit(name, f, v.Field(i))
	}
}
