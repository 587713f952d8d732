package trial

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
)

// look says whether the container has what a name wants.
func look(name string) error {
	name, below, _ := strings.Cut(name, ":")
	switch name {
	case monitorv1.TrialSeccomp:
		return filtered()
	case monitorv1.TrialReadOnly:
		return readOnly(filepath.Join(monitorv1.TrialReadOnlyPath, below))
	case monitorv1.TrialDevice:
		return zeros(monitorv1.TrialDevicePath)
	}
	return errors.New("nobody knows how to look for it")
}

// filtered looks for a filter of umask, which without one never fails.
func filtered() error {
	old, _, errno := unix.RawSyscall(unix.SYS_UMASK, 0o022, 0, 0)
	if errno == 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_UMASK, old, 0, 0)
		return errors.New("the filter lets a call through that it refuses")
	}
	return nil
}

// readOnly looks at a mount below the one that was made read-only.
func readOnly(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	if st.Flags&unix.ST_RDONLY == 0 {
		return errors.New("what is mounted below a read-only mount can be written")
	}
	return nil
}

func zeros(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	b := []byte{1}
	if _, err := f.Read(b); err != nil {
		return err
	}
	if b[0] != 0 {
		return fmt.Errorf("%s is another device: it gives %#x", path, b[0])
	}
	return nil
}
