package inner

import (
	"fairlead.run/internal/monitor/crilog"
	"fairlead.run/internal/monitor/handover"
)

// listenToOuter waits for what the outer process has to say: to upgrade, to
// stop, or, by the end of the connection, that it has died.
func (in *Inner) listenToOuter() {
	for {
		op, err := in.link.Recv()
		if in.resting.Load() {
			return
		}
		if err != nil {
			in.cfg.Log.Warn("outer process died; taking its place", "error", err)
			in.rest <- outerDied
			return
		}
		switch op {
		case handover.Upgrade:
			if path := crilog.Hanging(logGrace); path != "" { // it would hold up the exec, and so all
				in.cfg.Log.Error("upgrade refused: an operation on a log does not end; ask again when its file system answers", "log", path)
				continue
			}
			in.rest <- upgrade
			return
		case handover.Shutdown:
			in.spawn(in.stopIfIdle)
		}
	}
}
