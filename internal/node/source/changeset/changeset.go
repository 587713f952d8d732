// Package changeset changes several files of a folder together: all of them or none, also
// where the disk is full, and where the process or the machine ends in the middle. Whoever
// reads the folder while it has the lock sees the files before or after, and nothing in
// between. Others are not kept out.
//
// What is to be is written beside the files first, under names that sources of manifests
// pass over; then the files change places by renames, which need no room. What was before
// has another link until all are done. So there is a record of the change for as long as it
// is half done, and who has the lock next puts the files back.
package changeset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/failpoint"
)

var (
	begun     = failpoint.Register("changeset.begun")
	half      = failpoint.Register("changeset.half")
	performed = failpoint.Register("changeset.performed")
	over      = failpoint.Register("changeset.over")
)

// Names in the folder. Where there is a record the files are half changed.
const (
	draft  = ".change.new" // a record that is being written; nothing has changed yet
	record = ".change"
	spent  = ".change.old" // a record of what is done, or put back
)

// What a record has of a file begins with one of these and ends in the file's name.
const (
	next = "next."
	old  = "old."  // what was before
	none = "none." // there was nothing before
)

// Folder is one whose files change together. Those who change and those who read have to
// share it.
type Folder struct {
	path    string
	lock    chan struct{}
	changed []string // since somebody has asked; whoever has the lock uses it
}

// New is the folder at a path, which does not need to be there yet.
func New(path string) *Folder { return &Folder{path: path, lock: make(chan struct{}, 1)} }

// Change is what becomes of one file.
type Change struct {
	Name   string // without a folder
	Data   []byte
	Remove bool // it goes, and Data does not count
}

// Error is why nothing was changed, unless Undo says that it was.
type Error struct {
	Name string // of the file that could not be changed; empty for none in particular
	Err  error
	Undo error // why files that had changed were not put back yet
}

// Error says which file it is, and what became of the others.
func (e *Error) Error() string {
	text := e.Err.Error()
	if e.Name != "" {
		text = e.Name + ": " + text
	}
	if e.Undo != nil {
		text += "; " + e.Undo.Error()
	}
	return text
}

// Unwrap gives both causes.
func (e *Error) Unwrap() []error { return []error{e.Err, e.Undo} }

// Held is a folder that the caller has for itself.
type Held struct{ f *Folder }

// Lock waits until nobody else has the folder. What was left half changed is put back; the
// error says that this was not possible, or is that of ctx.
func (f *Folder) Lock(ctx context.Context) (Held, error) {
	select {
	case f.lock <- struct{}{}:
	case <-ctx.Done():
		return Held{}, ctx.Err()
	}
	if err := f.putBack(); err != nil {
		<-f.lock
		return Held{}, err
	}
	return Held{f}, nil
}

// Release lets others have it.
func (h Held) Release() { <-h.f.lock }

// Changed are the files that were changed since it was asked before. One who reads does not
// need to wait for events of them, nor to find out whether somebody still writes to them.
func (h Held) Changed() []string {
	names := h.f.changed
	h.f.changed = nil
	return names
}

// Change changes files, all or none. The error is an *Error. The folder has to be there.
func (h Held) Change(list ...Change) error {
	err := h.f.change(list)
	if err == nil {
		for _, c := range list {
			h.f.changed = append(h.f.changed, c.Name)
		}
	}
	return err
}

func (f *Folder) change(list []Change) error {
	switch len(list) {
	case 0:
		return nil
	case 1: // which nobody sees half done
		if err := f.changeOne(list[0]); err != nil {
			return &Error{Name: list[0].Name, Err: err}
		}
		return nil
	}
	if err := f.begin(list); err != nil {
		return err
	}
	return f.perform(list)
}

func (f *Folder) changeOne(c Change) error {
	if err := c.check(); err != nil {
		return err
	}
	if !c.Remove {
		return atomicfile.WriteSync(f.at(c.Name), c.Data, 0o600)
	}
	if err := os.Remove(f.at(c.Name)); err != nil {
		return atomicfile.Cause(err)
	}
	return f.flush("")
}

// begin writes the record. Until there is one nothing has changed.
func (f *Folder) begin(list []Change) (err error) {
	defer func() {
		if err != nil {
			_ = f.sweep() // or who has the lock next does
		}
	}()
	err = f.sweep()
	if err == nil {
		err = os.Mkdir(f.at(draft), 0o700)
	}
	if err != nil {
		return &Error{Err: err}
	}
	for _, c := range list {
		if err := f.note(c); err != nil {
			return &Error{Name: c.Name, Err: atomicfile.Cause(err)}
		}
	}
	err = f.flush(draft)
	if err == nil {
		err = os.Rename(f.at(draft), f.at(record))
	}
	if err != nil {
		return &Error{Err: err}
	}
	if err := f.flush(""); err != nil {
		return &Error{Err: err, Undo: f.putBack()}
	}
	return nil
}

// note puts one change into the draft.
func (f *Folder) note(c Change) error {
	if err := c.check(); err != nil {
		return err
	}
	file := f.at(c.Name)
	switch is, err := os.Lstat(file); {
	case errors.Is(err, fs.ErrNotExist) && !c.Remove:
		if err := write(f.at(draft, none+c.Name), nil); err != nil {
			return err
		}
	case err != nil:
		return err
	case is.IsDir():
		return errors.New("is a folder")
	default:
		if err := keep(file, f.at(draft, old+c.Name)); err != nil {
			return err
		}
	}
	if c.Remove {
		return nil
	}
	return write(f.at(draft, next+c.Name), c.Data)
}

// perform does what there is a record of.
func (f *Folder) perform(list []Change) error {
	err := failpoint.Hit(begun)
	for n, c := range list {
		if err == nil && n == 1 {
			err = failpoint.Hit(half)
		}
		switch {
		case err != nil:
		case c.Remove:
			err = os.Remove(f.at(c.Name))
		default:
			err = os.Rename(f.at(record, next+c.Name), f.at(c.Name))
		}
		if err != nil {
			return &Error{Name: c.Name, Err: atomicfile.Cause(err), Undo: f.putBack()}
		}
	}
	err = errors.Join(f.flush(""), failpoint.Hit(performed))
	if err == nil {
		err = f.spend()
	}
	if err != nil {
		return &Error{Err: err, Undo: f.putBack()}
	}
	_ = failpoint.Hit(over) // it has happened, whatever comes
	_ = f.sweep()           // or who has the lock next does
	return nil
}

// spend makes a record one of what is over.
func (f *Folder) spend() error {
	if err := os.Rename(f.at(record), f.at(spent)); err != nil {
		return err
	}
	return f.flush("")
}

// putBack has the files as they were before a change that is half done, and removes what is
// left of others. It may be cut off as well, and begin anew.
func (f *Folder) putBack() error {
	_ = f.sweep() // who only reads can do without, as in a folder that nobody can write to
	entries, err := os.ReadDir(f.at(record))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), old); ok {
			errs = append(errs, os.Rename(f.at(record, e.Name()), f.at(name)))
		}
		if name, ok := strings.CutPrefix(e.Name(), none); ok {
			if err := os.Remove(f.at(name)); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	err = errors.Join(errs...)
	if err == nil {
		err = f.flush("")
	}
	if err == nil {
		err = f.spend()
	}
	if err != nil {
		return fmt.Errorf("put back the files of a change that failed or was cut off (%s has what they were; remove it to leave them as they are now): %w", f.at(record), err)
	}
	_ = f.sweep()
	return nil
}

// sweep removes what is left of changes that have not begun, or are over.
func (f *Folder) sweep() error {
	return errors.Join(os.RemoveAll(f.at(draft)), os.RemoveAll(f.at(spent)))
}

func (f *Folder) at(names ...string) string {
	return filepath.Join(append([]string{f.path}, names...)...)
}

// flush has the names in a folder outlive a power cut.
func (f *Folder) flush(name string) error {
	dir, err := os.Open(f.at(name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (c Change) check() error {
	if c.Name == "" || c.Name != filepath.Base(c.Name) || strings.HasPrefix(c.Name, ".") {
		return fmt.Errorf("%q is no name of a file that could be changed", c.Name)
	}
	return nil
}

// keep has a file under another name, too, for as long as that is needed.
func keep(file, as string) error {
	if os.Link(file, as) == nil {
		return nil
	}
	data, err := os.ReadFile(file) // where there are no links
	if err != nil {
		return err
	}
	return write(as, data)
}

// write makes a file that outlives a power cut, once its folder is flushed.
func write(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}
