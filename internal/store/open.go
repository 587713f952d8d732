package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/filelock"
)

// Open opens or makes the database in dir. A second process that has it open
// is an error that wraps errdefs.ErrUnavailable.
//
// A file that is damaged as a whole is put aside, and an empty one takes its
// place: SetAside says so, and the pods have to be told from what they have on
// the host. Without that, nobody could even remove them.
func Open(dir string) (*Store, error) {
	path := filepath.Join(dir, File)
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("open pod records %s: %w", path, err)
	}
	s := &Store{lock: lock}
	if s.db, err = openWhole(path); err == nil {
		return s, nil
	}
	if !errors.Is(err, errDamaged) {
		return nil, errors.Join(fmt.Errorf("open pod records %s: %w", path, err), lock.Close())
	}
	s.damage = err
	s.aside = path + ".damaged-" + time.Now().UTC().Format("20060102T150405.000")
	if err = os.Rename(path, s.aside); err == nil {
		s.db, err = openWhole(path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("replace damaged pod records %s: %w", path, err), lock.Close())
	}
	return s, nil
}

// SetAside tells where a damaged file was put and what was wrong with it. The
// error is nil if the file was in order.
func (s *Store) SetAside() (path string, damage error) { return s.aside, s.damage }

// lockWait is how long Open waits for another process to end.
const lockWait = time.Second

// lockFolder keeps other daemons out, also while a damaged file is replaced.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(lockWait); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, errors.Join(os.NewSyscallError("flock", err), f.Close())
		case time.Now().After(end):
			return nil, errors.Join(errInUse, f.Close())
		}
	}
}

var (
	errInUse   = fmt.Errorf("another fairlead daemon uses this state directory; stop it or choose another --state: %w", errdefs.ErrUnavailable)
	errDamaged = errors.New("the file is damaged")
)

// openWhole opens the file after it was read through: bbolt notices damage only
// when it stumbles over it, and then panics or faults on the mapped file.
func openWhole(path string) (db *bbolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			db, err = nil, fmt.Errorf("%w: %v", errDamaged, p)
		}
	}()
	if _, err := filelock.Reclaim(path); err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err == nil {
		if err := readThrough(path); err != nil {
			return nil, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:        lockWait,
		NoGrowSync:     true,
		NoFreelistSync: true,
		NoSync:         true, // a tmpfs has nothing to flush to; the page cache survives us
		FreelistType:   bbolt.FreelistMapType,
	})
	if err != nil {
		return nil, explain(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(podsBucket)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func readThrough(path string) error {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockWait, ReadOnly: true})
	if err != nil {
		return explain(err)
	}
	var sum byte
	// Close is not deferred: after a panic in the middle it would wait for ever.
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(_, value []byte) error {
				for i := 0; i < len(value); i += os.Getpagesize() {
					sum ^= value[i]
				}
				return nil
			})
		})
	})
	runtime.KeepAlive(sum) // or nothing would be read
	if err != nil {
		err = fmt.Errorf("%w: %w", errDamaged, err)
	}
	return errors.Join(err, db.Close())
}

// explain tells damage from everything else that keeps a file from opening.
func explain(err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return errInUse
	case errors.As(err, new(*fs.PathError)), errors.As(err, new(*os.SyscallError)), errors.As(err, new(unix.Errno)):
		return err
	}
	return fmt.Errorf("%w: %w", errDamaged, err)
}

// Close ends all transactions and releases the file and the folder.
func (s *Store) Close() error { return errors.Join(s.db.Close(), s.lock.Close()) }
