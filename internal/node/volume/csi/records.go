package csi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"fairlead.run/internal/atomicfile"
)

// record is what has to be known to undo Publish. It is beside the target, and is
// written before the driver is called.
type record struct {
	Driver string `json:"driver"`
	Handle string `json:"handle"`
	Inline bool   `json:"inline,omitempty"`
	// Attached says that others have to attach the volume first, and not to detach it
	// as long as there is this record.
	Attached bool `json:"attached,omitempty"`
	Staged   bool `json:"staged,omitempty"`
	Begun    bool `json:"begun,omitempty"` // the driver was asked to mount it
	Done     bool `json:"done,omitempty"`  // it was published once
	// Size is how large it is on this node, as it was noted last; 0 if nobody has.
	Size int64 `json:"size,omitempty"`
}

const recordName = "volume.json"

func recordFile(target string) string { return filepath.Join(filepath.Dir(target), recordName) }

func readRecord(target string) (record, error) {
	var r record
	data, err := os.ReadFile(recordFile(target))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("read %s: %w", recordFile(target), err)
	}
	return r, nil
}

// Load reads what an agent before this one has recorded. It is for before the first
// Publish. An error is about records that cannot be read; the others count.
func (c *Client) Load() error {
	files, err := filepath.Glob(filepath.Join(c.cfg.Pods, "*", "volumes", "kubernetes.io~csi", "*", recordName))
	if err != nil {
		return fmt.Errorf("look for volumes of CSI drivers: %w", err)
	}
	var errs []error
	for _, file := range files {
		target := filepath.Join(filepath.Dir(file), "mount")
		r, err := readRecord(target)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c.mu.Lock()
		c.records[target] = r
		c.mu.Unlock()
	}
	return errors.Join(errs...)
}

// ID names a volume.
type ID struct{ Driver, Handle string }

// Attached are the volumes that must not be detached from this node: those that are
// mounted, and those that are about to be.
func (c *Client) Attached() []ID {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[ID]bool{}
	for _, r := range c.records {
		if r.Attached {
			all[ID{r.Driver, r.Handle}] = true
		}
	}
	out := make([]ID, 0, len(all))
	for id := range all {
		out = append(out, id)
	}
	slices.SortFunc(out, func(a, b ID) int { return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Handle, b.Handle)) })
	return out
}

// write records a volume, unless that is done.
func (c *Client) write(target string, r record) error {
	was, err := readRecord(target)
	if err != nil || was != r {
		if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
			return err
		}
		data, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if err := atomicfile.Write(recordFile(target), data, 0o600); err != nil {
			return err
		}
	}
	c.mu.Lock()
	had := c.records[target]
	c.records[target] = r
	c.mu.Unlock()
	if had.Attached != r.Attached {
		c.cfg.Changed()
	}
	return nil
}

// Size is how large what is mounted was, in bytes, as it was noted last; 0 if nobody has since
// it was mounted.
func (c *Client) Size(target string) int64 {
	r, err := readRecord(target)
	if err != nil {
		return 0
	}
	return r.Size
}

// NoteSize notes how large what is mounted is.
func (c *Client) NoteSize(target string, size int64) error {
	r, err := readRecord(target)
	if err == nil {
		r.Size = size
		err = c.write(target, r)
	}
	if err != nil {
		return fmt.Errorf("note the size of volume %s: %w", r.Handle, err)
	}
	return nil
}

// forget removes the record of a volume that is mounted nowhere any more.
func (c *Client) forget(target string) error {
	if err := os.Remove(recordFile(target)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c.mu.Lock()
	had := c.records[target]
	delete(c.records, target)
	c.mu.Unlock()
	if had.Attached {
		c.cfg.Changed()
	}
	return nil
}
