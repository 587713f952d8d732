package foreground

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/logs"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/removal"
	"fairlead.run/internal/node/shown"
)

// pod is one of a run. What its agent tells is taken over here.
type pod struct {
	r      *Run
	plan   Plan
	pod    *corev1.Pod // as the agent is to keep it
	logDir string

	mu      sync.Mutex
	status  Status
	started bool
	failure error // in the way of its start; nil if there is none
	leaving bool  // it is being removed
	gone    bool
	trouble string
	outputs map[string]*output // by id of the container
}

// output is what an attempt at a container writes, as it is passed on.
type output struct {
	over bool          // full is closed
	full chan struct{} // closed when nothing is added any more
	read chan struct{} // closed when all was passed on
}

func newPod(r *Run, p Plan) *pod {
	wanted := p.Pod.DeepCopy()
	wanted.UID = p.UID
	capacity.DefaultWhole(wanted)
	sidecars := 0
	for i := range wanted.Spec.InitContainers {
		if plan.Sidecar(&wanted.Spec.InitContainers[i]) {
			sidecars++
		}
	}
	return &pod{
		r: r, plan: p, pod: wanted, outputs: map[string]*output{},
		logDir: filepath.Join(removal.Dirs(r.cfg.Root, r.cfg.State, string(p.UID)).Disk, "logs"),
		status: Status{
			Namespace: wanted.Namespace, Name: wanted.Name, Class: p.Class, Handler: p.Handler,
			Phase: Pending, Total: len(wanted.Spec.Containers) + sidecars,
		},
	}
}

// fail says where the pod is written.
func (p *pod) fail(err error) error {
	if p.plan.Pod.Owner != "" {
		err = fmt.Errorf("pod %s: %w", p.plan.Pod.Name, err)
	}
	return fmt.Errorf("%s: %w", p.plan.Pod.Origin, err)
}

func (p *pod) current() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

func (p *pod) hasStarted() (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started, p.failure
}

func (p *pod) isGone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

func (p *pod) lastTrouble() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trouble
}

func (p *pod) setHandler(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.Handler = name
}

// take takes over how the pod is now.
func (p *pod) take(now corev1.PodStatus, d shown.Detail) {
	p.mu.Lock()
	before := p.status
	p.trouble = d.Trouble
	p.started = p.started || hasBegun(p.pod, now, d)
	if !p.started && now.Phase == corev1.PodFailed && p.failure == nil {
		p.failure = p.fail(errors.New(startFailure(now, d)))
	}
	p.status.take(p.pod, now, d, p.started)
	p.follow(now)
	after, last := p.status, p.leaving && !runs(now)
	p.mu.Unlock()
	if before.Phase != after.Phase || before.Message != after.Message || before.Ready != after.Ready || before.Restarts != after.Restarts {
		p.r.cfg.Observer.Changed(after)
	}
	if last { // the logs go with the pod
		p.endLogs()
	}
	p.r.poke()
}

func runs(now corev1.PodStatus) bool {
	return slices.ContainsFunc(slices.Concat(now.InitContainerStatuses, now.ContainerStatuses), func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil
	})
}

// cannot is that the pod cannot be started, unless that was done before.
func (p *pod) cannot(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started && p.failure == nil {
		p.failure = p.fail(errors.New(why))
		p.r.poke()
	}
}

// leave is called before the pod is removed: its logs are to be read to their ends before
// they go with it. It waits for those that are complete.
func (p *pod) leave() {
	p.mu.Lock()
	p.leaving = true
	var wait []*output
	for _, o := range p.outputs {
		if o.over {
			wait = append(wait, o)
		}
	}
	p.mu.Unlock()
	for _, o := range wait {
		<-o.read
	}
}

func (p *pod) isLeaving() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leaving
}

// follow passes on the output of each attempt, until that is known to have ended. The
// caller holds mu.
func (p *pod) follow(now corev1.PodStatus) {
	for _, c := range slices.Concat(now.InitContainerStatuses, now.ContainerStatuses) {
		if last := c.LastTerminationState.Terminated; last != nil && p.outputs[last.ContainerID] != nil {
			p.outputs[last.ContainerID].finish()
		}
		if c.ContainerID == "" || c.State.Running == nil && c.State.Terminated == nil && !waitsAgain(c) {
			continue
		}
		o := p.outputs[c.ContainerID]
		if o == nil {
			o = &output{full: make(chan struct{}), read: make(chan struct{})}
			p.outputs[c.ContainerID] = o
			path := podspec.Attempt{Container: &corev1.Container{Name: c.Name}, Number: uint32(c.RestartCount)}.LogPath()
			go p.read(c.Name, filepath.Join(p.logDir, path), o) // endLogs waits for it
		}
		if c.State.Running == nil {
			o.finish()
		}
	}
}

// waitsAgain says that the attempt which a status is about has ended, and that there will
// be another.
func waitsAgain(c corev1.ContainerStatus) bool {
	last := c.LastTerminationState.Terminated
	return last != nil && last.ContainerID == c.ContainerID
}

// finish says that nothing is added any more. The caller holds the lock of the pod.
func (o *output) finish() {
	if !o.over {
		o.over = true
		close(o.full)
	}
}

func (p *pod) read(container, path string, o *output) {
	defer close(o.read)
	err := logs.Read(context.Background(), path, logs.Options{Tail: -1, Follow: true, Ended: o.full}, func(l logs.Line) error {
		p.r.cfg.Observer.Line(p.pod.Namespace, p.pod.Name, container, l)
		return nil
	})
	if err != nil {
		p.r.cfg.Observer.Note(fmt.Sprintf("the log of pod %s, container %s cannot be read: %v", p.pod.Name, container, err))
	}
}

// endLogs waits until all lines were passed on.
func (p *pod) endLogs() {
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.outputs))
	for _, o := range all {
		o.finish()
	}
	p.mu.Unlock()
	for _, o := range all {
		<-o.read
	}
}

// reporter takes over what the agent tells.
type reporter struct{ r *Run }

// Detail implements agent.Detailed.
func (r reporter) Detail(p *corev1.Pod, s corev1.PodStatus, d shown.Detail) {
	r.r.byUID[p.UID].take(s, d)
}

// Changed implements agent.Reporter; Detail is told in its place.
func (r reporter) Changed(*corev1.Pod, corev1.PodStatus) {}

// hindrances are what events tell that keep a pod from starting, by reason, with what was
// to be done.
var hindrances = map[string]string{
	"Failed": "", "FailedMount": "prepare volumes: ", "FailedCreatePodSandBox": "run its sandbox: ",
}

// Event implements agent.Reporter.
func (r reporter) Event(p *corev1.Pod, kind, reason, message string) {
	one := r.r.byUID[p.UID]
	if step, ok := hindrances[reason]; ok && kind == corev1.EventTypeWarning {
		one.cannot(step + message)
		return
	}
	switch reason {
	case "Restarting", "ProbeWarning", "FailedPreStopHook", "SandboxChanged":
	case "Killing":
		if one.isLeaving() || strings.HasPrefix(message, "Stopping") {
			return // as everybody expects
		}
	default:
		return
	}
	r.r.cfg.Observer.Note("pod " + one.plan.Pod.Key().String() + ": " + strings.ToLower(message[:1]) + message[1:])
}

// Gone implements agent.Reporter.
func (r reporter) Gone(p *corev1.Pod) {
	one := r.r.byUID[p.UID]
	one.endLogs()
	one.mu.Lock()
	one.gone, one.status.Ready = true, 0
	one.mu.Unlock()
	r.r.poke()
}
