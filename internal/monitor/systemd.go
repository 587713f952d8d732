package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/outer"
	"fairlead.run/internal/monitor/wire"
)

// introduceLimit bounds the wait for a monitor that is being replaced.
const introduceLimit = 10 * time.Second

// introduce tells systemd, if it has started this process, which process is the
// monitor already: one that a daemon has started, or one that has taken the
// place of the unit's first process when that was killed. systemd then takes it
// for the unit's, instead of starting this program again and again.
func introduce(ctx context.Context, stateDir string) error {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, introduceLimit)
	defer cancel()
	for {
		pid, err := askOuter(ctx, stateDir)
		if err == nil {
			linux.NotifySystemd("MAINPID=" + strconv.Itoa(pid) + "\nREADY=1\nSTATUS=already running")
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("tell systemd which process is the monitor: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// askOuter returns the pid of the outer process.
func askOuter(ctx context.Context, stateDir string) (int, error) {
	conn, err := wire.Dial(ctx, outer.Socket(stateDir))
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return 0, err
		}
	}
	if err := conn.Send(monitorv1.Request{Version: monitorv1.Version, Op: monitorv1.OpInfo}); err != nil {
		return 0, err
	}
	var reply monitorv1.Reply
	fds, err := conn.Recv(&reply, monitorv1.MaxReply)
	wire.CloseAll(fds)
	if err != nil {
		return 0, err
	}
	if reply.Error != nil {
		return 0, reply.Error
	}
	var info monitorv1.Info
	if err := json.Unmarshal(reply.Body, &info); err != nil {
		return 0, fmt.Errorf("decode the monitor's description: %w", err)
	}
	// An inner process that has just lost its parent tells whose child it is.
	if !sameProgram(info.OuterPID) {
		return 0, fmt.Errorf("the monitor is taking over from itself: %w", errdefs.ErrUnavailable)
	}
	return info.OuterPID, nil
}

// sameProgram says whether a process runs a program of the same name as this.
func sameProgram(pid int) bool {
	name := func(who string) string {
		path, _ := os.Readlink("/proc/" + who + "/exe")
		return filepath.Base(strings.TrimSuffix(path, " (deleted)")) // replaced by an upgrade
	}
	own := name("self")
	return own != "" && name(strconv.Itoa(pid)) == own
}
