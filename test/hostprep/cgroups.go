package hostprep

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	root = "/sys/fs/cgroup"
	// source marks our mounts, so that nobody else's are taken away.
	source = "fairlead-build"
)

// Cgroups makes the cgroups of this host suit crun: on a hybrid host (cgroup v1,
// and cgroup v2 at unified/ for systemd alone) crun refuses to start while
// unified/ still has controllers, so each of them is mounted as a v1 hierarchy.
//
// release takes the mounts away again, once nobody else needs them: every user
// holds a shared lock, and the last one cleans up, also after users that were
// killed. On other hosts, and without root, nothing happens.
func Cgroups() (release func() error, err error) {
	nothing := func() error { return nil }
	if os.Geteuid() != 0 {
		return nothing, nil
	}
	missing, err := controllers()
	if err != nil {
		return nil, err
	}
	ours, err := mounts()
	if err != nil {
		return nil, err
	}
	if len(missing) == 0 && len(ours) == 0 {
		return nothing, nil
	}
	lock, err := os.Open(root)
	if err != nil {
		return nil, fmt.Errorf("lock the cgroup mounts: %w", err)
	}
	if err := flock(lock, unix.LOCK_SH); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	release = func() error {
		defer lock.Close()
		if err := flock(lock, unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
			return nil // the others will do it
		} else if err != nil {
			return err
		}
		return unmountAll()
	}
	// Whoever held the lock alone may have unmounted before it was ours.
	missing, err = controllers()
	for _, c := range missing {
		err = errors.Join(err, mount(c))
	}
	if err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("flock", err)
		}
	}
}

// controllers are those that unified/ still has.
func controllers() ([]string, error) {
	data, err := os.ReadFile(filepath.Join(root, "unified", "cgroup.controllers"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the controllers of cgroup v2: %w", err)
	}
	return strings.Fields(string(data)), nil
}

// mounts lists our mounts.
func mounts() ([]string, error) {
	data, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	var list []string
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) > 1 && f[0] == source && filepath.Dir(f[1]) == root {
			list = append(list, f[1])
		}
	}
	return list, nil
}

func mount(controller string) error {
	dir := filepath.Join(root, controller)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("mount the cgroup controller %s: %w", controller, err)
	}
	err := unix.Mount(source, dir, "cgroup", 0, controller)
	if err == nil || errors.Is(err, unix.EBUSY) {
		return nil // EBUSY: another one was quicker
	}
	return errors.Join(fmt.Errorf("mount the cgroup controller %s on %s: %w", controller, dir, err), os.Remove(dir))
}

func unmountAll() error {
	list, err := mounts()
	if err != nil {
		return err
	}
	var failed []error
	for _, dir := range list {
		failed = append(failed, unmount(dir))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	awaitReturn(list)
	return nil
}

// awaitReturn waits until cgroup v2 has the controllers again, which takes the
// kernel a moment. Otherwise the next user would believe that none is needed.
func awaitReturn(dirs []string) {
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		back, err := controllers()
		if err != nil || !slices.ContainsFunc(dirs, func(dir string) bool { return !slices.Contains(back, filepath.Base(dir)) }) {
			return
		}
	}
}

// unmount gives a controller back to cgroup v2. The kernel does that only if the
// hierarchy is empty when it is unmounted; otherwise it stays for good, unseen.
// So one that somebody's process is in stays mounted, for the next user to
// take away.
func unmount(dir string) error {
	deadline := time.Now().Add(2 * time.Second)
	for !settled(filepath.Base(dir)) {
		if time.Now().After(deadline) {
			return fmt.Errorf("unmount the cgroup hierarchy %s: there are cgroups with processes in it", dir)
		}
		removeEmpty(dir)
		time.Sleep(10 * time.Millisecond)
	}
	if err := unix.Unmount(dir, 0); err != nil {
		return fmt.Errorf("unmount the cgroup hierarchy %s; do it by hand: %w", dir, err)
	}
	if err := os.Remove(dir); err != nil {
		return fmt.Errorf("remove the mount point of a cgroup hierarchy: %w", err)
	}
	return nil
}

// removeEmpty removes the cgroups below dir that have no processes. They were
// all made while the mount was there, which is ours.
func removeEmpty(dir string) {
	var below []string
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && path != dir {
			below = append(below, path)
		}
		return nil
	})
	for _, path := range slices.Backward(below) {
		_ = unix.Rmdir(path) // one in use stays, and unmount says so
	}
}

// settled tells whether a controller has no cgroup but the root one. Removed
// cgroups count until the kernel has freed them.
func settled(controller string) bool {
	data, err := os.ReadFile("/proc/cgroups")
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == controller {
			return f[2] == "1"
		}
	}
	return true
}
