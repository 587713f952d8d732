package containerd

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/tomledit"
)

// overridden says which file has the last word on what our file says of a handler:
// containerd merges its files, and the later one counts, key by key. No restart would get
// these handlers served as they are to be.
func (c *Config) overridden(w Want, own string) error {
	for _, f := range c.after(own) {
		for _, h := range w.Handlers {
			doc, err := tomledit.Parse(own, []byte(render(f.version, []Handler{h})))
			if err != nil {
				return fmt.Errorf("render handler %s: %w", h.Name, err)
			}
			at := runtimes(f.version, h.Name)
			if key, says := differs(f.doc.Table(at...), doc.Table(at...)); key != nil {
				return fault.New(payload.Conflict, "%s:%d: %s of handler %s is %v there, which containerd reads after %s, and takes; take it out there, or leave the handler out of the payload",
					f.path, f.doc.Line(append(at, key...)...), tomledit.Path(key...), h.Name, says, own)
			}
		}
	}
	return nil
}

// after are the files that are read after one, which may not be there yet.
func (c *Config) after(own string) []*file {
	if i := slices.IndexFunc(c.files, func(f *file) bool { return f.path == own }); i >= 0 {
		return c.files[i+1:]
	}
	return slices.DeleteFunc(slices.Clone(c.files), func(f *file) bool {
		return filepath.Dir(f.path) != filepath.Dir(own) || f.path < own
	})
}

// differs is the first key of a table that ours has with another value, and that value.
// One that is empty counts as well: containerd's merging takes "" and false for values.
func differs(theirs, ours map[string]any) (key []string, value any) {
	names := make([]string, 0, len(theirs))
	for name := range theirs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		is, has := theirs[name], ours[name]
		if table, ok := is.(map[string]any); ok {
			below, _ := has.(map[string]any)
			if key, value = differs(table, below); key != nil {
				return append([]string{name}, key...), value
			}
			continue
		}
		if has == nil || reflect.DeepEqual(is, has) {
			continue
		}
		if text, ok := is.(string); ok {
			is = strconv.Quote(text)
		}
		return []string{name}, is
	}
	return nil, nil
}

// Remaining says which file would have a handler served that is taken out: one of somebody
// else, who has a handler of that name, or adds to ours.
func (c *Config) Remaining(d Daemon, w Want) error {
	if d.Major < 2 || c.Generated || c.DropIns != "" {
		return nil // of one file alone the handlers count, or files are made anew before a start
	}
	if _, err := c.cleared(d, w); err != nil {
		return err
	}
	for _, f := range c.files {
		if filepath.Base(f.path) == ownName(w.Type) {
			continue
		}
		for _, name := range w.Owned {
			if at := runtimes(f.version, name); f.doc.Get(at...) != nil {
				return fault.New(payload.Conflict, "%s:%d: handler %s is there as well, so that it would be served after it was taken out; take it out there first", f.path, f.doc.Line(at...), name)
			}
		}
	}
	return nil
}
