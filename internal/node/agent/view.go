package agent

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/lastwords"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/status"
	"fairlead.run/internal/node/tend"
)

// view is what the runtime has of a pod, as it was last seen.
type view struct {
	box        *runtimeapi.PodSandboxStatus // the latest sandbox; nil if there is none
	old        []string                     // sandboxes before it
	containers map[string]*container
	extra      []string        // attempts that nobody needs any more, by id
	made       map[string]bool // those that this worker has made, and not attended yet
}

// container is the latest attempt at a container, and the one before it.
type container struct {
	now, last *runtimeapi.ContainerStatus
	sandbox   string // that now is in
	crashes   int    // in a row, now included if it has ended; see plan.Backoff
	hash      string // that now was made with
	care      *tend.Care
	why       string // it was ended, if a hook or a probe wanted that
	message   string // the last words of now, and of last
	lastWords string
	paused    bool   // it was told that the next attempt waits
	restarted bool   // and that it begins
	removed   bool   // now was, for a fresh start of the pod
	kept      uint32 // what attempts before this one had written is gone
}

// look asks the runtime what it has of the pod, and for details of what is new.
func (w *worker) look(ctx context.Context) error {
	ctx, cancel := call(ctx)
	defer cancel()
	mine := map[string]string{podspec.LabelPodUID: string(w.uid)}
	boxes, err := w.a.cfg.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: mine}})
	if err != nil {
		return w.fail("list its sandboxes", err)
	}
	containers, err := w.a.cfg.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: mine}})
	if err != nil {
		return w.fail("list its containers", err)
	}
	if err := w.lookAtSandboxes(ctx, boxes.GetItems()); err != nil {
		return err
	}
	return w.lookAtContainers(ctx, containers.GetContainers())
}

func (w *worker) lookAtSandboxes(ctx context.Context, list []*runtimeapi.PodSandbox) error {
	list = slices.DeleteFunc(list, func(s *runtimeapi.PodSandbox) bool { return !w.a.Mine(s) })
	slices.SortFunc(list, func(a, b *runtimeapi.PodSandbox) int {
		return cmp.Or(cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()), cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()))
	})
	w.view.old = nil
	if len(list) == 0 {
		w.view.box = nil
		return nil
	}
	for _, s := range list[1:] {
		w.view.old = append(w.view.old, s.GetId())
	}
	latest := list[0]
	if now := w.view.box; now.GetId() == latest.GetId() && now.GetState() == latest.GetState() {
		return nil
	}
	resp, err := w.a.cfg.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: latest.GetId()})
	switch {
	case grpcstatus.Code(err) == codes.NotFound:
		w.view.box = nil
	case err != nil:
		return w.fail("ask about its sandbox", err)
	default:
		w.view.box = resp.GetStatus()
	}
	if ips := podspec.AddressesOf(w.view.box); len(ips) > 0 {
		w.spec.IPs = ips
	}
	return nil
}

func (w *worker) lookAtContainers(ctx context.Context, list []*runtimeapi.Container) error {
	byName := map[string][]*runtimeapi.Container{}
	for _, c := range list {
		byName[c.GetMetadata().GetName()] = append(byName[c.GetMetadata().GetName()], c)
	}
	w.view.extra = nil
	for name, attempts := range byName {
		slices.SortFunc(attempts, func(a, b *runtimeapi.Container) int {
			return cmp.Or(cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()), cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()))
		})
		for _, c := range attempts[min(2, len(attempts)):] {
			w.view.extra = append(w.view.extra, c.GetId())
		}
		if err := w.lookAtContainer(ctx, name, attempts); err != nil {
			return err
		}
	}
	for name, c := range w.view.containers {
		if byName[name] == nil && !c.removed {
			c.care.Abandon()
			delete(w.view.containers, name)
		}
	}
	return nil
}

// lookAtContainer takes over the attempts at a container, the latest first.
func (w *worker) lookAtContainer(ctx context.Context, name string, attempts []*runtimeapi.Container) error {
	c := w.view.containers[name]
	if c == nil {
		c = &container{}
		w.view.containers[name] = c
	}
	latest := attempts[0]
	if c.now.GetId() != latest.GetId() {
		c.renew(latest.GetPodSandboxId(), latest.GetAnnotations())
	}
	if c.now.GetState() != latest.GetState() || c.now == nil {
		s, err := w.ask(ctx, latest.GetId())
		if err != nil {
			return w.fail("ask about container "+name, err)
		}
		w.takeOver(ctx, c, s)
	}
	if len(attempts) == 1 {
		return nil
	}
	if before := attempts[1]; c.last.GetId() != before.GetId() {
		s, err := w.ask(ctx, before.GetId())
		if err != nil {
			return w.fail("ask about container "+name, err)
		}
		c.last, c.lastWords = s, w.lastWords(name, s)
	}
	return nil
}

// ask asks about a container; nil is that it is gone.
func (w *worker) ask(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	resp, err := w.a.cfg.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if grpcstatus.Code(err) == codes.NotFound {
		return nil, nil
	}
	return resp.GetStatus(), err
}

// renew makes room for the next attempt.
func (c *container) renew(sandbox string, annotations map[string]string) {
	c.care.Abandon()
	if c.now != nil {
		c.last, c.lastWords = c.now, c.message
	}
	c.now, c.care, c.why, c.message, c.removed = nil, nil, "", "", false
	c.paused, c.restarted = false, false
	record := podspec.RecordOf(annotations)
	c.sandbox, c.hash, c.crashes = sandbox, record.Hash, record.Crashes
}

// takeOver is the new state of an attempt. One that this worker has not made was begun by
// another agent, and has run for a while.
func (w *worker) takeOver(ctx context.Context, c *container, s *runtimeapi.ContainerStatus) {
	c.now = s
	if s == nil {
		return
	}
	name := s.GetMetadata().GetName()
	switch s.GetState() {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		if ct := w.containerSpec(name); c.care == nil && ct != nil {
			a := tend.Attempt{Container: ct, ID: s.GetId(), Began: time.Unix(0, s.GetStartedAt()), Found: !w.view.made[s.GetId()]}
			if a.Found {
				a.Started, a.Ready = status.WasUp(w.given, s.GetId())
			}
			c.care = w.tend.Begin(ctx, a)
		}
		if delete(w.view.made, s.GetId()); w.ending != nil {
			c.care.Leave()
		}
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		delete(w.view.made, s.GetId())
		c.care.Release()
		c.message = w.lastWords(name, s)
		if c.crashes++; time.Duration(s.GetFinishedAt()-s.GetStartedAt()) >= plan.ForgetAfter {
			c.crashes = 1
		}
	}
}

// observed is the view as a plan takes it.
func (w *worker) observed() plan.Observed {
	out := plan.Observed{Containers: map[string]*plan.Container{}}
	if b := w.view.box; b != nil {
		out.Sandbox = &plan.Sandbox{ID: b.GetId(), Attempt: b.GetMetadata().GetAttempt(), Ready: b.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY}
	}
	for name, c := range w.view.containers {
		if c.now == nil || c.removed {
			continue
		}
		seen := &plan.Container{
			ID: c.now.GetId(), Sandbox: c.sandbox, Attempt: c.now.GetMetadata().GetAttempt(), State: stateOf(c.now.GetState()),
			ExitCode: c.now.GetExitCode(), Crashes: c.crashes, Hash: c.hash,
		}
		switch seen.State {
		case plan.Running:
			c.care.Tell(seen)
			seen.Sick = cmp.Or(seen.Sick, c.why)
			if ct := w.containerSpec(name); ct != nil {
				seen.Resources = podspec.ResourcesOf(w.spec, ct, c.now)
			}
		case plan.Exited:
			seen.Finished = time.Unix(0, c.now.GetFinishedAt())
		}
		out.Containers[name] = seen
	}
	return out
}

func stateOf(s runtimeapi.ContainerState) plan.State {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return plan.Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return plan.Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return plan.Exited
	}
	return plan.Unknown
}

// describeExit says how an attempt ended, as one reads it.
func describeExit(c *container) string {
	text := fmt.Sprintf("ended with exit code %d", c.now.GetExitCode())
	if c.why != "" {
		text += ", as " + c.why
	}
	if r := c.now.GetReason(); r != "" && r != "Completed" && r != "Error" {
		text += " (" + r + ")"
	}
	if m := lastwords.OneLine(cmp.Or(c.message, c.now.GetMessage())); m != "" {
		text += ": " + m
	}
	return text
}
