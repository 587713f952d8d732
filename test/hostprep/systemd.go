package hostprep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// The programs of systemd that are needed, where all distributions have them.
const (
	systemdProgram = "/lib/systemd/systemd"
	dbusProgram    = "/usr/bin/dbus-daemon"
)

// These are set in the environment of the process that is to become systemd: a
// folder for what it says, and the name of its cgroups.
const (
	systemdFolder = "FAIRLEAD_TEST_SYSTEMD"
	systemdCgroup = "FAIRLEAD_TEST_SYSTEMD_CGROUP"
)

// BySystemd says whether systemd makes the cgroups here: it is process 1.
func BySystemd() bool {
	comm, _ := os.ReadFile("/proc/1/comm")
	return strings.TrimSpace(string(comm)) == "systemd"
}

// LacksForSystemd says what UnderSystemd needs and is not here; it is empty if
// nothing is missing.
func LacksForSystemd() string {
	if os.Geteuid() != 0 {
		return "root"
	}
	for _, program := range []string{systemdProgram, dbusProgram} {
		if _, err := os.Stat(program); err != nil {
			return program
		}
	}
	list, err := hierarchies()
	if err != nil {
		return "cgroups: " + err.Error()
	}
	has := func(fstype, named string) bool {
		return slices.ContainsFunc(list, func(h hierarchy) bool { return h.fstype == fstype && h.named == named })
	}
	switch {
	case !has("cgroup2", ""):
		// Without it systemd learns from an agent of the host's that a cgroup is
		// empty.
		return "a mount of cgroup v2, alone or beside those of cgroup v1"
	case len(list) > 1 && !has("cgroup", "name=systemd"):
		return "the cgroup hierarchy name=systemd, beside the others of cgroup v1"
	case len(list) == 1:
		handed, _ := os.ReadFile(filepath.Join(list[0].dir, "cgroup.subtree_control"))
		for _, c := range []string{"cpu", "memory", "pids"} {
			if !slices.Contains(strings.Fields(string(handed)), c) {
				return "the controller " + c + " in cgroup.subtree_control of the root cgroup"
			}
		}
	}
	return ""
}

var systemds atomic.Int32

// UnderSystemd runs this program once more, with other arguments, as a service
// of a systemd of its own: process 1 of new PID, mount, network, IPC, UTS and
// cgroup namespaces, with its cgroups below new ones at the top of each
// hierarchy. It waits for the end of the service, and then nothing is left.
//
// What the service writes is in the file "output" in dir, which must not be
// below /run, and what systemd says in "systemd.log". The error is an
// *exec.ExitError with the service's status if that is what went wrong.
func UnderSystemd(ctx context.Context, dir string, args ...string) (err error) {
	name := fmt.Sprintf("fairlead-systemd-%d-%d", os.Getpid(), systemds.Add(1))
	remove, err := makeCgroup(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	output, err := os.OpenFile(filepath.Join(dir, "output"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer output.Close()
	// The process is killed when the thread ends that has started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), systemdFolder+"="+dir, systemdCgroup+"="+name)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  unix.SIGKILL,
	}
	return cmd.Run()
}

// BecomeSystemd is for the beginning of a TestMain: it does not return in the
// process that UnderSystemd has started.
func BecomeSystemd() {
	dir := os.Getenv(systemdFolder)
	if dir == "" {
		return
	}
	fmt.Fprintln(os.Stderr, "become systemd:", becomeSystemd(dir, os.Getenv(systemdCgroup)))
	os.Exit(1)
}

func becomeSystemd(dir, cgroup string) error {
	list, err := hierarchies()
	if err != nil {
		return err
	}
	if err := join(list, cgroup); err != nil {
		return err
	}
	// This is the main thread; see the init function.
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make a cgroup namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	if err := remountSys(security); err != nil {
		return err
	}
	if err := mountHierarchies(list); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount a tmpfs on /run: %w", err)
	}
	if err := guardHost(dir); err != nil {
		return err
	}
	if err := writeUnits(dir, append([]string{self}, os.Args[1:]...)); err != nil {
		return err
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return !forService(v) })
	env = append(env, "container=fairlead-test", "SYSTEMD_UNIT_PATH=/run/systemd/transient:"+unitFolder,
		"SYSTEMD_GENERATOR_PATH="+emptyFolder, "SYSTEMD_ENVIRONMENT_GENERATOR_PATH="+emptyFolder)
	return os.NewSyscallError("execve", syscall.Exec(systemdProgram, []string{systemdProgram, "--unit=test.target"}, env))
}

// guardHost keeps systemd from what process 1 does to a machine that it believes
// to be its own, and turns what it logs into a file.
func guardHost(dir string) error {
	for _, path := range []string{"/etc", "/proc/sys/fs/file-max", "/proc/sys/fs/nr_open"} {
		err := unix.Mount(path, path, "", unix.MS_BIND, "")
		if err == nil {
			err = unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
		}
		if err != nil {
			return fmt.Errorf("make %s read-only: %w", path, err)
		}
	}
	log := filepath.Join(dir, "systemd.log")
	if err := os.WriteFile(log, nil, 0o644); err != nil {
		return err
	}
	if err := unix.Mount(log, "/dev/kmsg", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("turn the log of systemd into a file: %w", err)
	}
	return nil
}
