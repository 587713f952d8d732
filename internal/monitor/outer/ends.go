package outer

import (
	"context"
	"strings"
	"time"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/record"
)

// patience is how long the inner process has to note that a container's process
// has ended. It takes a millisecond, unless it is stopped or dead.
const patience = 100 * time.Millisecond

// ends are what this process knows of the ends of processes. Of those that are
// not its children it sees only when, which the inner one does not learn if it
// is stopped meanwhile. Nothing is written where it is not.
type ends struct {
	exits []record.Ident // recorded, oldest first
	watch *linux.Watch
	since map[string]time.Time // from when on a process is held under a key
	seen  chan sighting
	late  []sighting // the main loop's: not noted by the inner process yet, oldest first
}

// sighting is the end of the process that is held under a key.
type sighting struct {
	key string
	at  time.Time
}

func newEnds() (ends, error) {
	watch, err := linux.NewWatch()
	return ends{watch: watch, since: map[string]time.Time{}, seen: make(chan sighting, 64)}, err
}

// run leaves what is seen to the main loop, until ctx ends.
func (e *ends) run(ctx context.Context) {
	e.watch.Run(ctx, func(key string, at time.Time) {
		select {
		case e.seen <- sighting{key, at}:
		case <-ctx.Done():
		}
	})
}

// due is when the patience with the oldest sighting ends; never if there is none.
func (e *ends) due() <-chan time.Time {
	if len(e.late) == 0 {
		return nil
	}
	return time.After(time.Until(e.late[0].at.Add(patience)))
}

// recordSeen records what was seen more than patience ago, unless the inner
// process has done with it.
func (o *outer) recordSeen() {
	for len(o.ends.late) > 0 && time.Since(o.ends.late[0].at) >= patience {
		s := o.ends.late[0]
		o.ends.late = o.ends.late[1:]
		o.mu.Lock()
		since, held := o.ends.since[s.key]
		o.mu.Unlock()
		if !held || s.at.Before(since) { // of an earlier process of that name
			continue
		}
		if err := o.records.SaveSeen(strings.TrimPrefix(s.key, handover.KeyPidfd), s.at); err != nil {
			o.cfg.Log.Error("time of an exit not recorded", "key", s.key, "error", err)
		}
		_ = failpoint.Hit(endRecorded)
	}
	if len(o.ends.late) == 0 {
		o.ends.late = nil
	}
}
