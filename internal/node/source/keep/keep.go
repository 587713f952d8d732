// Package keep holds the last good version of manifests on disk, so that a source
// which is broken when the agent starts anew is not taken for an empty one.
package keep

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"fairlead.run/internal/atomicfile"
)

// Folder is where copies are kept. They may hold Secrets, so that nobody else can
// read them. The empty Folder keeps nothing.
type Folder string

// Copy is one manifest as it was when it was good.
type Copy struct {
	Name string `json:"name"` // as its source knows it
	Data []byte `json:"data"`
	Tag  string `json:"tag,omitempty"` // the ETag of an address
}

const suffix = ".manifest"

func (f Folder) path(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(string(f), hex.EncodeToString(sum[:16])+suffix)
}

// Save keeps a copy in place of an earlier one of its name.
func (f Folder) Save(c Copy) error {
	if f == "" {
		return nil
	}
	err := os.MkdirAll(string(f), 0o700)
	if err == nil {
		var text []byte
		if text, err = json.Marshal(c); err == nil {
			err = atomicfile.WriteSync(f.path(c.Name), text, 0o600)
		}
	}
	if err != nil {
		return fmt.Errorf("keep manifest %s: %w", c.Name, err)
	}
	return nil
}

// Remove forgets the copy of a name.
func (f Folder) Remove(name string) error {
	if f == "" {
		return nil
	}
	if err := os.Remove(f.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget manifest %s: %w", name, err)
	}
	return nil
}

// Load returns all copies. The error joins what is wrong with single ones, which
// are left out.
func (f Folder) Load() ([]Copy, error) {
	if f == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("load kept manifests: %w", err)
	}
	var out []Copy
	var wrong []error
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		c, err := f.load(e.Name())
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		out = append(out, c)
	}
	return out, errors.Join(wrong...)
}

func (f Folder) load(file string) (Copy, error) {
	path := filepath.Join(string(f), file)
	text, err := os.ReadFile(path)
	if err != nil {
		return Copy{}, fmt.Errorf("load kept manifest: %w", err)
	}
	var c Copy
	if err := json.Unmarshal(text, &c); err != nil {
		return Copy{}, fmt.Errorf("load kept manifest %s: %w", path, err)
	}
	if filepath.Base(f.path(c.Name)) != file {
		return Copy{}, fmt.Errorf("load kept manifest %s: it holds %q, which is kept elsewhere", path, c.Name)
	}
	return c, nil
}
