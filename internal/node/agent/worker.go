package agent

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/admission"
	"fairlead.run/internal/node/holds"
	"fairlead.run/internal/node/inbox"
	"fairlead.run/internal/node/ledger"
	"fairlead.run/internal/node/logs/rotate"
	"fairlead.run/internal/node/outfit"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/removal"
	"fairlead.run/internal/node/shown"
	"fairlead.run/internal/node/tally"
	"fairlead.run/internal/node/tend"
	"fairlead.run/internal/node/view"
	"fairlead.run/internal/node/volume"
)

// worker keeps one pod. One goroutine uses it; what others may ask for is in the
// inbox and below mu.
type worker struct {
	a    *Agent
	uid  types.UID
	name string // namespace/name
	in   *inbox.Inbox
	quit <-chan struct{} // closed when the agent ends
	gone bool

	pace
	wish
	ground
	standing
	resizing
	view  *view.Pod
	holds holds.Holds
	shown shown.Shown
	said  shown.Detail // what a Detailed reporter was told last
}

// standing is how the pod stands among others, which may read it.
type standing struct {
	guest    *admission.Guest
	retired  atomic.Bool                        // it has ended for good
	measured atomic.Pointer[volume.Set]         // its volumes, once they are there
	logs     atomic.Pointer[[]rotate.Container] // of the containers that run
}

// pace is how it goes with what the pod needs.
type pace struct {
	retry time.Duration // the last pause before something that had failed; zero if it has not
	left  string        // why what is left of the pod cannot be removed, as it was told
	slow  bool          // what it started last took so long that others did not wait for it
}

// wish is what is wanted of the pod.
type wish struct {
	given   *corev1.Pod   // as it was asked for
	pod     *corev1.Pod   // the same with what the node adds; see counted
	ending  *inbox.Ending // nil as long as it is to run
	refused *Refusal      // why it has failed, whatever its containers do
	stray   bool          // it was refused a place, and may be given one later
	resumes bool          // it has ended, and the next worker runs it anew
}

// ground is what the pod stands on.
type ground struct {
	stage   stage
	vacant  bool // it has no cgroup any more
	record  ledger.Record
	place   Placement
	dirs    volume.Dirs
	volumes *volume.Set
	spec    *podspec.Context
	tend    *tend.Pod
	outfit  *outfit.Pod
}

// stage is how far the preparation of a pod has come. Each is reached once, also by an
// agent that finds the pod running.
type stage int

const (
	fresh    stage = iota // nothing is known of it
	accepted              // it is in the ledger
	placed                // its handler is known
	prepared              // its volumes are there
)

// What failed is tried again after a pause, which grows while it goes on failing. What
// could not be started has pauses of its own (internal/node/holds).
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 15 * time.Second
)

func newWorker(a *Agent, p *corev1.Pod) *worker {
	w := &worker{
		a: a, uid: p.UID, name: fullName(p), in: inbox.New(p), wish: wish{given: p, pod: p},
		ground: ground{dirs: a.cfg.With(removal.Dirs(a.cfg.Root, a.cfg.State, string(p.UID)), p.UID)},
		holds:  holds.Holds{},
	}
	w.guest = a.gate.Guest(w.uid, w.in, &w.shown)
	w.spec = &podspec.Context{Pod: p, Node: a.cfg.Node, Objects: a.cfg.Objects, LogDir: w.logDir(p)}
	w.outfit = outfit.New(outfit.Config{
		Spec: w.spec, Dirs: w.dirs, Images: a.cfg.Images, Volumes: func() *volume.Set { return w.volumes }, Given: w.equip, Event: w.eventOf, Reworded: w.reworded, Slowly: w.slowly,
	})
	w.tend = &tend.Pod{Spec: w.spec, Runtime: a.cfg.Runtime, Slots: a.probes, Wake: w.in.Wake, Told: w.noted, Tried: w.tried}
	w.view = view.New(view.Config{
		Runtime: a.cfg.Runtime, UID: p.UID, Mine: a.Mine, Tend: w.tend, Words: w.outfit.LastWords, Told: func() *corev1.Pod { return w.given },
		Unhooked: w.unhooked,
	})
	return w
}

func (w *worker) logDir(p *corev1.Pod) string {
	if w.a.cfg.LogDir != nil {
		return w.a.cfg.LogDir(p)
	}
	return filepath.Join(w.dirs.Disk, "logs")
}

// run keeps the pod until ctx ends or nothing of it is left. It thinks when it is
// woken, and when its last plan said so; a pod to which nothing happens costs nothing.
func (w *worker) run(ctx context.Context) {
	defer w.close()
	w.quit = ctx.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !w.gone && !w.resumes {
		select {
		case <-ctx.Done():
			return
		case <-w.in.Woken():
		case <-timer.C:
		}
		began, operation := time.Now(), w.operation()
		again, err := w.sync(ctx)
		if ctx.Err() != nil {
			return
		}
		w.a.stats.Worked(operation, time.Since(began))
		timer.Stop()
		switch {
		case err != nil:
			w.retry = min(max(2*w.retry, firstRetry), lastRetry)
			w.complain(err)
			w.trouble(err)
			w.a.cfg.Log.Debug("a pod is not as it should be, and is tried again", "pod", w.name, "error", err, "again", w.retry.String())
			timer.Reset(w.retry)
		default:
			w.retry = 0
			if !again.IsZero() {
				timer.Reset(time.Until(again))
			}
		}
	}
}

// operation is what a kubelet would call the next look at the pod.
func (w *worker) operation() string {
	switch {
	case w.ending != nil:
		return tally.Kill
	case w.stage == fresh:
		return tally.Create
	}
	return tally.Sync
}

// close ends what goes on beside the pod, which runs on.
func (w *worker) close() {
	w.in.Close()
	for _, c := range w.view.Containers {
		c.Care.Abandon()
	}
	w.tend.Wait()
}

// call bounds a call of the runtime that should not take long.
func call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callTimeout)
}

// The kubelet's limits for calls, and for those that start sandboxes.
const (
	callTimeout    = 2 * time.Minute
	sandboxTimeout = 4 * time.Minute
)

// sandboxConfig is the configuration of the sandbox of that attempt.
func (w *worker) sandboxConfig(attempt uint32) *runtimeapi.PodSandboxConfig {
	cfg := podspec.Sandbox(w.spec)
	cfg.Metadata.Attempt = attempt
	cfg.Annotations[AnnotationAgent] = w.a.cfg.Name
	return cfg
}

// AnnotationAgent marks the sandboxes of an agent with its name.
const AnnotationAgent = "fairlead.run/agent"
