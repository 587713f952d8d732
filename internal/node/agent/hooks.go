package agent

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/view"
)

// intendHook notes, before a container is started, that its postStart hook is to be run: an
// agent that is killed before that has ended leaves it to the next one.
func (w *worker) intendHook(ct *corev1.Container, id string) error {
	if ct.Lifecycle == nil || ct.Lifecycle.PostStart == nil {
		return nil
	}
	hooks := maps.Clone(w.record.Hooks)
	if hooks == nil {
		hooks = map[string]string{}
	}
	hooks[ct.Name] = id
	return w.writeHooks(hooks)
}

// unhooked says that the hook of an attempt is not known to have ended. The runtime is asked
// before the ledger is read.
func (w *worker) unhooked(container, id string) bool {
	r := w.record
	if w.stage == fresh {
		r, _, _ = w.a.ledger.Read(w.uid) // that it cannot be read is told when it is accepted
	}
	return r.Hooks[container] == id
}

// dropHooks forgets hooks that have ended, and those of containers that have. One that
// failed ends its container.
func (w *worker) dropHooks(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err() // hooks end with the agent, and are not done
	}
	left := maps.Clone(w.record.Hooks)
	maps.DeleteFunc(left, func(name, id string) bool {
		c := w.view.Containers[name]
		if c == nil || c.Now.GetId() != id || view.StateOf(c.Now.GetState()) != plan.Running {
			return true
		}
		var seen plan.Container
		c.Care.Tell(&seen)
		return !seen.Starting && seen.Sick == ""
	})
	if len(left) == len(w.record.Hooks) {
		return nil
	}
	return w.writeHooks(left)
}

func (w *worker) writeHooks(hooks map[string]string) error {
	r := w.record
	r.Hooks = hooks
	if err := w.a.ledger.Write(w.uid, r); err != nil {
		return err
	}
	w.record = r
	return nil
}
