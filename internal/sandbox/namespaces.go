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
	"fairlead.run/internal/userns"
)

// kind is a namespace that a pod can have of its own.
type kind struct {
	name  string // in /proc/PID/ns, and of the file that pins it
	flag  int
	field func(*pod.Sandbox) *string
}

var kinds = []kind{
	{"user", unix.CLONE_NEWUSER, func(s *pod.Sandbox) *string { return &s.UserNS }},
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
	user     *pod.UserNamespace // nil without one
	hostname string
	sysctls  []sysctl
}

// pin makes the namespaces and mounts each on a file in dir, which keeps it
// without a process. They are complete before the first is pinned, so that
// finding all of them means that nothing is left to do.
func (p *plan) pin(dir string, waiter []string) error {
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
	if p.user != nil {
		return p.makeByProcess(dir, waiter)
	}
	return onLentThread(func() error { return p.makeHere(dir) })
}

// makeHere changes the namespaces of the thread that it runs on.
func (p *plan) makeHere(dir string) error {
	if err := unix.Unshare(p.flags()); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	own := fmt.Sprintf("/proc/self/task/%d/ns/", unix.Gettid())
	return p.finishHere(dir, func(name string) string { return own + name })
}

// makeByProcess lets a process have the namespaces until they are pinned, as no
// thread of this one can make a user namespace. The others are made inside of
// it, so that its root rules over them.
func (p *plan) makeByProcess(dir string, waiter []string) error {
	h, err := userns.Start(userns.Spec{
		Program: waiter, UIDs: ranges(p.user.UIDs), GIDs: ranges(p.user.GIDs),
		Others: uintptr(p.flags() &^ unix.CLONE_NEWUSER),
	})
	if err != nil {
		return err
	}
	defer h.End()
	return onLentThread(func() error {
		for _, n := range p.kinds {
			if n.flag == unix.CLONE_NEWUSER {
				continue // nothing below is done as its root
			}
			if err := enter(h.Path(n.name), n.flag); err != nil {
				return err
			}
		}
		return p.finishHere(dir, h.Path)
	})
}

func ranges(list []pod.IDMapping) (out []userns.Range) {
	for _, m := range list {
		out = append(out, userns.Range{Inside: m.ContainerID, Outside: m.HostID, Length: m.Length})
	}
	return out
}

func (p *plan) flags() (flags int) {
	for _, n := range p.kinds {
		flags |= n.flag
	}
	return flags
}

// finishHere sets up the namespaces that the thread is in, and pins those that
// file names.
func (p *plan) finishHere(dir string, file func(name string) string) error {
	flags := p.flags()
	if flags&unix.CLONE_NEWUTS != 0 {
		if err := unix.Sethostname([]byte(p.hostname)); err != nil {
			return fmt.Errorf("set the host name %q: %w", p.hostname, err)
		}
	}
	for _, s := range p.sysctls {
		set := s.set
		if p.user != nil && s.ofIPC() {
			set = func() error { return asRootOf(p.user, s.set) }
		}
		if err := set(); err != nil && (!s.waits() || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	if err := failpoint.Hit(namespacesMade); err != nil {
		return err
	}
	for _, n := range p.kinds {
		from, to := file(n.name), filepath.Join(dir, n.name)
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("pin the %s namespace on %s: %w", n.name, to, err)
		}
		if err := failpoint.Hit(namespacePinned); err != nil {
			return err
		}
	}
	return nil
}

// asRootOf calls f as who is root in a user namespace. The kernel lets nobody
// else set the parameters of an IPC namespace in it, whatever he is capable of.
// It changes the thread alone, which the functions of package unix would not.
func asRootOf(u *pod.UserNamespace, f func() error) error {
	const keep = ^uintptr(0)
	uid, _ := u.HostUID(0)
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); e != 0 {
		return os.NewSyscallError("setresuid", e)
	}
	err := f()
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, keep, 0, keep); e != 0 {
		return errors.Join(err, os.NewSyscallError("setresuid", e))
	}
	return err
}

// inNetwork runs f in a pinned network namespace.
func inNetwork(ns string, f func() error) error {
	return onLentThread(func() error {
		if err := enter(ns, unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// enter moves the thread that it runs on to another namespace.
func enter(ns string, flag int) error {
	fd, err := unix.Open(ns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: ns, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Setns(fd, flag); err != nil {
		return fmt.Errorf("enter %s: %w", ns, err)
	}
	return nil
}

// onLentThread runs f on a thread that f may move to other network, IPC and UTS
// namespaces, and moves it back. The process's first thread never is that one:
// what others see of the process in /proc is what it has.
func onLentThread(f func() error) error {
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
		user := unix.Geteuid()
		err := f()
		if unix.Geteuid() == user && comeHome() == nil {
			runtime.UnlockOSThread()
		} // else it is of no more use, and ends with the goroutine
		done <- err
	}
	go run()
	return <-done
}

// comeHome moves the thread to the namespaces of the process's first one. It
// needs Linux 5.8.
func comeHome() error {
	home, err := unix.PidfdOpen(unix.Getpid(), 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(home) }()
	return unix.Setns(home, unix.CLONE_NEWNET|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS)
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
