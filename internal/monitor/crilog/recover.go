package crilog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Complete finishes a write that its writer did not live to finish: entries
// were to be at place of the log at path. It is called while nobody else
// writes to the log. The file may have been renamed since, as rotation does;
// it is then looked for in its directory. One that is gone needs nothing.
//
// If it fails, what had been written stays, or with again, for a caller who
// will append the entries anew, is taken back.
func Complete(path string, place Place, entries []byte, again bool) error {
	defer leave(enter(path))
	f, err := find(path, place)
	if err != nil || f == nil {
		return err
	}
	defer func() { _ = f.Close() }()
	now, err := placeOf(f)
	if err != nil {
		return err
	}
	written := now.Offset - place.Offset
	switch {
	case written >= int64(len(entries)):
		return nil
	case written < 0:
		// Somebody else cut the file; what we had written is not in it.
		written = 0
	}
	if _, err := f.Write(entries[written:]); err != nil {
		back := now.Offset
		if again {
			back = min(back, place.Offset)
		}
		return errors.Join(fmt.Errorf("complete log %s: %w", path, err), f.Truncate(back))
	}
	return nil
}

// find opens the file that place means, or returns nil.
func find(path string, place Place) (*os.File, error) {
	dir := filepath.Dir(path)
	candidates := []string{path}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("look for the log that was %s: %w", path, err)
	}
	for _, e := range entries {
		candidates = append(candidates, filepath.Join(dir, e.Name()))
	}
	for _, name := range candidates {
		var st unix.Stat_t
		if unix.Lstat(name, &st) != nil || st.Dev != place.Dev || st.Ino != place.Ino {
			continue
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, fmt.Errorf("open log %s to complete it: %w", name, err)
		}
		return f, nil
	}
	return nil, nil
}
