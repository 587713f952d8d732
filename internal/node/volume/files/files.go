// Package files makes files the content of a volume, all at once: whoever reads them sees
// those of one version. Where they come from is not its concern.
package files

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// File is one file of a volume.
type File struct {
	Data []byte
	Mode os.FileMode
	User *int64 // nil for root
}

// Folder is a volume. It may be missing before Publish.
type Folder struct {
	Path  string
	Group *int64 // that may read what the owners of files may; nil for none
	// Places are names at which containers have something else mounted. What MakePlace has
	// made there stays: a folder that is deleted takes the mounts on it with it.
	Places map[string]bool
}

// The names of the documented layout. A version of the files is a folder whose
// name begins with ".."; dataLink names the one that is valid, and what a
// container opens are links through it, one for the first step of each path.
//
//	volume/..2026_11_24_10_00_00.1234/key
//	volume/..data -> ..2026_11_24_10_00_00.1234
//	volume/key -> ..data/key
const (
	dataLink = "..data"
	nextLink = "..data_tmp"
	linkTemp = "..link_tmp"
	reserved = ".."
)

// MakePlace makes a folder or an empty file in a volume, to mount something else on. Below the
// volume's own files there is nothing to make: each version of them is another folder.
func MakePlace(volume, path string, dir bool) error {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	first, _, _ := strings.Cut(path, "/")
	if info, err := root.Lstat(first); strings.HasPrefix(first, reserved) || err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	if dir {
		return root.MkdirAll(path, 0o755)
	}
	if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// version is one set of files on its way to be what a volume shows.
type version struct {
	Folder
	root  *os.Root
	files map[string]File // by their paths
	fresh string          // name of its folder
}

// Filled says whether files were ever published there.
func (f Folder) Filled() bool {
	_, err := os.Stat(filepath.Join(f.Path, dataLink))
	return err == nil
}

// Publish makes files, by their clean paths, the content of the volume, all at once. What is
// there already is not written again. It may be interrupted after any of its steps: a container
// sees the old files or the new ones, and the next call ends what was begun.
func (f Folder) Publish(files map[string]File) (changed bool, err error) {
	if err := os.MkdirAll(f.Path, 0o755); err != nil {
		return false, err
	}
	root, err := os.OpenRoot(f.Path)
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }()
	v := &version{Folder: f, root: root, files: files}
	steps := v.steps()
	if same, err := v.same(); err != nil {
		return false, fmt.Errorf("compare with what is there: %w", err)
	} else if same {
		steps = steps[len(steps)-3:] // only what an interruption may have left
	} else {
		changed = true
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return false, fmt.Errorf("write files: %w", err)
		}
	}
	return changed, nil
}

// steps are what publish does, in order. Each leaves a volume that can be used.
func (v *version) steps() []func() error {
	return []func() error{v.stage, v.point, v.swap, v.link, v.unlink, v.sweep}
}

// stage writes the files where nobody looks, with their owners and modes. If that
// fails it leaves nothing: there may be no room, and it is tried again.
func (v *version) stage() (err error) {
	defer func() {
		if err != nil && v.fresh != "" {
			err = errors.Join(err, v.root.RemoveAll(v.fresh))
		}
	}()
	if err := v.own(".", 0o755, nil); err != nil {
		return err
	}
	name, err := os.MkdirTemp(v.Path, time.Now().UTC().Format(reserved+"2006_01_02_15_04_05."))
	if err != nil {
		return err
	}
	v.fresh = filepath.Base(name)
	if err := v.own(v.fresh, 0o755, nil); err != nil {
		return err
	}
	for name, f := range v.files {
		if err := v.write(filepath.Join(v.fresh, name), f); err != nil {
			return err
		}
	}
	return nil
}

func (v *version) write(name string, f File) error {
	dir := v.fresh
	for step := range strings.SplitSeq(filepath.Dir(strings.TrimPrefix(name, v.fresh+"/")), "/") {
		if step == "." {
			continue
		}
		dir = filepath.Join(dir, step)
		if err := v.root.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := v.own(dir, 0o755, nil); err != nil {
			return err
		}
	}
	if err := v.root.WriteFile(name, f.Data, 0o600); err != nil {
		return err
	}
	return v.own(name, v.modeOf(f), f.User)
}

// modeOf is the mode of a file. The pod's group may read what its owner may.
func (v *version) modeOf(f File) os.FileMode {
	if v.Group != nil {
		return f.Mode | 0o440
	}
	return f.Mode
}

func (v *version) own(name string, mode os.FileMode, user *int64) error {
	uid, gid := -1, -1
	if user != nil {
		uid = int(*user)
	}
	if v.Group != nil {
		gid = int(*v.Group)
	}
	if uid >= 0 || gid >= 0 {
		if err := v.root.Lchown(name, uid, gid); err != nil {
			return err
		}
	}
	if info, err := v.root.Lstat(name); err == nil && info.IsDir() && gid >= 0 {
		mode |= os.ModeSetgid
	}
	return v.root.Chmod(name, mode)
}

// point makes the link that is to take the place of the valid one.
func (v *version) point() error { return v.symlink(v.fresh, nextLink) }

func (v *version) symlink(to, name string) error {
	if err := v.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return v.root.Symlink(to, name)
}

// swap makes the new version the valid one.
func (v *version) swap() error { return v.root.Rename(nextLink, dataLink) }

// tops are the first steps of all paths.
func (v *version) tops() map[string]bool {
	out := map[string]bool{}
	for name := range v.files {
		first, _, _ := strings.Cut(name, "/")
		out[first] = true
	}
	return out
}

// link adds the links that are missing.
func (v *version) link() error {
	for name := range v.tops() {
		to := filepath.Join(dataLink, name)
		if is, err := v.root.Readlink(name); err == nil && is == to || v.isPlace(name) {
			continue
		}
		if err := v.symlink(to, linkTemp); err != nil {
			return err
		}
		if info, err := v.root.Lstat(name); err == nil && info.IsDir() {
			if err := v.root.RemoveAll(name); err != nil {
				return err
			}
		}
		if err := v.root.Rename(linkTemp, name); err != nil {
			return err
		}
	}
	return nil
}

// isPlace says whether something was made there that others are mounted on.
func (v *version) isPlace(name string) bool {
	if !v.Places[name] {
		return false
	}
	info, err := v.root.Lstat(name)
	return err == nil && info.Mode()&fs.ModeSymlink == 0
}

// unlink takes away links whose files are gone.
func (v *version) unlink() error {
	tops := v.tops()
	return v.each(func(name string) error {
		if strings.HasPrefix(name, reserved) || tops[name] || v.isPlace(name) {
			return nil
		}
		return v.root.RemoveAll(name)
	})
}

// sweep deletes every other version.
func (v *version) sweep() error {
	valid, err := v.root.Readlink(dataLink)
	if err != nil {
		return err
	}
	return v.each(func(name string) error {
		if !strings.HasPrefix(name, reserved) || name == dataLink || name == valid {
			return nil
		}
		return v.root.RemoveAll(name)
	})
}

func (v *version) each(do func(name string) error) error {
	entries, err := fs.ReadDir(v.root.FS(), ".")
	for _, e := range entries {
		err = errors.Join(err, do(e.Name()))
	}
	return err
}

// same says whether the valid version has exactly these files. What an earlier
// release wrote without versions is never the same.
func (v *version) same() (bool, error) {
	valid, err := v.root.Readlink(dataLink)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	found := 0
	err = fs.WalkDir(v.root.FS(), valid, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, ok := v.files[strings.TrimPrefix(path, valid+"/")]
		if !ok {
			return errDiffers
		}
		found++
		return v.compare(path, f)
	})
	switch {
	case errors.Is(err, errDiffers), errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	return found == len(v.files), nil
}

var errDiffers = errors.New("it is not the same")

func (v *version) compare(path string, f File) error {
	info, err := v.root.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode() != v.modeOf(f) || info.Size() != int64(len(f.Data)) || !ownedBy(info, f.User, v.Group) {
		return errDiffers
	}
	data, err := v.root.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.Equal(data, f.Data) {
		return errDiffers
	}
	return nil
}

// ownedBy compares the owner of a file; a group of nil is not looked at.
func ownedBy(info fs.FileInfo, user, group *int64) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	uid := int64(os.Geteuid())
	if user != nil {
		uid = *user
	}
	return int64(st.Uid) == uid && (group == nil || int64(st.Gid) == *group)
}
