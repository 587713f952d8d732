// Package shelf keeps what pods run on: for each revision of a runtime handler a
// folder with its definition and a copy of its program, so that a pod goes on
// with what it was started with when the handler is changed or removed.
//
// Which revisions are needed is for others to say. It runs nothing.
package shelf

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/pod"
)

var (
	copied  = failpoint.Register("handlers.copied")
	shelved = failpoint.Register("handlers.shelved")
	dropped = failpoint.Register("handlers.dropped")
)

const (
	recordFile = "revision.json"
	unmade     = ".new-" // folders that are not whole yet
)

// Revision is a handler as it was at one time.
type Revision struct {
	Handler string `json:"handler"`
	// ID is the beginning of a digest of definition and program, in hexadecimal.
	ID         string           `json:"id"`
	Definition v1alpha1.Handler `json:"definition"`
	// Source is the program that was found, Program what is run: a copy of that,
	// or itself where there can be none.
	Source  string `json:"source"`
	Program string `json:"program"`
	Digest  string `json:"digest"` // of the program, sha256 in hexadecimal
	File    File   `json:"file"`
	// Info is what was known of the revision when it worked last.
	Info pod.HandlerInfo `json:"info"`
	// Removed is when the handler was taken from new pods; zero while it is not.
	Removed time.Time `json:"removed,omitzero"`
}

// File changes with a program on the disk.
type File struct {
	Dev   uint64 `json:"dev"`
	Inode uint64 `json:"inode"`
	Size  int64  `json:"size"`
	MTime int64  `json:"mtime"` // in ns
	CTime int64  `json:"ctime"` // in ns
}

// Shelf is a folder of revisions, HANDLER/ID each.
type Shelf struct{ dir string }

// Open reads the folder. What cannot be read is in the error, and is kept.
func Open(dir string) (*Shelf, []Revision, error) {
	s := &Shelf{dir: dir}
	var out []Revision
	var failed []error
	files, _ := filepath.Glob(filepath.Join(dir, "*", "*", recordFile)) // an error is one of the pattern
	for _, file := range files {
		if strings.HasPrefix(filepath.Base(filepath.Dir(file)), unmade) {
			continue
		}
		data, err := os.ReadFile(file)
		var r Revision
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err == nil && s.folder(&r) != filepath.Dir(file) {
			err = fmt.Errorf("it is of handler %q and revision %q", r.Handler, r.ID)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("read the revision of a handler in %s: %w", file, err))
			continue
		}
		out = append(out, r)
	}
	return s, out, errors.Join(failed...)
}

// Tidy removes what an earlier process has left half made or half removed. It is
// for before the first Put.
func (s *Shelf) Tidy() error {
	left, _ := filepath.Glob(filepath.Join(s.dir, "*", unmade+"*"))
	var failed []error
	for _, path := range left {
		failed = append(failed, os.RemoveAll(path))
		_ = os.Remove(filepath.Dir(path)) // fails where there are others, which is fine
	}
	return errors.Join(failed...)
}

func (s *Shelf) folder(r *Revision) string { return filepath.Join(s.dir, r.Handler, r.ID) }

// Put returns the revision of a handler whose program is there now, and keeps it
// if it does not yet. known are the revisions that exist.
func (s *Shelf) Put(handler string, def v1alpha1.Handler, source string, known []Revision) (Revision, error) {
	r, err := s.put(handler, def, source, known)
	if err != nil {
		return Revision{}, fmt.Errorf("keep the program %s of handler %s in %s: %w", source, handler, s.dir, err)
	}
	return r, nil
}

func (s *Shelf) put(handler string, def v1alpha1.Handler, source string, known []Revision) (Revision, error) {
	src, err := os.Open(source)
	if err != nil {
		return Revision{}, err
	}
	defer func() { _ = src.Close() }()
	file, err := fileOf(src)
	if err != nil {
		return Revision{}, err
	}
	for _, k := range known {
		if k.Handler == handler && k.Source == source && k.File == file && reflect.DeepEqual(k.Definition, def) && exists(k.Program) {
			return k, nil
		}
	}
	parent := filepath.Join(s.dir, handler)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return Revision{}, err
	}
	tmp, err := os.MkdirTemp(parent, unmade)
	if err != nil {
		return Revision{}, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	r := Revision{Handler: handler, Definition: def, Source: source, File: file}
	name := filepath.Base(source)
	if r.Digest, err = copyProgram(src, filepath.Join(tmp, name)); err != nil {
		return Revision{}, err
	}
	if r.ID, err = idOf(&r); err != nil {
		return Revision{}, err
	}
	for _, k := range known {
		if k.Handler == handler && k.ID == r.ID && exists(k.Program) { // found in another file
			k.Source, k.File = source, file
			return k, s.Save(k)
		}
	}
	r.Program = filepath.Join(s.folder(&r), name)
	if !runsFromCopy(src, parent) {
		r.Program = source
		if err := os.Remove(filepath.Join(tmp, name)); err != nil {
			return Revision{}, err
		}
	}
	if err := failpoint.Hit(copied); err != nil {
		return Revision{}, err
	}
	return r, s.place(&r, tmp)
}

// place moves a folder that is whole to where it belongs. What is there cannot be
// read, or has no program, or it would have been known.
func (s *Shelf) place(r *Revision, tmp string) error {
	if err := write(tmp, r); err != nil {
		return err
	}
	if err := os.RemoveAll(s.folder(r)); err != nil {
		return err
	}
	if err := os.Rename(tmp, s.folder(r)); err != nil {
		return err
	}
	return failpoint.Hit(shelved)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Save writes what is known of a revision.
func (s *Shelf) Save(r Revision) error { return write(s.folder(&r), &r) }

func write(dir string, r *Revision) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, recordFile), data, 0o600)
}

// Drop removes a revision that nobody needs.
func (s *Shelf) Drop(r Revision) error {
	if r.Handler == "" || r.ID == "" || strings.ContainsRune(r.Handler+r.ID, '/') {
		return fmt.Errorf("remove revision %q of handler %q: it has no folder", r.ID, r.Handler)
	}
	// The record goes first: without it the rest is a folder that was never whole.
	gone := filepath.Join(s.dir, r.Handler, unmade+r.ID)
	if err := os.RemoveAll(gone); err != nil { // of an attempt that failed, before the revision was kept again
		return fmt.Errorf("remove revision %s of handler %s: %w", r.ID, r.Handler, err)
	}
	if err := os.Rename(s.folder(&r), gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove revision %s of handler %s: %w", r.ID, r.Handler, err)
	}
	if err := failpoint.Hit(dropped); err != nil {
		return err
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("remove revision %s of handler %s: %w", r.ID, r.Handler, err)
	}
	_ = os.Remove(filepath.Dir(gone)) // fails where there are others, which is fine
	return nil
}

func fileOf(f *os.File) (File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return File{}, os.NewSyscallError("fstat", err)
	}
	return File{Dev: st.Dev, Inode: st.Ino, Size: st.Size, MTime: st.Mtim.Nano(), CTime: st.Ctim.Nano()}, nil
}

// copyProgram copies and returns the digest of what was copied.
func copyProgram(src *os.File, to string) (digest string, err error) {
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(dst, sum), src)
	if err := errors.Join(err, dst.Chmod(0o755), dst.Close()); err != nil {
		return "", err
	}
	keepLabel(src.Name(), to)
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// keepLabel gives the copy the SELinux label of the original, which decides in
// which domain it runs. Without SELinux there is none.
func keepLabel(from, to string) {
	const label = "security.selinux"
	value := make([]byte, 256)
	if n, err := unix.Getxattr(from, label, value); err == nil {
		_ = unix.Setxattr(to, label, value[:n], 0) // refused where the policy says so
	}
}

func idOf(r *Revision) (string, error) {
	def, err := json.Marshal(r.Definition)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(def, r.Digest...))
	return hex.EncodeToString(sum[:8]), nil
}

// runsFromCopy says whether a copy of a program in dir would run as the program
// does. A script may look for others beside it, and nothing runs from a file
// system that is mounted noexec.
func runsFromCopy(src *os.File, dir string) bool {
	magic := make([]byte, 4)
	if _, err := src.ReadAt(magic, 0); err != nil || string(magic) != "\x7fELF" {
		return false
	}
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Flags&unix.ST_NOEXEC == 0
}
