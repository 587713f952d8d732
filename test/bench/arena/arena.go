package arena

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"fairlead.run/test/hostprep"
)

// The environment says which of the processes this is. They are the same program.
const (
	stageEnv = "FAIRLEAD_BENCH_STAGE"
	dirEnv   = "FAIRLEAD_BENCH_DIR"

	stageInit   = "init"   // process 1 of the arena: reaps
	stageRun    = "run"    // measures
	stageDaemon = "daemon" // prepares its namespaces and becomes a daemon
)

// Arena is what the measuring process finds.
type Arena struct {
	// Dir is an empty folder on disk.
	Dir string
	// Memory is an empty folder on a tmpfs.
	Memory string
	// Cgroup is the parent for the cgroups of all pods.
	Cgroup string
}

// Main runs the measuring part inside of an arena and returns its exit code.
// It is a program's whole main function: the program is started again several
// times, and only once run is called. tmp is where the folder on disk is made.
func Main(tmp string, run func(Arena) int) int {
	switch os.Getenv(stageEnv) {
	case stageInit:
		return initMain()
	case stageDaemon:
		return failed("prepare the namespaces of a daemon", becomeDaemon())
	case stageRun:
		return run(arenaIn(os.Getenv(dirEnv)))
	}
	return outermost(tmp)
}

func arenaIn(dir string) Arena {
	return Arena{Dir: filepath.Join(dir, "disk"), Memory: filepath.Join(dir, "run"), Cgroup: "/" + filepath.Base(dir)}
}

func failed(what string, err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "bench: %s: %v\n", what, err)
	return 1
}

// outermost stays outside and cleans up.
func outermost(tmp string) (code int) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	release, err := hostprep.Cgroups()
	if err != nil {
		return failed("prepare cgroups for crun", err)
	}
	defer func() { code = max(code, failed("put the cgroups back", release())) }()
	dir, err := os.MkdirTemp(tmp, "flbench-")
	if err != nil {
		return failed("make a folder", err)
	}
	defer func() { code = max(code, failed("clean up", tidy(dir))) }()
	a := arenaIn(dir)
	for _, d := range []string{a.Dir, a.Memory} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return failed("make a folder", err)
		}
	}
	cmd := again(stageInit)
	cmd.Env = append(cmd.Env, dirEnv+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWIPC,
		Pdeathsig:  unix.SIGKILL,
		Setpgid:    true, // a terminal's SIGINT is for this process alone
	}
	if err := cmd.Start(); err != nil {
		return failed("make the namespaces (needs root)", err)
	}
	return wait(cmd, signals)
}

// wait ends the arena, which is all processes in it, on a signal.
func wait(cmd *exec.Cmd, signals <-chan os.Signal) int {
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			return exitCode(err)
		case <-signals:
			_ = cmd.Process.Kill() // it may have ended just now
		}
	}
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1)
	}
	return failed("run", err)
}

// again is this program once more, with the same arguments.
func again(stage string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, stageEnv+"=") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, stageEnv+"="+stage)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

// initMain is process 1: it prepares, starts the measuring process, and reaps
// what daemons leave behind until that has ended.
func initMain() int {
	if err := prepare(os.Getenv(dirEnv)); err != nil {
		return failed("prepare the arena", err)
	}
	cmd := again(stageRun)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		return failed("start the measuring process", err)
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return failed("wait for the measuring process", err)
		case pid == cmd.Process.Pid && status.Exited():
			return status.ExitStatus()
		case pid == cmd.Process.Pid:
			return failed("run", fmt.Errorf("the measuring process was ended by %v", status.Signal()))
		}
	}
}

func prepare(dir string) error {
	if err := hostprep.Furnish(); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("fairlead-bench", arenaIn(dir).Memory, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	return nil
}
