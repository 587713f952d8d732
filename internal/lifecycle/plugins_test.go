package lifecycle

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"fairlead.run/internal/pod"
)

// limiter is Plugins that answer the end of each of some containers with limits
// for all of them, once all have ended.
type limiter struct {
	nobody
	core *Core
	host *host
	all  []pod.ContainerID
	end  sync.WaitGroup // of those that have not ended

	mu     sync.Mutex
	told   map[pod.ContainerID]bool
	whole  []pod.ContainerID // that had their bundle when they were told of
	failed []error
}

func (l *limiter) Active() bool { return true }

func (l *limiter) Container(ctx context.Context, e pod.PluginEvent, _ *pod.Record, c *pod.Container) error {
	if e != pod.PluginStopped {
		return nil
	}
	l.mu.Lock()
	known := l.told[c.ID]
	l.told[c.ID] = true
	if l.host.has("bundle " + string(c.ID)) {
		l.whole = append(l.whole, c.ID)
	}
	l.mu.Unlock()
	if known {
		return nil
	}
	l.end.Done()
	l.end.Wait()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, id := range l.all {
		// That it has ended, or is gone, is the right answer, and comes at once.
		if err := l.core.Limit(ctx, id, &pod.Resources{CPUShares: 2}); errors.Is(err, context.DeadlineExceeded) {
			l.mu.Lock()
			l.failed = append(l.failed, err)
			l.mu.Unlock()
		}
	}
	return nil
}

// Plugins may answer the end of a container with limits for any, itself too:
// two that end at once wait neither for each other nor for themselves.
func TestNoLockIsHeldWhilePluginsHearOfAnEnd(t *testing.T) {
	for name, end := range map[string]func(*Core, *host, pod.ContainerID) error{
		"a start that fails": func(c *Core, h *host, id pod.ContainerID) error {
			h.set(func() { h.fail["start"] = errBoom })
			if err := c.StartContainer(ctx, id); !errors.Is(err, errBoom) {
				return errors.Join(errors.New("it started"), err)
			}
			return nil
		},
		"an end before the start is committed": func(c *Core, _ *host, id pod.ContainerID) error {
			c.exited(string(id), pod.Exit{FinishedAt: time.Unix(9, 9)})
			return c.StartContainer(ctx, id)
		},
		"a removal": func(c *Core, _ *host, id pod.ContainerID) error { return c.RemoveContainer(ctx, id) },
		"a removal while it runs": func(c *Core, _ *host, id pod.ContainerID) error {
			return errors.Join(c.StartContainer(ctx, id), c.RemoveContainer(ctx, id))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost()
			c, _ := boot(t, h, newDisk())
			l := &limiter{core: c, host: h, told: map[pod.ContainerID]bool{}}
			c.Plugins = l
			id, err := c.RunPod(ctx, podConfig("web"), "")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"a", "b"} {
				ctr, err := c.CreateContainer(ctx, id, containerConfig(name))
				if err != nil {
					t.Fatal(err)
				}
				l.all = append(l.all, ctr)
			}
			l.end.Add(len(l.all))
			var g sync.WaitGroup
			for _, ctr := range l.all {
				g.Go(func() {
					if err := end(c, h, ctr); err != nil {
						t.Error(err)
					}
				})
			}
			g.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.told) != 2 || len(l.whole) < 2 || len(l.failed) > 0 {
				t.Errorf("told of %d, of %d before they were removed; limits failed: %v", len(l.told), len(l.whole), l.failed)
			}
		})
	}
}
