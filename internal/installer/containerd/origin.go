package containerd

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/tomledit"
)

// originMark comes before the path and the checksum of what a main file was made of.
const originMark = "# Below is "

// adopt makes the main file of the origin, in memory.
func (c *Config) adopt() (*file, error) {
	f, err := c.read(c.Origin)
	if err != nil {
		return nil, err
	}
	imports, _ := f.doc.Get("imports").([]any)
	for _, v := range imports {
		if p, _ := v.(string); !filepath.IsAbs(p) {
			return nil, fault.New(payload.UnsupportedNode, "%s, with which containerd is started, is read-only and imports %q, which would be another file in %s; start containerd with a configuration that can be written", c.Origin, p, filepath.Dir(c.Main))
		}
	}
	sum := sha256.Sum256(f.data)
	f.data = slices.Concat([]byte(madeHere+originMark+c.Origin+" as it was, of SHA-256 "+hex.EncodeToString(sum[:])+"\n"), f.data)
	f.path = c.Main
	if f.doc, err = tomledit.Parse(c.Main, f.data); err != nil {
		return nil, fault.New(payload.UnsupportedNode, "read containerd's configuration: %w", err)
	}
	c.fresh = true
	return f, nil
}

// adopted says whether a main file was made of an origin.
func adopted(data []byte) bool { return strings.HasPrefix(string(data), madeHere+originMark) }

// pristine says whether a main file has nothing in it but what was written when it was
// made.
func pristine(data []byte) bool {
	rest, ok := strings.CutPrefix(string(data), madeHere)
	if !ok {
		return false
	}
	line, body, _ := strings.Cut(rest, "\n")
	if !strings.HasPrefix(line, originMark) {
		return rest == "version = 2\n" || rest == "version = 3\n"
	}
	sum := sha256.Sum256([]byte(body))
	return strings.HasSuffix(line, " "+hex.EncodeToString(sum[:]))
}

// started adds to changes what has systemd start containerd with the main file, if that
// was made of an origin, and what takes that back with it.
func (c *Config) started(w Want, changes []Change) ([]Change, error) {
	if c.Starter == "" {
		return changes, nil
	}
	now := []byte(nil)
	if m := c.main(); m != nil {
		now = m.data
	}
	at := slices.IndexFunc(changes, func(x Change) bool { return x.Path == c.Main })
	if at >= 0 {
		now = changes[at].Data
	} else if c.fresh && len(w.Handlers) > 0 {
		changes = append(changes, Change{Path: c.Main, Data: now})
	}
	have, err := c.bytes(c.Starter)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ours := strings.HasPrefix(string(have), starterHead)
	switch {
	case len(w.Handlers) == 0 && at >= 0 && now == nil && ours:
		// Before the file goes nothing must name it: containerd would not start.
		return append([]Change{{Path: c.Starter}}, changes...), nil
	case len(w.Handlers) == 0 || !adopted(now):
		return changes, nil
	case have != nil && !ours:
		return nil, fault.New(payload.Conflict, "%s is somebody else's; take it away, or start containerd with %s", c.Starter, c.Main)
	case c.Start == nil && have == nil:
		return nil, fault.New(payload.UnsupportedNode, "it cannot be seen how containerd is started, so that it cannot be started with %s; use the host's PID namespace", c.Main)
	case c.Start == nil || string(have) == string(c.Start):
		return changes, nil
	}
	return append(changes, Change{Path: c.Starter, Data: c.Start}), nil
}

// starterHead is how a file of systemd's begins that was written here.
const starterHead = "# Written by fairlead install; what is changed here is put back.\n"

// Starter is the file by which systemd starts a daemon with some command line.
func Starter(args []string) ([]byte, error) {
	words := make([]string, len(args))
	for i, a := range args {
		if strings.ContainsFunc(a, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return nil, fmt.Errorf("write a command line for systemd: %q has a control character", a)
		}
		a = strings.NewReplacer("%", "%%", "$", "$$").Replace(a)
		if a == "" || strings.ContainsAny(a, " \"'\\;") {
			a = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(a) + `"`
		}
		words[i] = a
	}
	return []byte(starterHead + "[Service]\nExecStart=\nExecStart=" + strings.Join(words, " ") + "\n"), nil
}
