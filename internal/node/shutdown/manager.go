package shutdown

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/lasting"
)

// again is how long a bus that cannot be reached is left alone.
const again = 30 * time.Second

// Node is what the Manager needs of its node.
type Node interface {
	// Running are the pods that have not ended.
	Running() []*corev1.Pod
	// End ends a pod and returns when it has ended, or when ctx ends. The pod's
	// status is that of Mark from then on.
	End(context.Context, Ending) error
	// ShuttingDown is told when a shutdown begins and if it is called off. The node
	// is not ready in between.
	ShuttingDown(bool)
	// Event is about the node, and a warning.
	Event(reason, message string)
}

// Config is what a Manager goes by.
type Config struct {
	Levels []Level // see Settings.Levels
	// Bus is the address of the system's D-Bus; empty for the one that every system
	// has.
	Bus string
	// DropIns is the folder for settings of logind that end with the boot; empty
	// for /run/systemd/logind.conf.d.
	DropIns string
	Log     *slog.Logger
}

// Manager waits for the end of the node.
type Manager struct {
	cfg  Config
	node Node
	down atomic.Bool
}

// New makes a Manager. Run starts it.
func New(cfg Config, node Node) *Manager {
	if cfg.DropIns == "" {
		cfg.DropIns = "/run/systemd/logind.conf.d"
	}
	return &Manager{cfg: cfg, node: node}
}

// Run waits for shutdowns until ctx ends. Without levels it does nothing. A bus or
// logind that is not there is tried again.
func (m *Manager) Run(ctx context.Context) error {
	if total(m.cfg.Levels) == 0 {
		return nil
	}
	var told lasting.Failure
	for ctx.Err() == nil {
		err := m.listen(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if text := err.Error(); told.Tell(text) {
			m.cfg.Log.Warn("nobody would announce a shutdown of this node, so pods would end without their grace", "error", err, "again", again.String())
			m.node.Event("ShutdownUnannounced", "Nobody would announce a shutdown of this node, so that pods would end without their grace: "+text+". Start systemd-logind, or drain the node before it is shut down")
		}
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
	return nil
}

// Admit says whether the node takes pods. An error is a *capacity.Refusal.
func (m *Manager) Admit(*corev1.Pod) error {
	if m.down.Load() {
		return refusal()
	}
	return nil
}

func (m *Manager) set(down bool) {
	if m.down.Swap(down) != down {
		m.node.ShuttingDown(down)
	}
}

// end ends all pods in their order. It returns when all have ended or have had
// their time, or when ctx ends.
func (m *Manager) end(ctx context.Context) {
	var ending sync.WaitGroup
	defer ending.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, g := range Order(m.node.Running(), m.cfg.Levels) {
		m.cfg.Log.Info("the node shuts down: pods end", "priority", g.Priority, "pods", len(g.Pods), "within", g.Period.String())
		ended := make(chan struct{})
		var group sync.WaitGroup
		over := make([]atomic.Bool, len(g.Pods))
		for i, e := range g.Pods {
			group.Go(func() {
				m.one(ctx, e)
				over[i].Store(true)
			})
		}
		ending.Go(func() {
			group.Wait()
			close(ended)
		})
		select {
		case <-ended:
		case <-ctx.Done():
			return
		case <-time.After(g.Period):
			late := named(g.Pods, over)
			m.cfg.Log.Warn("not all pods have ended in their time", "priority", g.Priority, "period", g.Period.String(), "late", late)
			m.node.Event("ShutdownIncomplete", fmt.Sprintf("Not all pods from priority %d on have ended within %s; give them longer by --shutdown-grace-period: %s", g.Priority, g.Period, late))
		}
	}
}

// mostNamed is how many pods an event names.
const mostNamed = 10

// named are those that are not over.
func named(pods []Ending, over []atomic.Bool) string {
	var late []string
	for i, e := range pods {
		if !over[i].Load() {
			late = append(late, e.Pod.Namespace+"/"+e.Pod.Name)
		}
	}
	slices.Sort(late)
	if more := len(late) - mostNamed; more > 0 {
		late = append(late[:mostNamed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(late, ", ")
}

func (m *Manager) one(ctx context.Context, e Ending) {
	if err := m.node.End(ctx, e); err != nil {
		m.cfg.Log.Warn("a pod did not end before the node", "pod", e.Pod.Namespace+"/"+e.Pod.Name, "error", err)
	}
}
