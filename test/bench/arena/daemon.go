package arena

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"fairlead.run/test/hostprep"
)

// The environment of stageDaemon.
const (
	varLibEnv = "FAIRLEAD_BENCH_VARLIB"
	argvEnv   = "FAIRLEAD_BENCH_ARGV"
)

// Command starts a daemon in network and mount namespaces of its own, where
// /run is empty and in memory, and /var/lib is the given folder. The daemon gets
// the process that this starts, so its pid is the command's.
func Command(varLib string, argv ...string) *exec.Cmd {
	cmd := again(stageDaemon)
	cmd.Env = append(cmd.Env, varLibEnv+"="+varLib, argvEnv+"="+strings.Join(argv, "\x1f"))
	cmd.Stdin = nil
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS,
		Pdeathsig:  unix.SIGKILL,
	}
	return cmd
}

// becomeDaemon returns only on failure.
func becomeDaemon() error {
	if err := hostprep.Furnish(); err != nil {
		return err
	}
	if err := unix.Mount(os.Getenv(varLibEnv), "/var/lib", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount /var/lib: %w", err)
	}
	if err := unix.Mount("fairlead-bench", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	argv := strings.Split(os.Getenv(argvEnv), "\x1f")
	if err := unix.Exec(argv[0], argv, plainEnv()); err != nil {
		return fmt.Errorf("run %s: %w", argv[0], err)
	}
	return errors.New("exec returned")
}

// plainEnv is the environment without what stages tell each other.
func plainEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "FAIRLEAD_BENCH_") })
}

// Place is the network and mount namespace of a daemon. It outlives the daemon.
type Place struct{ net, mnt *os.File }

// PlaceOf is where a process is. It has to be closed.
func PlaceOf(pid int) (*Place, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "ns")
	network, err := os.Open(filepath.Join(dir, "net"))
	if err != nil {
		return nil, fmt.Errorf("open the network namespace of process %d: %w", pid, err)
	}
	mounts, err := os.Open(filepath.Join(dir, "mnt"))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the mount namespace of process %d: %w", pid, err), network.Close())
	}
	return &Place{network, mounts}, nil
}

// Command starts a daemon there. Its pid is the command's.
func (p *Place) Command(argv ...string) *exec.Cmd {
	// Not by descriptors of its own, which the daemon would inherit.
	own := func(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()) }
	cmd := exec.Command("nsenter", append([]string{"--net=" + own(p.net), "--mount=" + own(p.mnt), "--"}, argv...)...)
	cmd.Env = plainEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return cmd
}

// Close lets go of the namespaces. What runs in them keeps them.
func (p *Place) Close() error { return errors.Join(p.net.Close(), p.mnt.Close()) }

// Listen listens on a TCP address in the network namespace of a process.
func Listen(pid int, address string) (net.Listener, error) {
	var l net.Listener
	err := InNetwork(pid, func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// InNetwork calls f in the network namespace of a process, on one thread.
func InNetwork(pid int, f func() error) error {
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		ended <- func() error {
			fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("open the network namespace of process %d: %w", pid, err)
			}
			defer unix.Close(fd)
			if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter the network namespace of process %d: %w", pid, err)
			}
			return f()
		}()
	}()
	return <-ended
}

// SameMounts says whether two processes are in one mount namespace. One that
// has ended is in none.
func SameMounts(a, b int) bool {
	x, errX := os.Readlink(filepath.Join("/proc", strconv.Itoa(a), "ns/mnt"))
	y, errY := os.Readlink(filepath.Join("/proc", strconv.Itoa(b), "ns/mnt"))
	return errX == nil && errY == nil && x == y
}
