package inner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/cgroup"
	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/journal"
	"fairlead.run/internal/monitor/launch"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/orphan"
	"fairlead.run/internal/monitor/outer"
	"fairlead.run/internal/monitor/record"
	"fairlead.run/internal/monitor/stdio"
	"fairlead.run/internal/monitor/stream"
	"fairlead.run/internal/monitor/wire"
)

// The places at which a test kills this process.
var (
	begun     = failpoint.Register("monitor.inner.begun")
	takenOver = failpoint.Register("monitor.inner.taken-over")
	loaded    = failpoint.Register("monitor.inner.loaded")
	leaving   = failpoint.Register("monitor.inner.leaving")
	atRest    = failpoint.Register("monitor.upgrade.at-rest")
	announced = failpoint.Register("monitor.upgrade.announced")
	becoming  = failpoint.Register("monitor.inner.becoming-outer")
	exitSeen  = failpoint.Register("monitor.exit.seen")
	exitKept  = failpoint.Register("monitor.exit.recorded")
	reaped    = failpoint.Register("monitor.exit.reaped")
)

// Config says where the process works and what it inherited.
type Config struct {
	StateDir string
	Binary   string
	Version  string
	Score    string // oom_score_adj for runtime commands; empty leaves it
	Control  int    // descriptor of the connection to the outer process
	Lock     int    // descriptor of the lock of the state directory
	Log      *slog.Logger
	// Kept is what the predecessor in this pid has left of what the outer
	// process holds, in case that it is dead.
	Kept map[string]int
}

// Inner is the state of the process.
type Inner struct {
	cfg      Config
	dir      string
	records  *record.Dir
	pool     *journal.Pool
	stalls   *stream.Stalls
	link     *handover.Link
	ends     *orphan.Ends
	launcher *launch.Launcher
	table    *table
	kills    *cgroup.Ledger
	started  time.Time

	// spawn runs something beside the request that asked for it, until the
	// process comes to rest. Run owns all of it.
	spawn   func(func(context.Context))
	wg      sync.WaitGroup // every goroutine
	resting atomic.Bool
	rest    chan reason // why Run shall end
}

// reason is why the process comes to rest, and so what it does next.
type reason int

const (
	outerDied reason = iota
	upgrade
	shutdown
)

// errRest is the cause of the context's end.
var errRest = errors.New("the monitor is restarting")

// Run is the inner process. Except after a shutdown it does not return: the
// process becomes its own successor, or the outer process.
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dir := outer.Dir(cfg.StateDir)
	in := &Inner{
		cfg: cfg, dir: dir, started: time.Now(),
		rest: make(chan reason, 4),
	}
	in.spawn = func(work func(context.Context)) { in.wg.Go(func() { work(ctx) }) }
	// Inherited on purpose by this process, and by none of its children.
	if err := linux.CloseOnExec(cfg.Lock); err != nil {
		return fmt.Errorf("take over the lock: %w", err)
	}
	signals := make(chan os.Signal, 64)
	handover.Listen(signals)
	if err := linux.BecomeSubreaper(); err != nil {
		return fmt.Errorf("become the parent of containers: %w", err)
	}
	_ = failpoint.Hit(begun)
	listener, err := in.begin(ctx)
	if errors.Is(err, handover.ErrOuterDied) {
		cfg.Log.Warn("outer process died before it was replaced or met; taking its place", "error", err)
		return in.becomeOuter()
	}
	if err != nil {
		return err
	}
	// They own what the successor gets; the collector must not close it before.
	defer func() { runtime.KeepAlive(in); runtime.KeepAlive(listener) }()
	in.wg.Go(func() { in.serve(ctx, listener) })
	if err := in.link.Send(handover.Ready, ""); err != nil {
		cfg.Log.Warn("outer process not told of readiness", "error", err)
	}
	why := in.loop(ctx, signals)
	return in.leave(why, cancel, listener)
}

// begin takes over descriptors, records and processes.
func (in *Inner) begin(ctx context.Context) (*wire.Listener, error) {
	var err error
	if in.records, err = record.Open(in.dir); err != nil {
		return nil, err
	}
	in.table = newTable(in.records, in.cfg.Log)
	in.stalls = stream.NewStalls()
	in.spawn(in.stalls.Run)
	if in.kills, err = cgroup.NewLedger(); err != nil {
		return nil, fmt.Errorf("find cgroup hierarchies: %w", err)
	}
	if in.link, err = handover.Connect(in.cfg.Control, in.cfg.Kept); err != nil {
		return nil, err
	}
	_ = failpoint.Hit(takenOver)
	in.wg.Go(func() { in.listenToOuter() })
	in.launcher = &launch.Launcher{
		Children: in.table, Score: in.cfg.Score, ConsoleDir: filepath.Join(in.dir, "c"),
		Go: func(work func()) { in.wg.Go(work) },
	}
	if err := os.MkdirAll(in.launcher.ConsoleDir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder for console sockets: %w", err)
	}
	if err := in.load(ctx); err != nil {
		return nil, err
	}
	_ = failpoint.Hit(loaded)
	fd, ok := in.link.Take(handover.KeyListener)
	if !ok {
		return nil, errors.New("start serving: the outer process passed no socket")
	}
	return wire.NewListener(os.NewFile(uintptr(fd), "listener"))
}

// loop reaps until there is a reason to rest.
func (in *Inner) loop(ctx context.Context, signals <-chan os.Signal) reason {
	in.reap()
	for {
		select {
		case why := <-in.rest:
			return why
		case <-ctx.Done():
			return shutdown
		case sig := <-signals:
			switch sig {
			case unix.SIGCHLD:
				in.reap()
			case unix.SIGHUP:
				in.forwardUpgrade()
			case unix.SIGTERM, unix.SIGINT:
				in.spawn(in.stopIfIdle)
			}
		}
	}
}

// reap records and reaps every child that has ended. Nothing here waits for a
// disk or for a container.
func (in *Inner) reap() {
	for {
		e, ok := linux.NextEnded()
		if !ok {
			return
		}
		_ = failpoint.Hit(exitSeen)
		in.table.childEnded(e)
		_ = failpoint.Hit(exitKept)
		linux.Reap(e.PID)
		_ = failpoint.Hit(reaped)
	}
}

func (in *Inner) forwardUpgrade() {
	if err := unix.Kill(os.Getppid(), unix.SIGHUP); err != nil {
		in.cfg.Log.Error("outer process not told to upgrade", "error", err)
	}
}

// stopIfIdle is the answer to a request to end, by systemd or a user: it is
// obeyed when nothing would lose its parent.
func (in *Inner) stopIfIdle(ctx context.Context) {
	if err := in.prepareShutdown(ctx, monitorv1.ShutdownRequest{}); err != nil {
		in.cfg.Log.Warn("request to end refused", "error", err)
		return
	}
	in.rest <- shutdown
}

// How long to wait for what is under way before an exec. What is cut off is
// recovered as after a crash.
const (
	startsGrace = 3 * time.Second
	copyGrace   = time.Second
	logGrace    = 3 * time.Second // or else there is no upgrade
)

// leave brings everything to rest and becomes what why says.
func (in *Inner) leave(why reason, cancel context.CancelCauseFunc, listener *wire.Listener) error {
	_ = failpoint.Hit(leaving)
	// New callers wait in the socket's queue, which outlives this process.
	_ = listener.SetDeadline(time.Unix(1, 0))
	in.table.refuse()
	in.resting.Store(true)
	if why != shutdown {
		in.table.awaitStarts(startsGrace)
	}
	cancel(errRest)
	if why != outerDied {
		// Its reader ends with the connection; it waits for no more than that.
		in.link.Rest()
	}
	waitFor(&in.wg, copyGrace)
	switch why {
	case upgrade:
		in.keepPidfds()
		return in.execSelf()
	case outerDied:
		return in.becomeOuter()
	}
	return in.link.Send(handover.Shutdown, "")
}

// waitFor waits for the goroutines, but not for one that hangs in the kernel.
func waitFor(wg *sync.WaitGroup, limit time.Duration) {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

func (in *Inner) execSelf() error {
	_ = failpoint.Hit(atRest)
	state := handover.State{Held: in.held(), Lock: in.cfg.Lock, Control: in.link.FD()}
	fd, err := state.Pack()
	if err != nil {
		return err
	}
	if err := in.link.Send(handover.Upgrade, ""); err != nil {
		in.cfg.Log.Warn("outer process died during an upgrade; taking its place", "error", err)
		state.Unpacked(fd)
		return in.becomeOuter()
	}
	_ = failpoint.Hit(announced)
	return handover.Exec(in.cfg.Binary, []string{
		handover.Arg(handover.FlagRole, handover.RoleInner),
		handover.Arg(handover.FlagState, in.cfg.StateDir),
		handover.Arg(handover.FlagBinary, in.cfg.Binary),
		handover.ArgFD(handover.FlagControl, in.link.FD()),
		handover.ArgFD(handover.FlagLock, in.cfg.Lock),
		handover.ArgFD(handover.FlagHandover, fd),
		handover.Arg(handover.FlagScore, in.cfg.Score),
	}, os.Getenv("GOMAXPROCS"), nil)
}

// becomeOuter makes this process the outer one, with all its children. They
// are not lost to the new inner process: it is told of their exits by records.
func (in *Inner) becomeOuter() error {
	_ = failpoint.Hit(becoming)
	cfg := outer.Config{StateDir: in.cfg.StateDir, Binary: in.cfg.Binary}
	return outer.Become(cfg, handover.State{Held: in.held(), Lock: in.cfg.Lock, Score: in.cfg.Score})
}

// held is what an outer process has to hold for a successor of this one.
func (in *Inner) held() map[string]int {
	held := in.link.Held()
	for _, p := range in.table.all() {
		p.handOver(held)
	}
	return held
}

// keepPidfds lets the outer process hold who lives, so that the kernel keeps
// the exit codes of those that are not our children over the exec.
func (in *Inner) keepPidfds() {
	for _, p := range in.table.all() {
		in.holdProcess(p)
	}
}

// host is what the input and output of containers need of this process.
func (in *Inner) host() stdio.Host {
	return stdio.Host{Link: in.link, Stalls: in.stalls, Log: in.cfg.Log, Resting: in.resting.Load, Spawn: in.spawn}
}
