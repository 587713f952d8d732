package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/inroot"
	"fairlead.run/internal/installer/fault"
)

// Root is where the root directory of a node is seen.
type Root string

// Change is a file with the content that it was planned from, nil if it was not there,
// and the new one; nil takes it away.
type Change struct {
	Path      string
	Old, Data []byte
}

// Sum is the SHA-256 of a content, in hexadecimal.
func Sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// Parent is where a path of the node is seen from here, with the links above it
// followed; Real follows it as well, if it is a link.
func (r Root) Parent(path string) string { return inroot.JoinParent(string(r), path) }

// Real is where a path of the node leads, as seen from here.
func (r Root) Real(path string) string { return inroot.Join(string(r), path) }

// Read is the content of a file, nil if it is not there.
func (r Root) Read(path string) ([]byte, error) {
	data, err := os.ReadFile(r.Real(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && data == nil {
		data = []byte{}
	}
	return data, err
}

// replacing is the place between a whole new file and the one that it replaces.
var replacing = failpoint.Register("install.replacing")

// Put makes a change: it replaces a file, or takes it away, and returns when that outlasts
// a power cut. Nothing half written is ever where the runtime reads.
func (r Root) Put(c Change) error {
	path := r.Real(c.Path)
	if c.Data == nil {
		if err := r.remove(c, path); err != nil {
			return fmt.Errorf("remove %s: %w", c.Path, err)
		}
		return nil
	}
	if err := makeAll(filepath.Dir(path)); err != nil {
		return fmt.Errorf("write %s: %w", c.Path, err)
	}
	err := r.replace(c, path, beside(path))
	// The folder is a mount: what is above it is another one, or a container's own and not to be written to.
	if errors.Is(err, syscall.EXDEV) || errors.Is(err, syscall.EROFS) {
		err = r.replace(c, path, filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", c.Path, err)
	}
	return nil
}

// MkdirAll makes a folder and those above it that are not there, and returns when that
// outlasts a power cut.
func (r Root) MkdirAll(dir string) error {
	if err := makeAll(r.Real(dir)); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	return nil
}

func makeAll(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		if err := makeAll(filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o755)
	}
	if err != nil {
		return err
	}
	return flush(filepath.Dir(dir))
}

// remove takes a file away that is at path here.
func (r Root) remove(c Change, path string) error {
	err := r.unedited(c)
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := flush(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// replace writes a file into a folder, and moves it to its path.
func (r Root) replace(c Change, path, dir string) error {
	f, err := os.CreateTemp(dir, Temporary)
	if err != nil {
		return err
	}
	err = fill(f, path, c.Data)
	if err == nil {
		err = failpoint.Hit(replacing)
	}
	if err == nil {
		err = r.unedited(c)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return flush(filepath.Dir(path))
}

// unedited refuses to write over what somebody has written since the change was
// planned.
func (r Root) unedited(c Change) error {
	now, err := r.Read(c.Path)
	if err != nil {
		return err
	}
	if (now == nil) != (c.Old == nil) || !bytes.Equal(now, c.Old) {
		return fault.New(payload.Conflict, "somebody else has changed %s in this moment, and keeps that", c.Path)
	}
	return nil
}

// Missing are the folders above and at a path that are not there, the outer ones first.
func (r Root) Missing(dir string) ([]string, error) {
	var all []string
	for d := dir; d != "/"; d = filepath.Dir(d) {
		_, err := os.Lstat(r.Parent(d))
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look at %s: %w", d, err)
		}
		all = append([]string{d}, all...)
	}
	return all, nil
}

// Sweep removes temporary files that somebody who was killed has left where files of some
// paths were being written.
func (r Root) Sweep(paths []string) error {
	var left []string
	for _, path := range paths {
		at := r.Real(path)
		for _, dir := range []string{filepath.Dir(at), filepath.Dir(filepath.Dir(at))} {
			found, err := filepath.Glob(filepath.Join(dir, Temporary))
			if err != nil {
				return fmt.Errorf("look for leftovers in %s: %w", dir, err)
			}
			left = append(left, found...)
		}
	}
	for _, path := range left {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a leftover: %w", err)
		}
	}
	return nil
}

// Temporary is the pattern of names of files that are being written.
const Temporary = ".fairlead-tmp-*"

// beside is the folder in which a file is written: its own or, as a runtime may read
// every file that is in a folder of drop-ins, the one above. In such a folder are all
// files that have the installer's name.
func beside(path string) string {
	dir := filepath.Dir(path)
	if filepath.Ext(dir) == ".d" || strings.Contains(filepath.Base(path), "fairlead") {
		return filepath.Dir(dir)
	}
	return dir
}

// fill writes a new file with the mode and owner of the old one, flushes and
// closes it.
func fill(f *os.File, old string, data []byte) error {
	mode := fs.FileMode(0o644)
	info, err := os.Stat(old)
	if err == nil {
		mode = info.Mode().Perm()
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			err = f.Chown(int(st.Uid), int(st.Gid))
		}
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func flush(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
