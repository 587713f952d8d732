package crilog

import (
	"errors"
	"fmt"
)

// Complete finishes a write that its writer did not live to finish: entries
// were to be at place of a log. It is called while nobody else
// writes to the log. The file may have been renamed since, as rotation does;
// it is then looked for in its directory. One that is gone needs nothing.
//
// If it fails, what had been written stays, or with again, for a caller who
// will append the entries anew, is taken back.
func Complete(at Target, place Place, entries []byte, again bool) error {
	defer leave(enter(at.Path))
	f, err := at.find(place)
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
		return errors.Join(fmt.Errorf("complete log %s: %w", at.Path, err), f.Truncate(back))
	}
	return nil
}
