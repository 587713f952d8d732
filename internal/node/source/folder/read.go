package folder

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/node/manifest"
)

// stamp tells whether a file may have changed since it was read.
type stamp struct {
	device, inode uint64
	size          int64
	changed       time.Time // of the inode, which writing changes, too
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{device: st.Dev, inode: st.Ino, size: st.Size, changed: time.Unix(st.Ctim.Unix())}
}

// errFolder says that a name which looks like a manifest's is a folder's.
var errFolder = errors.New("is a folder")

// look finds out what a name stands for now.
func look(path string) (stamp, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		if errors.Is(err, unix.ENOENT) {
			if _, err := os.Lstat(path); err == nil {
				return stamp{}, errors.New("is a link to what does not exist; mend the link, or remove it")
			}
		}
		return stamp{}, err
	}
	s := stampOf(&st)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return s, nil
	case unix.S_IFDIR:
		return s, errFolder
	}
	return s, errors.New("is not a file but a pipe, a socket or a device; remove it")
}

// read reads a file, and nothing else: a pipe would never end.
func read(path string) ([]byte, stamp, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, stamp{}, fmt.Errorf("cannot be opened: %w", err)
	}
	defer func() { _ = f.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, stamp{}, fmt.Errorf("cannot be read: %w", err)
	}
	s := stampOf(&st)
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, s, errors.New("is not a file any more")
	}
	if s.size > manifest.MaxSize {
		return nil, s, tooLarge()
	}
	data, err := io.ReadAll(io.LimitReader(f, manifest.MaxSize+1))
	if err != nil {
		return nil, s, fmt.Errorf("cannot be read: %w", err)
	}
	if len(data) > manifest.MaxSize {
		return nil, s, tooLarge()
	}
	return data, s, nil
}

func tooLarge() error {
	return fmt.Errorf("is larger than %d MiB; split it", manifest.MaxSize>>20)
}
