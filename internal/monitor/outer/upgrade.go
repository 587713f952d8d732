package outer

import (
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/linux"
)

// The places of an upgrade at which a test kills this process.
var (
	tested = failpoint.Register("monitor.upgrade.tested")
	packed = failpoint.Register("monitor.upgrade.outer-packed")
)

// SelfTest is the argument with which a new binary shows that it runs here,
// before both processes become it.
const SelfTest = "self-test"

// startUpgrade tries the binary that is on disk by now. If it ends well, the
// inner process is asked to come to rest; its answer leads to upgrade.
func (o *outer) startUpgrade() {
	if o.check != 0 {
		return
	}
	pid, err := handover.Spawn(o.cfg.Binary, []string{SelfTest}, MaxProcs, nil)
	if err != nil {
		o.cfg.Log.Error("upgrade refused: the binary does not run", "binary", o.cfg.Binary, "error", err)
		return
	}
	o.check = pid
}

func (o *outer) checked(e linux.Ended) {
	o.check = 0
	if e.Code != 0 {
		o.cfg.Log.Error("upgrade refused: the binary fails its self test", "binary", o.cfg.Binary, "code", e.Code)
		return
	}
	_ = failpoint.Hit(tested)
	o.cfg.Log.Info("upgrade begins", "binary", o.cfg.Binary)
	o.tell(handover.Upgrade)
}

// upgrade becomes the new binary. The inner process has announced that it does
// the same, and says nothing more until it has. It may have died since.
func (o *outer) upgrade() {
	o.mu.Lock()
	conn, held := o.conn, o.held
	o.mu.Unlock()
	// Nobody reads the connection any more, so nothing changes held.
	state := handover.State{Held: held, Lock: o.lock, Inner: o.inner, Ready: o.cfg.Ready, Score: o.score}
	if conn != nil {
		state.Control = conn.FD()
	}
	fd, err := state.Pack()
	if err == nil {
		_ = failpoint.Hit(packed)
		err = handover.Exec(o.cfg.Binary, resumeArgs(o.cfg, fd), MaxProcs, o.signals)
		state.Unpacked(fd)
	}
	// Still the old program, whole: the inner process will say hello to it.
	o.cfg.Log.Error("upgrade of the outer process failed", "error", err)
	if conn != nil {
		o.listenTo(conn)
	}
}

func resumeArgs(cfg Config, fd int) []string {
	return []string{
		handover.Arg(handover.FlagRole, handover.RoleOuter),
		handover.Arg(handover.FlagState, cfg.StateDir),
		handover.Arg(handover.FlagBinary, cfg.Binary),
		handover.ArgFD(handover.FlagHandover, fd),
	}
}

// Become turns the calling process, an inner one whose outer one has died,
// into the outer process. It returns only with an error.
func Become(cfg Config, state handover.State) error {
	fd, err := state.Pack()
	if err != nil {
		return err
	}
	return handover.Exec(cfg.Binary, resumeArgs(cfg, fd), MaxProcs, nil)
}
