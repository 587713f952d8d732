package shimcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/failpoint"
)

var launched = failpoint.Register("shim.launched")

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
	defer tell.Close()
	inherited := []*os.File{tell}
	if o.verb == "run" {
		lock, err := o.reserve()
		if err != nil {
			return err
		}
		defer lock.Close()
		inherited = append(inherited, lock)
	}
	stand := exec.Command(program, slices.Concat([]string{"shim", "--report", strconv.Itoa(reportFD)}, args)...)
	stand.Dir = "/"
	// Without what marks this process for the monitor: the shim would inherit it.
	stand.Env = []string{"PATH=" + os.Getenv("PATH"), "GOMAXPROCS=2"}
	if places := os.Getenv(failpoint.ShimEnv); places != "" {
		stand.Env = append(stand.Env, failpoint.ShimEnv+"="+places)
	}
	stand.Stdin, stand.Stdout, stand.Stderr = os.Stdin, os.Stdout, os.Stderr
	stand.ExtraFiles = inherited
	stand.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := stand.Start(); err != nil {
		return err
	}
	if err := failpoint.Hit(launched); err != nil {
		return errors.Join(err, stand.Process.Kill())
	}
	_ = tell.Close() // so that its death is heard
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
	launcher := inheritedFile(o.report, "launcher")
	t := &task{options: o}
	if o.verb == "run" {
		t.lock = inheritedFile(o.report+1, "lock")
	}
	ctx, giveUp := context.WithCancelCause(context.Background())
	go watch(launcher, func() { giveUp(errGivenUp) })
	err := t.begin(ctx)
	var r report
	if err != nil {
		r.Error = message(err)
	}
	text, _ := json.Marshal(r) // a string always can
	_, told := launcher.Write(text)
	if err != nil {
		return 0
	}
	if told != nil {
		t.undo() // nobody would ever know of it
		return 1
	}
	_ = launcher.Close()
	if t.lock != nil {
		_ = t.lock.Close()
	}
	return t.stand()
}

func inheritedFile(fd int, name string) *os.File {
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name)
}

// errGivenUp is why a start ends that nobody waits for any more.
var errGivenUp = errors.New("whoever started it gave up")

// watch tells when the launcher is gone. If that is before the start has ended, it
// was killed for the time that it took, and what it made is not wanted.
func watch(launcher *os.File, gone func()) {
	fds := []unix.PollFd{{Fd: int32(launcher.Fd())}} // POLLERR is always looked for
	for {
		_, err := unix.Poll(fds, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && fds[0].Revents&unix.POLLERR != 0 {
			gone()
		}
		return
	}
}
