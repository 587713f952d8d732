package userns

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/threads"
)

// Range maps Length ids from Inside on, as they are in the namespace, to as
// many from Outside on.
type Range struct{ Inside, Outside, Length uint32 }

// Everybody maps every id to itself.
var Everybody = []Range{{Length: math.MaxUint32}}

// Spec says what a Holder is to have.
type Spec struct {
	// Program waits until it is killed. Its first word is an absolute path.
	Program    []string
	UIDs, GIDs []Range
	// Others are the CLONE_NEW flags of namespaces that the new one is to own.
	Others uintptr
}

// Holder is a process that keeps a user namespace, and those that it owns,
// until somebody else does.
//
// There has to be one: no thread of a process with several can enter or leave a
// user namespace.
type Holder struct {
	process *os.Process
	end     chan struct{}
	ended   chan struct{}
}

// Start makes the namespaces. Call End when done. The process dies with this one.
func Start(s Spec) (*Holder, error) {
	h := &Holder{end: make(chan struct{}), ended: make(chan struct{})}
	started := make(chan error, 1)
	go h.run(s, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	return h, nil
}

// run has a thread of its own: the kernel takes the end of the thread that has
// started a process for the end of its parent.
func (h *Holder) run(s Spec, started chan<- error) {
	defer close(h.ended)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if len(s.Program) == 0 {
		started <- fmt.Errorf("there is no program to hold it: %w", errdefs.ErrInvalidArgument)
		return
	}
	p, err := os.StartProcess(s.Program[0], s.Program, &os.ProcAttr{
		Dir: "/",
		Sys: &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | s.Others,
			UidMappings: idMap(s.UIDs),
			GidMappings: idMap(s.GIDs),
			// Whoever is root in there may give up groups.
			GidMappingsEnableSetgroups: true,
			Pdeathsig:                  syscall.SIGKILL,
		},
	})
	if err != nil {
		started <- threads.Explain(err)
		return
	}
	h.process = p
	started <- nil
	<-h.end
	_ = p.Kill() // fails only if it has ended
	_, _ = p.Wait()
}

func idMap(list []Range) []syscall.SysProcIDMap {
	out := make([]syscall.SysProcIDMap, 0, len(list))
	for _, r := range list {
		out = append(out, syscall.SysProcIDMap{ContainerID: int(r.Inside), HostID: int(r.Outside), Size: int(r.Length)})
	}
	return out
}

// Path is the file of one of its namespaces, by the name that it has in
// /proc/PID/ns. It is good until End.
func (h *Holder) Path(name string) string {
	return fmt.Sprintf("/proc/%d/ns/%s", h.process.Pid, name)
}

// End kills the process and waits for it. Whoever has a namespace open, or
// mounted, keeps it.
func (h *Holder) End() {
	close(h.end)
	<-h.ended
}
