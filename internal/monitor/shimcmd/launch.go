package shimcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/atomicfile"
)

// report is what a stand-in tells its launcher once, when the process that it
// stands for runs or does not.
type report struct {
	Error string `json:"error,omitempty"`
}

// reportFD is the descriptor of a stand-in that leads to its launcher.
const reportFD = 3

// launch starts a stand-in, which starts the container or process, and ends when
// it has.
func (o *options) launch(args []string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	hear, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer hear.Close()
	stand := exec.Command(program, slices.Concat([]string{"shim", "--report", strconv.Itoa(reportFD)}, args)...)
	stand.Dir = "/"
	// Without what marks this process for the monitor: the shim would inherit it.
	stand.Env = []string{"PATH=" + os.Getenv("PATH"), "GOMAXPROCS=2"}
	stand.Stdin, stand.Stdout, stand.Stderr = os.Stdin, os.Stdout, os.Stderr
	stand.ExtraFiles = []*os.File{tell}
	stand.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = stand.Start()
	_ = tell.Close()
	if err != nil {
		return err
	}
	var r report
	if err := json.NewDecoder(io.LimitReader(hear, 64<<10)).Decode(&r); err != nil {
		return errors.Join(fmt.Errorf("the process that stands in for %s was killed before it had started it", o.id), stand.Process.Kill())
	}
	if r.Error != "" {
		_ = stand.Wait()
		return errors.New(r.Error)
	}
	if err := atomicfile.Write(o.pidFile, []byte(strconv.Itoa(stand.Process.Pid)), 0o600); err != nil {
		return errors.Join(err, stand.Process.Kill())
	}
	return nil
}

// standIn starts what it stands for, tells the launcher, and stays.
func (o *options) standIn() int {
	unix.CloseOnExec(o.report)
	launcher := os.NewFile(uintptr(o.report), "launcher")
	ctx, t := context.Background(), &task{options: o}
	var begun atomic.Bool
	go watch(launcher, &begun)
	err := t.begin(ctx)
	begun.Store(true)
	var r report
	if err != nil {
		r.Error = message(err)
	}
	text, _ := json.Marshal(r) // a string always can
	_, told := launcher.Write(text)
	if err == nil && told != nil {
		t.undo() // nobody would ever know of it
		return 1
	}
	_ = launcher.Close()
	if err != nil {
		return 0
	}
	return t.stand()
}

// watch ends this process if its launcher is killed before the start has ended: who
// kills that for the time it takes then deletes the container, and nothing may be
// made afterwards.
func watch(launcher *os.File, begun *atomic.Bool) {
	fds := []unix.PollFd{{Fd: int32(launcher.Fd())}} // POLLERR is always looked for
	for {
		_, err := unix.Poll(fds, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && fds[0].Revents&unix.POLLERR != 0 && !begun.Load() {
			os.Exit(1)
		}
		return
	}
}

// folder is what is kept of this container.
func (o *options) folder() string { return filepath.Join(o.root, o.id) }
