package stdio

import (
	"fmt"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/journal"
	"fairlead.run/internal/monitor/launch"
)

// Until the runtime has written the pid file, output may be the runtime's own.
// What fits the FIFO waits there; a runtime that says more is copied up to
// talkLimit bytes, which a container cannot reach before its pid is written
// without waiting for it, and is then given talkGrace to come to the point.
const (
	talkative = 32 << 10
	talkLimit = 4 << 20
	talkGrace = time.Second
)

// Talk watches how much a runtime says before its container starts.
type Talk struct {
	IO      *Stdio
	Pool    *journal.Pool
	Command *launch.Command
	full    time.Time // since when the limit is reached
}

// Look is called now and then while the command runs.
func (t *Talk) Look() error {
	if !t.IO.Copying() {
		if t.IO.Waiting() >= talkative {
			return t.IO.Start(t.Pool, talkLimit)
		}
		return nil
	}
	if _, err := t.Command.ReadPID(); err == nil {
		t.IO.Open() // it is the container that talks
		return nil
	}
	if !t.IO.Stuck() {
		return nil
	}
	if t.full.IsZero() {
		t.full = time.Now()
	}
	if time.Since(t.full) > talkGrace {
		return fmt.Errorf("%s wrote more than %d MiB of messages without starting the container and was killed: %w", t.Command.Name(), talkLimit>>20, errdefs.ErrInternal)
	}
	return nil
}
