package threads

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// hasReserve says that this process has asked for a reserve, or would have one if
// there were room.
var hasReserve atomic.Bool

// reserved is how many threads have been asked for in all.
var reserved struct {
	sync.Mutex
	n int
}

// Reserve has the runtime start threads until n are idle beside those of earlier
// calls. They stay so until they are needed. It starts none where that would end
// the process: the error then wraps errdefs.ErrExhausted, and says which limit is
// in the way.
//
// While the n of them hold a thread each, the runtime may have one more running on
// every processor, or asked for and not begun. So there has to be room for those, too.
//
// A thread costs 20 KiB of resident memory, most of it stacks.
func Reserve(n int) error {
	hasReserve.Store(true)
	if err := thisHost().room(n + runtime.GOMAXPROCS(0)); err != nil {
		return err
	}
	reserved.Lock()
	defer reserved.Unlock()
	reserved.n += n
	n = reserved.n
	var began, ended sync.WaitGroup
	all := make(chan struct{})
	began.Add(n)
	for range n {
		ended.Go(func() {
			runtime.LockOSThread() // none can wait on the thread of another
			defer runtime.UnlockOSThread()
			began.Done()
			<-all
		})
	}
	began.Wait()
	close(all)
	ended.Wait()
	return nil
}
