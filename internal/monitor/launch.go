package monitor

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/outer"
	"fairlead.run/internal/threads"
)

// maxLog is the size in bytes at which the log of a starting monitor begins
// anew.
const maxLog = 1 << 20

// launch starts the outer process and ends: the monitor is then nobody's
// child, has a session of its own and no tie to the daemon that wanted it.
// Descriptor 3 is the pipe on which the monitor tells that it is ready.
func launch(o *options) error {
	if err := os.MkdirAll(outer.Dir(o.state), 0o700); err != nil {
		return fmt.Errorf("make state directory of the monitor: %w", err)
	}
	log, err := openLog(filepath.Join(outer.Dir(o.state), "monitor.log"))
	if err != nil {
		return err
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	argv := []string{
		o.binary,
		handover.Arg(handover.FlagState, o.state),
		handover.Arg(handover.FlagBinary, o.binary),
		handover.Arg(handover.FlagCgroup, o.cgroup),
		handover.ArgFD(handover.FlagReady, 3),
	}
	_, err = syscall.ForkExec(o.binary, argv, &syscall.ProcAttr{
		Dir:   "/",
		Env:   handover.Environment(outer.MaxProcs),
		Files: []uintptr{uintptr(null), uintptr(log), uintptr(log), uintptr(o.ready)},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", o.binary, threads.Explain(err))
	}
	return nil
}

func openLog(path string) (int, error) {
	flags := unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT | unix.O_CLOEXEC | unix.O_NOFOLLOW
	if st, err := os.Stat(path); err == nil && st.Size() > maxLog {
		flags |= unix.O_TRUNC
	}
	fd, err := unix.Open(path, flags, 0o600)
	if err != nil {
		return -1, fmt.Errorf("open log of the monitor %s: %w", path, err)
	}
	return fd, nil
}
