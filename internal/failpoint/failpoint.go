// Package failpoint lets a test make the real daemon fail at a named place:
// die there, return an error, or hang for a while.
//
// The places are compiled into the product, because a crash test is worth
// something only if it crashes the binary that users run. They are off unless
// the environment names them, and then cost one load. It is not a seam for
// replacing parts by fakes.
//
// A package registers its places and hits them:
//
//	var afterAttach = failpoint.Register("lifecycle.after-attach")
//	...
//	if err := failpoint.Hit(afterAttach); err != nil {
//		return err
//	}
//
// and a test starts the daemon with
//
//	FAIRLEAD_FAILPOINTS=lifecycle.after-attach=kill
//
// The value is a list of name=action, separated by commas. The actions are
// kill (SIGKILL to the own process), error (Hit returns ErrInjected),
// sleep:DURATION and wait:FILE (until there is such a file). An action followed by @N happens at the Nth hit only. One
// followed by !FILE happens only while FILE does not exist, and makes it first:
// once for all the processes that the variable reaches, and for a test to see.
package failpoint

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The environment variables that name the places which shall fail. The monitor
// has one of its own because it inherits the daemon's environment, and each
// process refuses names that are not compiled into it. So has what it starts for
// containers of shims.
const (
	Env        = "FAIRLEAD_FAILPOINTS"
	MonitorEnv = "FAIRLEAD_MONITOR_FAILPOINTS"
	ShimEnv    = "FAIRLEAD_SHIM_FAILPOINTS"
)

// ErrInjected is wrapped by the error of a place whose action is "error".
var ErrInjected = errors.New("failure injected by a failpoint")

// on is the only thing that Hit looks at in normal operation.
var on atomic.Bool

var table = struct {
	sync.Mutex
	known map[string]bool
	armed map[string]*arm
}{known: map[string]bool{}, armed: map[string]*arm{}}

// Register makes name known and returns it. It belongs in a package variable,
// and panics if two places have the same name.
func Register(name string) string {
	table.Lock()
	defer table.Unlock()
	if name == "" || strings.ContainsAny(name, "=,@: \t\n") {
		panic(fmt.Sprintf("failpoint: %q cannot be a name: it is empty or has one of = , @ : or a blank in it", name))
	}
	if table.known[name] {
		panic(fmt.Sprintf("failpoint: %q is registered twice", name))
	}
	table.known[name] = true
	return name
}

// Names returns the names of all places in this binary, sorted.
func Names() []string {
	table.Lock()
	defer table.Unlock()
	return slices.Sorted(maps.Keys(table.known))
}

// Enable arms the places that spec names and disarms all others; the empty
// spec turns everything off. A spec that is wrong in any part changes nothing,
// and its error lists the names that exist. A program calls it once, with the
// value of its variable, before it starts to work.
func Enable(spec string) error {
	armed, err := parse(spec, Names())
	if err != nil {
		return err
	}
	table.Lock()
	defer table.Unlock()
	table.armed = armed
	on.Store(len(armed) > 0)
	return nil
}

// Hit does what was asked for name: nothing (the normal case), die, sleep, wait, or
// return an error that wraps ErrInjected.
func Hit(name string) error {
	if !on.Load() {
		return nil
	}
	return hit(name)
}

func hit(name string) error {
	act, due := next(name)
	if !due {
		return nil
	}
	switch act.kind {
	case kill:
		// SIGKILL, because nothing may get the chance to tidy up.
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGKILL); err != nil {
			return fmt.Errorf("failpoint %s: kill: %w", name, err)
		}
		select {}
	case fail:
		return fmt.Errorf("failpoint %s: %w", name, ErrInjected)
	case sleep:
		time.Sleep(act.sleep)
	case wait:
		await(act.file)
	}
	return nil
}

func await(file string) {
	for {
		if _, err := os.Stat(file); err == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// next counts the hit and says what to do now, if anything.
func next(name string) (action, bool) {
	table.Lock()
	defer table.Unlock()
	a, ok := table.armed[name]
	if !ok {
		return action{}, false
	}
	a.hits++
	if a.nth != 0 && a.nth != a.hits {
		return action{}, false
	}
	return a.action, a.once == "" || first(a.once)
}

// first makes the file, and says whether it was not there.
func first(file string) bool {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	// Its being there is all that counts.
	_ = f.Close()
	return true
}
