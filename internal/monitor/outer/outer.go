package outer

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/handover"
	"fairlead.run/internal/monitor/linux"
	"fairlead.run/internal/monitor/record"
	"fairlead.run/internal/monitor/wire"
)

// Config says where the monitor works.
type Config struct {
	StateDir string // absolute
	Binary   string // absolute; what inner processes and upgrades run
	Ready    int    // a pipe to report readiness on; zero means none
	Resume   *handover.State
	Log      *slog.Logger
}

// MaxProcs is what GOMAXPROCS is set to: this process does next to nothing.
const MaxProcs = "1"

// innerMaxProcs lets the inner process copy two streams at a time.
const innerMaxProcs = "2"

// The places at which a test kills this process.
var (
	begun        = failpoint.Register("monitor.outer.begun")
	innerDied    = failpoint.Register("monitor.outer.inner-died")
	exitRecorded = failpoint.Register("monitor.outer.exit-recorded")
	endRecorded  = failpoint.Register("monitor.outer.end-recorded")
	spawned      = failpoint.Register("monitor.outer.spawned")
	greeted      = failpoint.Register("monitor.outer.greeted")
	leaving      = failpoint.Register("monitor.outer.leaving")
)

// Dir returns the monitor's folder in a state directory.
func Dir(stateDir string) string { return filepath.Join(stateDir, "monitor") }

// Socket returns the path of the socket on which the inner process serves.
func Socket(stateDir string) string { return filepath.Join(Dir(stateDir), "monitor.sock") }

// outer is the state of the process. The main loop owns what is not under mu.
type outer struct {
	cfg     Config
	records *record.Dir
	lock    int
	inner   int     // pid, zero while there is none
	check   int     // pid of a new binary's self test
	last    attempt // to start an inner process
	score   string  // see handover.State
	wg      sync.WaitGroup

	signals chan os.Signal
	events  chan event    // what the control connection says
	read    chan struct{} // closed when nobody reads the connection any more
	ends    ends

	mu   sync.Mutex
	conn *wire.Conn
	held map[string]int
}

// attempt is a start of an inner process.
type attempt struct {
	at    time.Time
	fails int // deaths in a row soon after the start, before it
}

// event is what the reader of the control connection leaves to the main loop.
type event struct{ op handover.Op }

// stuck is an event of the reader's own: the inner process waits for what does
// not come.
const stuck handover.Op = "stuck"

// Run is the outer process. It returns when the monitor was shut down, or with
// an error when it could not start.
func Run(ctx context.Context, cfg Config) error {
	o := &outer{cfg: cfg, held: map[string]int{}, events: make(chan event, 8), signals: make(chan os.Signal, 64)}
	handover.Listen(o.signals)
	if err := linux.BecomeSubreaper(); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	var err error
	if o.ends, err = newEnds(); err != nil {
		return fmt.Errorf("watch the ends of processes: %w", err)
	}
	if err := o.begin(); err != nil {
		return err
	}
	defer o.wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o.wg.Go(func() { o.ends.run(ctx) })
	return o.loop(ctx)
}

// begin takes the state directory, or takes over from a predecessor.
func (o *outer) begin() error {
	dir := Dir(o.cfg.StateDir)
	if s := o.cfg.Resume; s != nil {
		o.lock, o.cfg.Ready, o.score = s.Lock, s.Ready, s.Score
		o.inner, o.last.at = s.Inner, time.Now()
		for key, fd := range s.Held {
			o.hold(key, fd)
		}
	} else {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make state directory of the monitor: %w", err)
		}
		lock, err := lockDir(dir)
		if err != nil {
			return err
		}
		o.lock = lock
		o.lowerScore()
	}
	// A predecessor that did not live to take it from the one before has none.
	if _, ok := o.held[handover.KeyListener]; !ok {
		listener, err := wire.Listen(Socket(o.cfg.StateDir))
		if err != nil {
			return err
		}
		o.held[handover.KeyListener] = listener
	}
	_ = failpoint.Hit(begun)
	var err error
	if o.records, err = record.Open(dir); err != nil {
		return err
	}
	if s := o.cfg.Resume; s != nil && s.Control > 0 {
		conn, err := wire.NewConn(s.Control)
		if err != nil {
			return err
		}
		o.listenTo(conn)
	}
	return nil
}

// loop reaps and respawns until the monitor is shut down.
func (o *outer) loop(ctx context.Context) error {
	stopping := false
	for {
		if died := o.reap(); died {
			_ = failpoint.Hit(innerDied)
			o.forget()
			// Its last words may be that it was not to be replaced.
			stopping = o.handleAll() || stopping
		}
		if o.inner == 0 && stopping {
			return o.leave()
		}
		var retry <-chan time.Time
		if o.inner == 0 {
			retry = o.respawn()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case sig := <-o.signals:
			o.signal(sig)
		case e := <-o.events:
			stopping = o.handle(e) || stopping
		case s := <-o.ends.seen:
			o.ends.late = append(o.ends.late, s)
		case <-o.ends.due():
			o.recordSeen()
		case <-retry:
		}
	}
}

func (o *outer) signal(sig os.Signal) {
	switch sig {
	case unix.SIGHUP:
		o.startUpgrade()
	case unix.SIGTERM, unix.SIGINT:
		// The inner process knows whether anything lives.
		o.tell(handover.Shutdown)
	}
}

// handleAll handles what was said up to now.
func (o *outer) handleAll() (stopping bool) {
	for {
		select {
		case e := <-o.events:
			stopping = o.handle(e) || stopping
		default:
			return stopping
		}
	}
}

func (o *outer) handle(e event) (stopping bool) {
	switch e.op {
	case handover.Ready:
		o.reportReady()
	case handover.Upgrade:
		o.upgrade()
	case handover.Shutdown:
		return true
	case stuck:
		if o.inner > 0 {
			_ = unix.Kill(o.inner, unix.SIGKILL)
		}
	}
	return false
}

// tell sends a message that carries nothing; an inner process that is dead
// does not need it.
func (o *outer) tell(op handover.Op) {
	o.mu.Lock()
	conn := o.conn
	o.mu.Unlock()
	if conn == nil {
		return
	}
	if err := conn.Send(handover.Message{Op: op}); err != nil {
		o.cfg.Log.Warn("message to the inner process lost", "op", string(op), "error", err)
	}
}

// leave removes everything that the monitor has made.
func (o *outer) leave() error {
	_ = failpoint.Hit(leaving)
	o.cfg.Log.Info("shut down")
	return os.RemoveAll(Dir(o.cfg.StateDir))
}

// reportReady tells who started the monitor that it serves.
func (o *outer) reportReady() {
	linux.NotifySystemd("READY=1")
	if o.cfg.Ready <= 0 {
		return
	}
	// A starter that has gone does not need to know.
	_, _ = syscall.Write(o.cfg.Ready, []byte("ok\n"))
	_ = syscall.Close(o.cfg.Ready)
	o.cfg.Ready = 0
}

// lowerScore makes the monitor the last that the kernel kills for memory, if
// it may, and remembers what its children are to have instead.
func (o *outer) lowerScore() {
	const last = -999
	score, err := linux.OOMScore()
	if err != nil {
		return
	}
	if score <= last {
		// systemd has done it, so what would have been is the default.
		o.score = "0"
		return
	}
	if err := linux.SetOOMScore(0, last); err != nil {
		o.cfg.Log.Warn("oom_score_adj not lowered: the kernel may kill the monitor when memory runs out", "error", err)
		return
	}
	o.score = strconv.Itoa(score)
}
