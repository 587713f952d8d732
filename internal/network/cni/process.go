package cni

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/threads"
)

// lateOutput is how long output is read on after a plugin has ended, in case
// that something it has started holds the other end open.
const lateOutput = time.Second

// process runs a plugin to its end, and returns what it wrote. Of a plugin that
// ends well no more than that is waited for: see reaper.
func (r *runner) process(ctx context.Context, path string, stdin []byte, environ []string) (stdout, stderr []byte, err error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	cmd := exec.Command(path)
	cmd.Env, cmd.Stdin = environ, bytes.NewReader(stdin)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = lateOutput
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	complaint, err := cmd.StderrPipe()
	if err != nil {
		return nil, nil, errors.Join(err, out.Close())
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, threads.Explain(err)
	}
	var reading sync.WaitGroup
	keptOut, keptErr := &limited{max: maxOutput}, &limited{max: maxStderr}
	reading.Go(func() { _, _ = io.Copy(keptOut, out) }) // how it ended tells whether this is all
	reading.Go(func() { _, _ = io.Copy(keptErr, complaint) })
	killed := make(chan struct{})
	spare := context.AfterFunc(ctx, func() {
		defer close(killed)
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
	})
	well := endedWell(cmd.Process.Pid)
	if !spare() {
		<-killed // before its pid can be another's
	}
	for _, pipe := range []io.Reader{out, complaint} {
		if f, ok := pipe.(*os.File); ok {
			_ = f.SetReadDeadline(time.Now().Add(lateOutput)) // a pipe of os/exec has deadlines
		}
	}
	reading.Wait()
	if well {
		r.reaper.later(cmd)
	} else {
		err = cmd.Wait()
	}
	return keptOut.buf, keptErr.buf, err
}

// endedWell waits until a child has ended, leaves it a zombie, and says whether
// its exit code was 0. If it could not be told, it was not.
func endedWell(pid int) bool {
	const exited = 1 // CLD_EXITED, the si_code of a process that was not killed
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		// The union of siginfo_t starts at the first multiple of a pointer's size
		// after three integers: si_pid, si_uid, si_status.
		const word = unsafe.Sizeof(uintptr(0))
		fields := (*[3]int32)(unsafe.Add(unsafe.Pointer(&info), (12+word-1)&^(word-1)))
		return err == nil && info.Code == exited && fields[2] == 0
	}
}

// reapDelay is how long a plugin that has ended stays a zombie.
const reapDelay = 50 * time.Millisecond

// reaper takes plugins that have ended off the kernel's list, some time after.
//
// The kernel tells that a process has ended before its last thread has tidied up
// its folder in /proc. Who takes the process off the list meanwhile has to wait
// for that thread and does so spinning, which on a busy machine was a quarter of
// all that the daemon spent on pods (docs/design/0003-pod-start.md).
type reaper struct {
	mu    sync.Mutex
	ended []grave       // the oldest first
	idle  chan struct{} // closed when ended is empty; nil while it is
}

type grave struct {
	cmd *exec.Cmd
	due time.Time
}

// later has a process that has ended waited for.
func (r *reaper) later(cmd *exec.Cmd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, grave{cmd, time.Now().Add(reapDelay)})
	if r.idle == nil {
		r.idle = make(chan struct{})
		go r.dig(r.idle)
	}
}

// dig ends when there is nothing left to wait for.
func (r *reaper) dig(idle chan<- struct{}) {
	defer close(idle)
	for {
		r.mu.Lock()
		if len(r.ended) == 0 {
			r.ended, r.idle = nil, nil
			r.mu.Unlock()
			return
		}
		next := r.ended[0]
		r.ended = r.ended[1:]
		r.mu.Unlock()
		time.Sleep(time.Until(next.due))
		_ = next.cmd.Wait() // it has ended well, and its output is read
	}
}

// wait returns when everything has been waited for.
func (r *reaper) wait() {
	r.mu.Lock()
	idle := r.idle
	r.mu.Unlock()
	if idle != nil {
		<-idle
	}
}

// limited keeps the first bytes of what is written to it.
type limited struct {
	buf []byte
	max int
}

func (l *limited) Write(p []byte) (int, error) {
	l.buf = append(l.buf, p[:min(len(p), l.max-len(l.buf))]...)
	return len(p), nil
}
