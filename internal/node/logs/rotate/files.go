package rotate

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/logs"
)

// rotate makes place for a new log. What fails on the way to it is told and
// does not keep the log growing.
func (r *Rotator) rotate(ctx context.Context, c Container) error {
	if _, err := os.Lstat(c.Path); errors.Is(err, fs.ErrNotExist) {
		return r.reopen(ctx, c.ID)
	}
	old, err := tidy(ctx, c.Path, r.cfg.Files-2)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, r.change(ctx, c, old))
}

// tidy removes what was left unfinished and what is too old, and compresses the
// rest. It returns the stamp of the newest.
func tidy(ctx context.Context, path string, keep int) (newest string, err error) {
	if err := removeLeft(path); err != nil {
		return "", err
	}
	list, err := logs.ListRotated(path)
	if err != nil {
		return "", err
	}
	if len(list) > 0 {
		newest = list[len(list)-1].Stamp
	}
	var errs []error
	for len(list) > keep {
		errs = append(errs, remove(list[0].Path), remove(list[0].Path+logs.Compressed))
		list = list[1:]
	}
	for _, f := range list {
		if f.Compressed {
			continue
		}
		if err := compress(ctx, f.Path); err != nil {
			errs = append(errs, err)
		}
	}
	return newest, errors.Join(errs...)
}

// removeLeft removes what compressions have left that were cut off.
func removeLeft(path string) error {
	left, err := siblings(path)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range left {
		if strings.HasSuffix(name, logs.Unfinished) {
			errs = append(errs, remove(name))
		}
	}
	return errors.Join(errs...)
}

// siblings are the files in a log's folder that belong to it, itself not
// included.
func siblings(path string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the files of log %s: %w", path, err)
	}
	var out []string
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), filepath.Base(path)+".")
		stamp, _, _ := strings.Cut(rest, ".")
		if _, err := time.Parse(logs.Stamp, stamp); ok && err == nil {
			out = append(out, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	return out, nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a log: %w", err)
	}
	return nil
}

// compress puts a compressed file in the place of one. A process that is killed
// in between leaves the one, or both.
func compress(ctx context.Context, path string) (err error) {
	from, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("compress a log: %w", err)
	}
	defer func() { _ = from.Close() }()
	info, err := from.Stat()
	if err != nil {
		return fmt.Errorf("compress a log: %w", err)
	}
	unfinished := path + logs.Unfinished
	to, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, info.Mode().Perm())
	if err != nil {
		return fmt.Errorf("compress a log: %w", err)
	}
	z := gzip.NewWriter(to)
	_, err = io.Copy(z, until(ctx, from))
	err = errors.Join(err, z.Close(), to.Close())
	if err == nil {
		err = os.Chtimes(unfinished, info.ModTime(), info.ModTime())
	}
	if err == nil {
		err = os.Rename(unfinished, path+logs.Compressed)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("compress log %s: %w", path, err), remove(unfinished))
	}
	return remove(path)
}

// reader ends a copy with a context.
type reader func([]byte) (int, error)

func (r reader) Read(p []byte) (int, error) { return r(p) }

func until(ctx context.Context, from io.Reader) reader {
	return func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return from.Read(p)
	}
}

// change renames the log and has the runtime open a new one. If it does not,
// the log gets its name back, unless the runtime has opened a new one in spite
// of what it said.
func (r *Rotator) change(ctx context.Context, c Container, before string) error {
	stamp := time.Now().UTC()
	// Names sort as times, also where a clock has jumped or was another zone's.
	if last, err := time.Parse(logs.Stamp, before); err == nil && !stamp.Truncate(time.Second).After(last) {
		stamp = last.Add(time.Second)
	}
	away := c.Path + "." + stamp.Format(logs.Stamp)
	if err := rename(c.Path, away); err != nil {
		return fmt.Errorf("rename a log: %w", err)
	}
	err := r.reopen(ctx, c.ID)
	if err == nil {
		return nil
	}
	if back := rename(away, c.Path); back != nil && !errors.Is(back, fs.ErrExist) {
		return errors.Join(err, fmt.Errorf("give log %s its name back: %w", away, back))
	}
	return err
}

func (r *Rotator) reopen(ctx context.Context, id string) error {
	// A rotation that was begun comes to its end.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reopenLimit)
	defer cancel()
	if _, err := r.cfg.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		return fmt.Errorf("have the runtime open a new log: %w", err)
	}
	return nil
}

// rename replaces nothing.
func rename(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		// The file system cannot, as NFS.
		if _, err := os.Lstat(to); err == nil {
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: fs.ErrExist}
		}
		return os.Rename(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// Remove removes a log with all that was rotated away from it.
func Remove(path string) error {
	left, err := siblings(path)
	errs := []error{err, remove(path)}
	for _, name := range left {
		errs = append(errs, remove(name))
	}
	return errors.Join(errs...)
}

// RemoveBefore removes the logs of a container's attempts before that one with all that
// was rotated away from them: the files NUMBER.log in its folder.
func RemoveBefore(dir string, attempt uint32) error {
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, f := range files {
		if n, is := attemptOf(f.Name()); is && n < attempt {
			errs = append(errs, remove(filepath.Join(dir, f.Name())))
		}
	}
	return errors.Join(errs...)
}

// Next is the number of the first attempt that has no log in a container's folder, nor one
// after it. What cannot be read has none.
func Next(dir string) uint32 {
	files, _ := os.ReadDir(dir)
	next := uint32(0)
	for _, f := range files {
		if n, is := attemptOf(f.Name()); is && n < 1<<31 {
			next = max(next, n+1)
		}
	}
	return next
}

// attemptOf is whose log a file is, or was before it was rotated away.
func attemptOf(name string) (attempt uint32, is bool) {
	number, rest, _ := strings.Cut(name, ".")
	n, err := strconv.ParseUint(number, 10, 32)
	return uint32(n), err == nil && (rest == "log" || strings.HasPrefix(rest, "log."))
}
