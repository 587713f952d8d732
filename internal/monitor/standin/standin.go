// Package standin is the program that stands in for a container of gVisor on the
// host. Such a container has no process there whose end would be its own: it runs
// inside the sandbox of its pod. The stand-in has its pid, lives as long as the
// container does, passes signals on, and ends the way the container ended.
//
// It is part of fairlead-monitor, whose child it becomes, so that the end of a
// container in a sandbox is seen, recorded and inherited like any other.
package standin

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"fairlead.run/internal/atomicfile"
)

// options is the command line. What follows the flags is the command that starts
// the container; without one, the process is the stand-in itself.
type options struct {
	root, sandbox, id, pidFile string
	cgroups                    string // of the container, from the top of a hierarchy
	command                    []string
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("fairlead-monitor stand-in", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.root, "root", "", "")
	f.StringVar(&o.sandbox, "sandbox", "", "")
	f.StringVar(&o.id, "id", "", "")
	f.StringVar(&o.pidFile, "pid-file", "", "")
	f.StringVar(&o.cgroups, "cgroup", "", "")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.command = f.Args()
	if o.root == "" || o.sandbox == "" || o.id == "" {
		return o, errors.New("--root, --sandbox and --id are needed")
	}
	if len(o.command) > 0 && o.pidFile == "" {
		return o, errors.New("--pid-file is needed with a command")
	}
	return o, nil
}

// Main runs the program with the arguments after "stand-in" and returns its exit
// code.
func Main(args []string) int {
	o, err := parse(args)
	if err == nil && len(o.command) > 0 {
		err = o.launch(args[:len(args)-len(o.command)])
	} else if err == nil {
		return o.stand()
	}
	var ended *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return max(1, ended.ExitCode()) // it has said why
	}
	fmt.Fprintln(os.Stderr, "fairlead-monitor stand-in:", err)
	return 1
}

// launch runs the command, which starts the container and ends, with what this
// process has for input and output, and leaves a stand-in.
func (o *options) launch(flags []string) error {
	start := exec.Command(o.command[0], o.command[1:]...)
	start.Stdin, start.Stdout, start.Stderr = os.Stdin, os.Stdout, os.Stderr
	// Without what marks this process for the monitor: the sandbox would have it
	// for as long as it lives.
	start.Env = []string{"PATH=" + os.Getenv("PATH")}
	if err := start.Run(); err != nil || o.id == o.sandbox {
		return err // a sandbox is a process of the host, and its pid is written
	}
	// Not /proc/self/exe, which people would see as the name of the process.
	program, err := os.Executable()
	if err != nil {
		return err
	}
	stand := exec.Command(program, append([]string{"stand-in"}, flags...)...)
	stand.Dir = "/"
	stand.Env = []string{"GOMAXPROCS=1"} // it does nothing but wait
	if err := stand.Start(); err != nil {
		return err
	}
	if err := o.join(stand.Process.Pid); err != nil {
		return errors.Join(err, stand.Process.Kill())
	}
	return atomicfile.Write(o.pidFile, []byte(strconv.Itoa(stand.Process.Pid)), 0o600)
}

// join puts the stand-in where the container's cgroup is, as far as the runtime
// has made it: what is left of a container is looked for there.
func (o *options) join(pid int) error {
	if o.cgroups == "" {
		return nil
	}
	dirs := []string{cgroupRoot}
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err != nil {
		entries, err := os.ReadDir(cgroupRoot)
		if err != nil {
			return err
		}
		dirs = nil
		for _, e := range entries {
			if e.IsDir() { // links such as cpu -> cpu,cpuacct are not
				dirs = append(dirs, filepath.Join(cgroupRoot, e.Name()))
			}
		}
	}
	for _, dir := range dirs {
		file := filepath.Join(dir, o.cgroups, "cgroup.procs")
		err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("put the stand-in into the container's cgroup: %w", err)
		}
	}
	return nil
}

const cgroupRoot = "/sys/fs/cgroup"
