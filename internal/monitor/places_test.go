package monitor_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/monitor/client"
)

// places says for each place at which the monitor can be killed what leads
// there. A scenario does what a caller would, repeats what failed for want of
// a monitor as a caller would, and checks the outcome.
var places = map[string]func(*placed){
	"monitor.start.reserved":         (*placed).start,
	"monitor.start.recorded":         (*placed).start,
	"monitor.start.io-made":          (*placed).start,
	"monitor.start.after-fork":       (*placed).start,
	"monitor.start.command-recorded": (*placed).start,
	"monitor.start.command-ended":    (*placed).start,
	"monitor.start.after-adopt":      (*placed).start,
	"monitor.start.copying":          (*placed).start,
	"monitor.start.unanswered":       (*placed).start,
	"monitor.start.terminal-taken":   (*placed).startTerminal,
	"monitor.start.undone":           (*placed).failToStart,
	"monitor.exec.recorded":          (*placed).exec,
	"monitor.exec.terminal-taken":    (*placed).execTerminal,
	"monitor.exit.seen":              (*placed).exit,
	"monitor.exit.recorded":          (*placed).exit,
	"monitor.exit.reaped":            (*placed).exit,
	"monitor.exit.drained":           (*placed).exit,
	"monitor.exit.numbered":          (*placed).exit,
	"monitor.exit.announced":         (*placed).exit,
	"monitor.copy.after-peek":        (*placed).copy,
	"monitor.copy.after-arm":         (*placed).copy,
	"monitor.copy.after-write":       (*placed).copy,
	"monitor.copy.after-consume":     (*placed).copy,
	"monitor.terminal.expected":      (*placed).copyTerminal,
	"monitor.terminal.read":          (*placed).copyTerminal,
	"monitor.terminal.noted":         (*placed).copyTerminal,
	"monitor.terminal.armed":         (*placed).copyTerminal,
	"monitor.terminal.written":       (*placed).copyTerminal,
	"monitor.reopen.opened":          (*placed).reopen,
	"monitor.reopen.swapped":         (*placed).reopen,
	"monitor.attach.joined":          (*placed).attach,
	"monitor.attach.left":            (*placed).detach,
	"monitor.signal.sent":            (*placed).signalled,
	"monitor.close-stdin.recorded":   (*placed).closeStdin,
	"monitor.give-up.marked":         (*placed).giveUp,
	"monitor.give.taken":             (*placed).give,
	"monitor.forget.io-closed":       (*placed).forget,
	"monitor.forget.unrecorded":      (*placed).forget,
	"monitor.inner.leaving":          (*placed).upgrade,
	"monitor.upgrade.tested":         (*placed).upgrade,
	"monitor.upgrade.at-rest":        (*placed).upgrade,
	"monitor.upgrade.announced":      (*placed).upgrade,
	"monitor.upgrade.outer-packed":   (*placed).upgrade,
	"monitor.inner.begun":            (*placed).innerDies,
	"monitor.inner.taken-over":       (*placed).innerDies,
	"monitor.inner.kernel-tells":     (*placed).innerDies,
	"monitor.inner.loaded":           (*placed).innerDies,
	"monitor.outer.inner-died":       (*placed).innerDies,
	"monitor.outer.exit-recorded":    (*placed).innerDies,
	"monitor.outer.end-recorded":     (*placed).innerStops,
	"monitor.outer.spawned":          (*placed).innerDies,
	"monitor.outer.greeted":          (*placed).innerDies,
	"monitor.outer.begun":            (*placed).outerDies,
	"monitor.inner.becoming-outer":   (*placed).outerDies,
	"monitor.shutdown.agreed":        (*placed).shutDown,
	"monitor.outer.leaving":          (*placed).shutDown,
}

// placed is a monitor that is killed at a place, once, after aim was called.
type placed struct {
	*node
	once string
}

// aim makes the next pass of the place the last thing that the process does.
func (n *placed) aim() {
	n.t.Helper()
	if err := os.Remove(n.once); err != nil {
		n.t.Fatal(err)
	}
}

// Killed at any place, the monitor loses nothing, doubles nothing, and a caller
// who repeats his request gets what he asked for.
func TestKillAtEveryPlace(t *testing.T) {
	t.Parallel()
	for name, scenario := range places {
		t.Run(strings.TrimPrefix(name, "monitor."), func(t *testing.T) {
			t.Parallel()
			n := &placed{once: t.TempDir() + "/killed"}
			if err := os.WriteFile(n.once, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			n.node = newNode(t, failpoint.MonitorEnv+"="+name+"=kill!"+n.once)
			n.start0(n.bystander("bystander"))
			scenario(n)
			n.open("bystander")
			if _, err := os.Stat(n.once); err != nil {
				t.Error("the place was never reached")
			}
			if e := n.wait("bystander"); e.Code != 0 || e.Lost {
				t.Errorf("exit of the bystander: %+v", e)
			}
			n.complete("bystander")
			n.forgetAll()
		})
	}
	known := slices.DeleteFunc(failpoint.Names(), func(name string) bool { return !strings.HasPrefix(name, "monitor.") })
	for _, name := range known {
		if places[name] == nil {
			t.Errorf("no scenario leads to %s", name)
		}
	}
	if len(places) != len(known) {
		t.Errorf("%d scenarios for %d places", len(places), len(known))
	}
}

// gated makes a script that waits until open is called, and goes on.
func (n *node) gated(id, script string) monitorv1.StartRequest {
	return n.shell(id, n.untilOpen(id)+script)
}

// untilOpen is the part of a script that waits for open.
func (n *node) untilOpen(id string) string {
	return "while [ ! -e " + n.gate(id) + " ]; do sleep 0.02; done; "
}

func (n *node) gate(id string) string { return n.dir + "/" + id + ".gate" }

// bystander is a container that prints until open is called.
func (n *node) bystander(id string) monitorv1.StartRequest {
	return n.container(id, n.bin, "print", id, n.gate(id), "10")
}

func (n *node) open(id string) {
	n.t.Helper()
	if err := os.WriteFile(n.gate(id), nil, 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// start0 starts a container as long as nothing is aimed.
func (n *placed) start0(req monitorv1.StartRequest) { n.node.start(req) }

// again repeats a request that failed because the monitor was restarted.
func (n *placed) again(what string, do func() error) {
	n.t.Helper()
	err := do()
	for range 5 {
		if !errors.Is(err, errdefs.ErrUnavailable) {
			break
		}
		n.t.Logf("%s: %v", what, err)
		err = do()
	}
	if err != nil {
		n.t.Fatalf("%s: %v", what, err)
	}
}

func (n *placed) started(req monitorv1.StartRequest) {
	n.t.Helper()
	n.again("start "+req.ID, func() error {
		_, err := n.Start(n.ctx, req)
		return err
	})
}

// ended checks how a container ended.
func (n *placed) ended(id string, code int, text string) {
	n.t.Helper()
	if e := n.wait(id); e.Code != code || e.Lost || e.Seq == 0 {
		n.t.Errorf("exit of %s: %+v", id, e)
	}
	if got := n.text(id, "stdout"); strings.ReplaceAll(got, "\r", "") != text {
		n.t.Errorf("log of %s: %q", id, got)
	}
}

func (n *placed) start() {
	n.aim()
	n.started(n.shell("a", "echo here; sleep 0.3; exit 6"))
	n.ended("a", 6, "here\n")
}

func (n *placed) startTerminal() {
	n.aim()
	n.started(n.terminal("a", "echo here; sleep 0.3; exit 6"))
	n.ended("a", 6, "here\n")
}

func (n *placed) failToStart() {
	req := n.shell("a", "true")
	req.Command = []string{"/bin/sh", "-c", "echo because >&2; exit 3"}
	n.aim()
	if _, err := n.Start(n.ctx, req); err == nil {
		n.t.Error("the start succeeded")
	}
	n.started(n.shell("a", "echo here; exit 6"))
	n.ended("a", 6, "here\n")
}

func (n *placed) exec() {
	n.aim()
	out, w, err := os.Pipe()
	if err != nil {
		n.t.Fatal(err)
	}
	defer out.Close()
	defer w.Close()
	n.again("exec", func() error {
		_, _, err := n.Exec(n.ctx, n.node.exec("e", "echo here; exit 6"), [3]*os.File{nil, w, nil})
		return err
	})
	said := make([]byte, 5)
	if _, err := out.Read(said); err != nil || string(said) != "here\n" {
		n.t.Errorf("it said %q %v", said, err)
	}
	if e := n.wait("e"); e.Code != 6 || e.Lost {
		n.t.Errorf("exit %+v", e)
	}
}

func (n *placed) execTerminal() {
	n.aim()
	id := "e"
	n.again("exec", func() error {
		req := n.node.exec(id, "sleep 0.2; exit 6")
		req.Command[3], req.TTY = monitorv1.ConsoleSocket, true
		_, master, err := n.Exec(n.ctx, req, [3]*os.File{})
		if err == nil {
			n.t.Cleanup(func() { _ = master.Close() })
			return nil
		}
		id += "x" // another exec has another id
		return err
	})
	if e := n.wait(id); e.Code != 6 || e.Lost {
		n.t.Errorf("exit %+v", e)
	}
}

func (n *placed) exit() {
	n.start0(n.gated("a", "echo here; exit 6"))
	n.start0(n.gated("b", "echo here; kill -11 $$"))
	n.aim()
	n.open("a")
	n.open("b")
	n.ended("a", 6, "here\n")
	n.ended("b", 139, "here\n")
	if e := n.wait("b"); e.Signal != 11 {
		n.t.Errorf("signal of b: %+v", e)
	}
}

func (n *placed) copy() {
	n.aim()
	n.started(n.container("a", n.bin, "count", "20000"))
	if e := n.wait("a"); e.Code != 0 || e.Lost {
		n.t.Errorf("exit %+v", e)
	}
	n.counted("a", 20000)
}

func (n *placed) copyTerminal() {
	n.aim()
	n.started(n.counting("a", 20000))
	if e := n.wait("a"); e.Code != 0 || e.Lost {
		n.t.Errorf("exit %+v", e)
	}
	n.counted("a", 20000)
}

func (n *placed) reopen() {
	n.start0(n.bystander("a"))
	n.eventually("output", func() bool {
		st, err := os.Stat(n.dir + "/a.log")
		return err == nil && st.Size() > 1000
	})
	if err := os.Rename(n.dir+"/a.log", n.dir+"/a.log.1"); err != nil {
		n.t.Fatal(err)
	}
	n.aim()
	n.again("reopen", func() error { return n.ReopenLog(n.ctx, "a") })
	n.eventually("output in the new log", func() bool {
		st, err := os.Stat(n.dir + "/a.log")
		return err == nil && st.Size() > 0
	})
	n.open("a")
	if e := n.wait("a"); e.Code != 0 || e.Lost {
		n.t.Errorf("exit %+v", e)
	}
	old, err := os.ReadFile(n.dir + "/a.log.1")
	if err != nil {
		n.t.Fatal(err)
	}
	young, err := os.ReadFile(n.dir + "/a.log")
	if err != nil || len(young) == 0 {
		n.t.Fatalf("new log of %d bytes: %v", len(young), err)
	}
	if err := os.WriteFile(n.dir+"/a.log", append(old, young...), 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.complete("a")
}

func (n *placed) attach() {
	req := n.shell("a", "read x; echo got $x; exit 6")
	req.Stdin = true
	n.start0(req)
	n.aim()
	n.again("attach", func() error {
		s, err := n.Attach(n.ctx, "a", client.AttachStreams{Stdin: true, Stdout: true})
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = s.Write([]byte("it\n"))
		return err
	})
	n.ended("a", 6, "got it\n")
}

func (n *placed) detach() {
	req := n.shell("a", "read x; echo got $x; read x; echo got $x; exit 6")
	req.Stdin = true
	n.start0(req)
	s, err := n.Attach(n.ctx, "a", client.AttachStreams{Stdin: true, Stdout: true})
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := s.Write([]byte("one\n")); err != nil {
		n.t.Fatal(err)
	}
	n.eventually("the first line", func() bool { return n.text("a", "stdout") == "got one\n" })
	n.aim()
	_ = s.Close() // the monitor dies of it
	n.hit()
	n.again("attach once more", func() error {
		s, err := n.Attach(n.ctx, "a", client.AttachStreams{Stdin: true})
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = s.Write([]byte("two\n"))
		return err
	})
	n.ended("a", 6, "got one\ngot two\n")
}

// signalled is about a signal that is sent, of which nobody hears any more.
func (n *placed) signalled() {
	n.start0(n.shell("a", "trap 'echo term; exit 6' TERM; echo up; while :; do sleep 0.02; done"))
	n.eventually("the trap", func() bool { return n.text("a", "stdout") == "up\n" })
	n.aim()
	n.again("signal", func() error {
		err := n.Signal(n.ctx, "a", unix.SIGTERM, false)
		if errors.Is(err, errdefs.ErrNotFound) {
			return nil // the first did it
		}
		return err
	})
	n.ended("a", 6, "up\nterm\n")
}

func (n *placed) closeStdin() {
	req := n.shell("a", "cat; exit 6")
	req.Stdin = true
	n.start0(req)
	n.aim()
	n.again("close input", func() error { return n.CloseStdin(n.ctx, "a") })
	n.ended("a", 6, "")
}

func (n *placed) giveUp() {
	hung := n.hang(n.hanging("a"))
	n.aim()
	n.giveUpUntil("a", hung)
	n.started(n.shell("a", "echo here; exit 6"))
	n.ended("a", 6, "here\n")
}

func (n *placed) forget() {
	n.start0(n.shell("a", "echo here; exit 6"))
	n.ended("a", 6, "here\n")
	n.aim()
	n.again("forget", func() error {
		err := n.Forget(n.ctx, "a")
		if errors.Is(err, errdefs.ErrNotFound) {
			return nil // the answer to the first request was lost
		}
		return err
	})
	if _, err := os.Stat(n.dir + "/a.io"); err == nil {
		n.t.Error("the folder of FIFOs is left")
	}
	if err := os.Remove(n.dir + "/a.log"); err != nil {
		n.t.Fatal(err)
	}
	n.started(n.shell("a", "echo again; exit 7"))
	n.ended("a", 7, "again\n")
}

// witnesses starts containers that end before, while and after the monitor is
// being killed.
func (n *placed) witnesses() {
	tty := n.gated("tty", "echo still here; exit 5")
	tty.TTY, tty.Command[3] = true, monitorv1.ConsoleSocket
	n.start0(tty)
	n.start0(n.shell("early", "exit 1"))
	n.start0(n.gated("soon", "exit 2"))
	n.start0(n.gated("late", "exit 3"))
	n.wait("early")
}

// seen checks them. Where both processes were dead for a moment, who ended in
// it is lost, and terminals are.
func (n *placed) seen(dead bool) {
	n.t.Helper()
	n.open("late")
	n.open("tty")
	for id, code := range map[string]int{"early": 1, "soon": 2, "late": 3, "tty": 5} {
		e := n.wait(id)
		lost := e.Lost && e.Code == monitorv1.LostCode || id == "tty" && e.Signal == int(unix.SIGHUP)
		if e.Code != code && !(dead && lost && id != "late" && id != "early") {
			n.t.Errorf("exit of %s: %+v", id, e)
		}
	}
	if got := n.text("tty", "stdout"); !dead && got != "still here\r\n" {
		n.t.Errorf("log of tty: %q", got)
	}
}

func (n *placed) hit() {
	n.t.Helper()
	n.eventually("the place", func() bool {
		_, err := os.Stat(n.once)
		return err == nil
	})
}

func (n *placed) upgrade() {
	n.witnesses()
	before := n.info()
	n.aim()
	n.open("soon")
	if err := unix.Kill(before.OuterPID, unix.SIGHUP); err != nil {
		n.t.Fatal(err)
	}
	n.hit()
	n.seen(false)
	if after := n.info(); after.StartedAt.Equal(before.StartedAt) {
		n.t.Errorf("after %+v came %+v", before, after)
	}
}

func (n *placed) innerDies() {
	n.witnesses()
	before := n.info()
	n.aim()
	n.kill(before.InnerPID)
	n.open("soon") // its parent is the outer process now

	n.hit()
	after := n.info()
	if after.InnerPID == before.InnerPID {
		n.t.Errorf("after %+v came %+v", before, after)
	}
	n.seen(after.OuterPID != before.OuterPID)
}

func (n *placed) innerStops() {
	n.start0(n.gated("a", "echo here; exit 6"))
	inner := n.info().InnerPID
	n.stop(inner)
	n.aim()
	n.open("a")
	n.hit() // the outer process dies
	resumed := time.Now()
	if err := unix.Kill(inner, unix.SIGCONT); err != nil {
		n.t.Fatal(err)
	}
	n.ended("a", 6, "here\n")
	if e := n.wait("a"); e.Found || e.FinishedAt.After(resumed) {
		n.t.Errorf("exit of a: %+v, not before %s", e, resumed)
	}
}

func (n *placed) give() {
	n.keep()
	n.start0(n.terminal("a", n.untilOpen("a")+"echo here; exit 6"))
	n.killBoth()
	n.aim()
	n.open("a")
	exit := n.follow("a")["a"]
	if exit.Code != 6 || exit.Lost {
		n.t.Errorf("exit of a: %+v", exit)
	}
	n.eventually("output of the terminal", func() bool { return n.text("a", "stdout") == "here\r\n" })
}

func (n *placed) outerDies() {
	n.witnesses()
	before := n.info()
	n.aim()
	n.open("soon")
	n.kill(before.OuterPID)
	n.hit()
	n.eventually("a new pair", func() bool {
		i, err := n.Info(n.ctx)
		return err == nil && i.OuterPID != before.OuterPID
	})
	n.seen(true)
}

func (n *placed) shutDown() {
	n.open("bystander")
	n.wait("bystander")
	n.aim()
	_ = n.Shutdown(n.ctx, false)
	// Whatever became of that one, the next does it.
	if err := n.Shutdown(n.ctx, false); err != nil {
		n.t.Errorf("shut down again: %v", err)
	}
	if left, _ := os.ReadDir(n.opt.StateDir); len(left) > 0 {
		n.t.Errorf("left: %v", left)
	}
	if err := os.Remove(n.dir + "/bystander.log"); err != nil {
		n.t.Fatal(err)
	}
	n.started(n.bystander("bystander"))
}

// forgetAll forgets every process, after which nothing is left of any.
func (n *node) forgetAll() {
	n.t.Helper()
	list, err := n.List(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, p := range list {
		if p.State != monitorv1.Exited {
			n.wait(p.ID)
		}
		if err := n.Forget(n.ctx, p.ID); err != nil {
			n.t.Errorf("forget %s: %v", p.ID, err)
		}
		if _, err := os.Stat(n.dir + "/" + p.ID + ".io"); err == nil {
			n.t.Errorf("the folder of FIFOs of %s is left", p.ID)
		}
	}
	if left, _ := os.ReadDir(n.opt.StateDir + "/monitor/proc"); len(left) > 0 {
		n.t.Errorf("records left: %v", left)
	}
	// Nothing that was started lives: commands have the mark of the monitor.
	n.eventually("the end of all runtime commands", func() bool { return len(n.ofMonitor()) == 0 })
}

// ofMonitor returns the processes whose environment names a file of this node.
func (n *node) ofMonitor() []string {
	var found []string
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		line, err := os.ReadFile("/proc/" + d.Name() + "/cmdline")
		if err == nil && strings.Contains(string(line), n.dir+"/") && !strings.Contains(string(line), "--state=") {
			found = append(found, d.Name()+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}
