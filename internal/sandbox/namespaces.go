package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/pod"
)

// kind is a namespace that a pod can have of its own.
type kind struct {
	name  string // in /proc/PID/ns, and of the file that pins it
	flag  int
	field func(*pod.Sandbox) *string
}

var kinds = []kind{
	{"uts", unix.CLONE_NEWUTS, func(s *pod.Sandbox) *string { return &s.UTSNS }},
	{"ipc", unix.CLONE_NEWIPC, func(s *pod.Sandbox) *string { return &s.IPCNS }},
	{"net", unix.CLONE_NEWNET, func(s *pod.Sandbox) *string { return &s.NetNS }},
}

var (
	namespacesMade  = failpoint.Register("sandbox.namespaces-made")
	namespacePinned = failpoint.Register("sandbox.namespace-pinned")
)

// plan is what the namespaces of one pod are to be.
type plan struct {
	kinds    []kind
	hostname string
	sysctls  []sysctl
}

// pin makes the namespaces and mounts each on a file in dir, which keeps it
// without a process. They are complete before the first is pinned, so that
// finding all of them means that nothing is left to do.
func (p *plan) pin(dir string) error {
	if len(p.kinds) == 0 {
		return nil
	}
	complete := true
	for _, n := range p.kinds {
		ok, err := pinned(filepath.Join(dir, n.name))
		if err != nil {
			return err
		}
		complete = complete && ok
	}
	if complete {
		return nil
	}
	for _, n := range p.kinds {
		if err := unmount(filepath.Join(dir, n.name)); err != nil {
			return err
		}
		f, err := os.OpenFile(filepath.Join(dir, n.name), os.O_CREATE|os.O_RDONLY, 0o600)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return onThrownAwayThread(func() error { return p.makeHere(dir) })
}

// makeHere changes the namespaces of the thread that it runs on.
func (p *plan) makeHere(dir string) error {
	flags := 0
	for _, n := range p.kinds {
		flags |= n.flag
	}
	if err := unix.Unshare(flags); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	if flags&unix.CLONE_NEWUTS != 0 {
		if err := unix.Sethostname([]byte(p.hostname)); err != nil {
			return fmt.Errorf("set the host name %q: %w", p.hostname, err)
		}
	}
	for _, s := range p.sysctls {
		if err := s.set(); err != nil && (!s.waits() || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	if err := failpoint.Hit(namespacesMade); err != nil {
		return err
	}
	for _, n := range p.kinds {
		from, to := fmt.Sprintf("/proc/self/task/%d/ns/%s", unix.Gettid(), n.name), filepath.Join(dir, n.name)
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("pin the %s namespace on %s: %w", n.name, to, err)
		}
		if err := failpoint.Hit(namespacePinned); err != nil {
			return err
		}
	}
	return nil
}

// inNetwork runs f in a pinned network namespace.
func inNetwork(ns string, f func() error) error {
	fd, err := unix.Open(ns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: ns, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	return onThrownAwayThread(func() error {
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter %s: %w", ns, err)
		}
		return f()
	})
}

// onThrownAwayThread runs f on a thread that ends with it, because a thread
// that has changed its namespaces is of no more use. The process's first
// thread never is that one: it cannot end, and what others see of the process
// in /proc is what it has.
func onThrownAwayThread(f func() error) error {
	done := make(chan error)
	var run func()
	run = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// Holding on to the first thread, let another goroutine do it.
			defer runtime.UnlockOSThread()
			over := make(chan struct{})
			go func() { defer close(over); run() }()
			<-over
			return
		}
		// Not unlocked: the thread ends with the goroutine.
		done <- f()
	}
	go run()
	return <-done
}

// pinned says whether a namespace is mounted on a file. A file or folder that
// is not there pins nothing.
func pinned(p string) (bool, error) {
	var st unix.Statfs_t
	err := unix.Statfs(p, &st)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	if err != nil {
		return false, &fs.PathError{Op: "statfs", Path: p, Err: err}
	}
	return st.Type == unix.NSFS_MAGIC, nil
}
