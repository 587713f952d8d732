package threads

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Aside are threads that cannot be given back to the runtime, because they do
// not share with the process what Prepare has parted. In a process that has a
// reserve of threads they are kept for the next who needs one: a thread that ends
// has to be replaced, for which there may be no process id. Elsewhere they end.
type Aside struct {
	// Prepare parts the thread that it is called on from the process, see unshare(2).
	// It is called once for each thread; nil where what the threads do does it.
	Prepare func()

	mu   sync.Mutex
	idle []chan task
}

// task is what a thread is to do. Done is closed when it has, and is idle again.
type task struct {
	do   func()
	done chan struct{}
}

// maxIdle bounds the threads that wait for the next. Those beyond end.
const maxIdle = 16

// Run calls f on one of the threads, and returns when it has ended. A thread that
// hangs in f holds up no other caller.
func (a *Aside) Run(f func()) {
	work := task{f, make(chan struct{})}
	if next := a.take(); next != nil {
		next <- work
	} else {
		go a.thread(work)
	}
	<-work.done
}

func (a *Aside) take() chan<- task {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.idle) == 0 {
		return nil
	}
	next := a.idle[len(a.idle)-1] // whose stack is in the caches
	a.idle = a.idle[:len(a.idle)-1]
	return next
}

// thread does work, and then what others have to do.
func (a *Aside) thread(work task) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The first thread cannot end, and stands for the process in /proc.
		// Hold on to it while another one begins.
		defer runtime.UnlockOSThread()
		began := make(chan struct{})
		go func() {
			a.thread(task{func() {
				close(began)
				work.do()
			}, work.done})
		}()
		<-began
		return
	}
	if a.Prepare != nil {
		a.Prepare()
	}
	next := make(chan task, 1)
	for {
		work.do()
		kept := a.wait(next)
		close(work.done)
		if !kept {
			return // never unlocked: the thread ends
		}
		work = <-next
	}
}

// wait puts a thread among those that are idle, unless none are kept or there are enough.
func (a *Aside) wait(next chan task) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !hasReserve.Load() || len(a.idle) >= maxIdle {
		return false
	}
	a.idle = append(a.idle, next)
	return true
}
