package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// Logs are rotated all the time, by two callers that do not know of each other,
// while containers write as fast as they can and the monitor dies. No line is
// lost, doubled or cut, and nothing is written any more to a file that a reopening
// has left, so that whoever packs it may do so at once.
func TestRotationUnderLoad(t *testing.T) {
	n := node.Start(t, "", node.Plain)
	n.Pull(node.Busybox)
	var all []*rotated
	for i, handler := range slices.Repeat(node.Handlers, 2) {
		cfg := node.Script(node.Numbers)
		cfg.Tty = i == 1
		all = append(all, &rotated{c: n.RunPod(handler).Start(cfg), t: t})
	}
	const phases, rotations = 3, 8
	for phase := range phases {
		var callers sync.WaitGroup
		for _, r := range all {
			for range 2 {
				callers.Go(func() {
					for range rotations {
						r.rotate()
					}
				})
			}
		}
		if phase > 0 {
			n.KillMonitor([]string{"", "inner", "outer"}[phase])
		}
		callers.Wait()
		if t.Failed() {
			return
		}
		for _, r := range all {
			node.Grown(t, []*node.Container{r.c})
		}
	}
	for _, r := range all {
		r.check()
		r.c.Sandbox.Remove()
	}
}

// rotated is a container and the files that its log was before.
type rotated struct {
	c  *node.Container
	t  *testing.T
	mu sync.Mutex
	// left are what files had when they were left, in their order.
	left []*leftFile
}

type leftFile struct {
	path string
	size int64 // when reopening was done; 0 before
}

// rotate does what a kubelet does. Where another caller has moved the file and
// nobody has reopened it yet, there is only that to do.
func (r *rotated) rotate() {
	r.mu.Lock()
	f := &leftFile{path: fmt.Sprintf("%s.%d", r.c.LogPath(), len(r.left))}
	err := os.Rename(r.c.LogPath(), f.path)
	if err == nil {
		r.left = append(r.left, f)
	}
	r.mu.Unlock()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Error(err)
		return
	}
	moved := err == nil
	ctx, cancel := context.WithTimeout(context.Background(), node.Patience)
	defer cancel()
	for {
		_, err := r.c.Sandbox.Node.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: r.c.ID})
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			r.t.Errorf("reopen the log: %v", err)
			return
		}
	}
	if !moved {
		return
	}
	st, err := os.Stat(f.path)
	if err != nil {
		r.t.Error(err)
		return
	}
	f.size = st.Size()
}

// check ends the container and reads what it has written, in all its files.
func (r *rotated) check() {
	r.t.Helper()
	r.c.StopNumbers()
	r.c.Wait()
	var all []byte
	for _, f := range append(r.left, &leftFile{path: r.c.LogPath()}) {
		data, err := os.ReadFile(f.path)
		if err != nil {
			r.t.Fatal(err)
		}
		if f.size > 0 && int64(len(data)) != f.size {
			r.t.Errorf("%s had %d bytes when its log was reopened, and has %d now", f.path, f.size, len(data))
		}
		all = append(all, data...)
	}
	all = bytes.ReplaceAll(all, []byte("\r\n"), []byte("\n")) // of a terminal
	if err := os.WriteFile(r.c.LogPath(), all, 0o640); err != nil {
		r.t.Fatal(err)
	}
	r.t.Logf("%d lines in %d files", node.CheckNumbers(r.t, r.c.Log()), len(r.left)+1)
}
