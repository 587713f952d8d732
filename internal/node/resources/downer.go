package resources

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/agent"
	"fairlead.run/internal/node/oom"
	"fairlead.run/internal/node/priority"
	"fairlead.run/internal/node/shutdown"
)

// downer is the node of a shutdown.Manager.
type downer struct{ k *Keeper }

// Running implements shutdown.Node.
func (d downer) Running() []*corev1.Pod { return d.k.weighedAll(running(d.k.pods)) }

// End implements shutdown.Node. The pods of one machine, and static ones, start again when
// the node does, or when the shutdown is called off: nobody else would start others in
// their place.
func (d downer) End(ctx context.Context, e shutdown.Ending) error {
	why := agent.Refusal{Reason: shutdown.Reason, Message: shutdown.Message, Disrupts: shutdown.Message, Again: d.k.cfg.Manifests || priority.Static(e.Pod)}
	if !d.k.pods.Evict(e.Pod.UID, int64(e.Grace/time.Second), why) {
		return errors.New("it is gone already")
	}
	return d.k.pods.Await(ctx, e.Pod.UID)
}

// ShuttingDown implements shutdown.Node.
func (d downer) ShuttingDown(down bool) {
	d.k.down.Store(down)
	if down {
		d.k.cfg.Tell.Node(corev1.EventTypeNormal, "Shutdown", "Shutdown manager detected shutdown event")
	} else {
		d.k.pods.Resume() // those that were to end with the node
	}
	d.k.cfg.Tell.Changed()
}

// Event implements shutdown.Node.
func (d downer) Event(reason, message string) {
	d.k.cfg.Tell.Node(corev1.EventTypeWarning, reason, message)
}

// hear tells of what the kernel has ended for want of memory.
func (k *Keeper) hear(ctx context.Context) {
	err := oom.Watch(ctx, oom.Log, func(kill oom.Kill) {
		if kill.System {
			k.cfg.Tell.Node(corev1.EventTypeWarning, oom.Reason, kill.Message())
		}
	})
	if err != nil {
		k.cfg.Log.Warn("nobody will be told what the kernel ends when the node has no memory left", "error", err)
		k.cfg.Tell.Node(corev1.EventTypeWarning, "SystemOOMUnknown", "Nobody will be told what the kernel ends when the node has no memory left; let the agent read "+oom.Log+": "+err.Error())
	}
}
