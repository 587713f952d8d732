package sealed

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// program is a copy of busybox, which says where it runs from.
func program(t *testing.T) string {
	t.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("needs a static busybox (Debian package busybox-static)")
	}
	data, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "busybox")
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// run runs the program, and returns what it printed.
func run(t *testing.T, p *Programs, path string, args ...string) string {
	t.Helper()
	var out strings.Builder
	cmd := exec.Command(path, args...)
	cmd.Stdout = &out
	err := p.Run(path, func(path string) error {
		cmd.Path = path
		return cmd.Start()
	})
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

func TestRunsFromACopy(t *testing.T) {
	var p Programs
	path := program(t)
	if got := run(t, &p, path, "readlink", "/proc/self/exe"); got != "/memfd:busybox (deleted)" {
		t.Errorf("it ran from %s", got)
	}
	f := p.find(path)
	if got, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err != nil || got != seals {
		t.Errorf("seals %x, %v", got, err)
	}
	if p.find(path) != f {
		t.Error("it was copied twice")
	}
}

func TestCopiesWhatChangedAnew(t *testing.T) {
	var p Programs
	path := program(t)
	run(t, &p, path, "true")
	other := program(t)
	f, err := os.OpenFile(other, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("more"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	if got := run(t, &p, path, "tail", "-c", "4", "/proc/self/exe"); got != "more" {
		t.Errorf("the old one was run: it ends in %q", got)
	}
}

// TestRunsAsItIs has programs that would not run from a copy.
func TestRunsAsItIs(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho \"$0\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var p Programs
	for range 2 {
		if got := run(t, &p, script); got != script {
			t.Errorf("%s", got)
		}
	}
	missing := filepath.Join(t.TempDir(), "missing")
	err := p.Run(missing, func(path string) error { return exec.Command(path).Run() })
	if err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("%v", err)
	}
}

// TestChildMovesDescriptors fails if the child looks for the copy among its own
// descriptors: Go moves a pipe to the number after the largest that the child
// is to have.
func TestChildMovesDescriptors(t *testing.T) {
	var p Programs
	path := program(t)
	var low []*os.File
	for range 20 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		low = append(low, f)
	}
	copied := int(p.find(path).Fd())
	input := copied - 1
	if err := unix.Dup3(int(low[0].Fd()), input, unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(input)
	for _, f := range low { // Go's pipe takes the place of one of them
		f.Close()
	}
	err := p.Run(path, func(name string) error {
		pid, err := syscall.ForkExec(name, []string{path, "true"}, &syscall.ProcAttr{Files: []uintptr{uintptr(input), 1, 2}})
		if err != nil {
			return err
		}
		_, err = syscall.Wait4(pid, nil, 0, nil)
		return err
	})
	if err != nil {
		t.Errorf("copy in %d, standard input from %d: %v", copied, input, err)
	}
}

// TestManyAtOnce is for the race detector: the program changes while it is run.
func TestManyAtOnce(t *testing.T) {
	var p Programs
	path := program(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				// A copy that another one takes the place of is still there to be started.
				err := p.Run(path, func(copied string) error {
					if err := os.Rename(program(t), path); err != nil {
						return err
					}
					p.find(path)
					return (&exec.Cmd{Path: copied, Args: []string{path, "true"}}).Run()
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
