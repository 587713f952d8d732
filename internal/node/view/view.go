// Package view is what a runtime has of one pod, as it was last seen: the sandbox, and of
// each container the last two attempts. It asks for details only of what is new, and
// has what runs tended. What is to be done about it is not decided here.
package view

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/errtext"
	"fairlead.run/internal/node/lastwords"
	"fairlead.run/internal/node/logs/rotate"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/status"
	"fairlead.run/internal/node/tend"
)

// Config is by what a pod is seen. All fields are required.
type Config struct {
	Runtime runtimeapi.RuntimeServiceClient
	UID     types.UID
	Mine    func(*runtimeapi.PodSandbox) bool // others are not looked at
	// Tend has the pod, which may be replaced by a newer version, and is told its addresses.
	Tend *tend.Pod
	// Words are the last ones of an attempt that has ended.
	Words func(container string, s *runtimeapi.ContainerStatus) string
	// Told is the pod with the status that its API server has.
	Told func() *corev1.Pod
	// Unhooked says that the postStart hook of an attempt is not known to have ended.
	Unhooked func(container, id string) bool
}

// Pod is what the runtime has of one. One goroutine uses it.
type Pod struct {
	Config
	Box        *runtimeapi.PodSandboxStatus // the latest sandbox; nil if there is none
	Old        []string                     // sandboxes before it
	Containers map[string]*Container
	Extra      []string        // attempts that nobody needs any more, by id
	Made       map[string]bool // those that were made here, and not attended yet
	Refused    map[string]bool // those that the runtime has not started, though it was asked to
	leaving    bool            // the pod is ending
}

// New is a pod of which nothing was seen yet.
func New(c Config) *Pod {
	return &Pod{Config: c, Containers: map[string]*Container{}, Made: map[string]bool{}, Refused: map[string]bool{}}
}

// Container is the latest attempt at a container, and the one before it.
type Container struct {
	Now, Last *runtimeapi.ContainerStatus
	Sandbox   string // that Now is in
	Crashes   int    // in a row, Now included if it has ended; see plan.Backoff
	Hash      string // that Now was made with
	Care      *tend.Care
	Why       string // it was ended, if a hook or a probe wanted that
	Probed    bool   // it was ended for a probe
	Message   string // the last words of Now, and of Last
	LastWords string
	Paused    bool   // it was told that the next attempt waits
	Restarted bool   // and that it begins
	Removed   bool   // Now was, for a fresh start of the pod
	Linked    string // id of the attempt whose log has a link
	Kept      uint32 // what attempts before this one had written is gone
}

// callTimeout is the kubelet's limit for calls.
const callTimeout = 2 * time.Minute

// Look asks the runtime what it has of the pod, and for details of what is new.
func (p *Pod) Look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	mine := map[string]string{podspec.LabelPodUID: string(p.UID)}
	boxes, err := p.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: mine}})
	if err != nil {
		return fmt.Errorf("list its sandboxes: %w", err)
	}
	containers, err := p.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: mine}})
	if err != nil {
		return fmt.Errorf("list its containers: %w", err)
	}
	if err := p.lookAtSandboxes(ctx, boxes.GetItems()); err != nil {
		return err
	}
	return p.lookAtContainers(ctx, containers.GetContainers())
}

func (p *Pod) lookAtSandboxes(ctx context.Context, list []*runtimeapi.PodSandbox) error {
	list = slices.DeleteFunc(list, func(s *runtimeapi.PodSandbox) bool { return !p.Mine(s) })
	slices.SortFunc(list, func(a, b *runtimeapi.PodSandbox) int {
		return cmp.Or(cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()), cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()))
	})
	p.Old = nil
	if len(list) == 0 {
		p.Box = nil
		return nil
	}
	for _, s := range list[1:] {
		p.Old = append(p.Old, s.GetId())
	}
	latest := list[0]
	if now := p.Box; now.GetId() == latest.GetId() && now.GetState() == latest.GetState() {
		return nil
	}
	resp, err := p.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: latest.GetId()})
	switch {
	case grpcstatus.Code(err) == codes.NotFound:
		p.Box = nil
	case err != nil:
		return fmt.Errorf("ask about its sandbox: %w", err)
	default:
		p.Box = resp.GetStatus()
	}
	if ips := podspec.AddressesOf(p.Box); len(ips) > 0 {
		p.Tend.Spec.IPs = ips
	}
	return nil
}

func (p *Pod) lookAtContainers(ctx context.Context, list []*runtimeapi.Container) error {
	byName := map[string][]*runtimeapi.Container{}
	for _, c := range list {
		byName[c.GetMetadata().GetName()] = append(byName[c.GetMetadata().GetName()], c)
	}
	p.Extra = nil
	for name, attempts := range byName {
		slices.SortFunc(attempts, func(a, b *runtimeapi.Container) int {
			return cmp.Or(cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()), cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()))
		})
		for _, c := range attempts[min(2, len(attempts)):] {
			p.Extra = append(p.Extra, c.GetId())
		}
		for _, c := range attempts[1:] { // another one has taken its place
			delete(p.Made, c.GetId())
			delete(p.Refused, c.GetId())
		}
		if err := p.lookAtContainer(ctx, name, attempts); err != nil {
			return err
		}
	}
	for name, c := range p.Containers {
		if byName[name] == nil && !c.Removed {
			c.Care.Abandon()
			delete(p.Containers, name)
		}
	}
	return nil
}

// lookAtContainer takes over the attempts at a container, the latest first.
func (p *Pod) lookAtContainer(ctx context.Context, name string, attempts []*runtimeapi.Container) error {
	c := p.Containers[name]
	if c == nil {
		c = &Container{}
		p.Containers[name] = c
	}
	latest := attempts[0]
	if c.Now.GetId() != latest.GetId() {
		c.Renew(latest.GetPodSandboxId(), latest.GetAnnotations())
	}
	if c.Now.GetState() != latest.GetState() || c.Now == nil {
		s, err := p.Ask(ctx, latest.GetId())
		if err != nil {
			return fmt.Errorf("ask about container %s: %w", name, err)
		}
		p.TakeOver(ctx, c, s)
	}
	if len(attempts) == 1 {
		return nil
	}
	if before := attempts[1]; c.Last.GetId() != before.GetId() || c.Last.GetState() != before.GetState() {
		s, err := p.Ask(ctx, before.GetId())
		if err != nil {
			return fmt.Errorf("ask about container %s: %w", name, err)
		}
		c.Last, c.LastWords = s, p.Words(name, s)
	}
	return nil
}

// Ask asks about a container; nil is that it is gone.
func (p *Pod) Ask(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	resp, err := p.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if grpcstatus.Code(err) == codes.NotFound {
		return nil, nil
	}
	return resp.GetStatus(), err
}

// Renew makes room for the next attempt.
func (c *Container) Renew(sandbox string, annotations map[string]string) {
	c.Care.Abandon()
	if c.Now != nil {
		c.Last, c.LastWords = c.Now, c.Message
	}
	c.Now, c.Care, c.Why, c.Message, c.Removed = nil, nil, "", "", false
	c.Probed, c.Paused, c.Restarted = false, false, false
	record := podspec.RecordOf(annotations)
	c.Sandbox, c.Hash, c.Crashes = sandbox, record.Hash, record.Crashes
}

// TakeOver is the new state of an attempt. One that this worker has not made was begun by
// another agent, and has run for a while.
func (p *Pod) TakeOver(ctx context.Context, c *Container, s *runtimeapi.ContainerStatus) {
	c.Now = s
	if s == nil {
		return
	}
	name := s.GetMetadata().GetName()
	switch s.GetState() {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		if ct := podspec.ContainerOf(p.Tend.Spec.Pod, name); c.Care == nil && ct != nil {
			a := tend.Attempt{Container: ct, ID: s.GetId(), Began: time.Unix(0, s.GetStartedAt()), Found: !p.Made[s.GetId()]}
			if a.Found {
				a.Unhooked = p.Unhooked(name, s.GetId())
				a.Started, a.Ready = status.WasUp(p.Told(), s.GetId())
			}
			c.Care = p.Tend.Begin(ctx, a)
		}
		if delete(p.Made, s.GetId()); p.leaving {
			c.Care.Leave()
		}
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		delete(p.Made, s.GetId())
		c.Care.Release()
		c.Message = p.Words(name, s)
		// One that could not be started has no time when it was, and has not run for long.
		if c.Crashes++; s.GetStartedAt() > 0 && time.Duration(s.GetFinishedAt()-s.GetStartedAt()) >= plan.ForgetAfter {
			c.Crashes = 1
		}
	}
}

// Leave says that the pod is ending.
func (p *Pod) Leave() {
	p.leaving = true
	for _, c := range p.Containers {
		c.Care.Leave()
	}
}

// Needed says that the latest attempt at a container is in a sandbox, and so how it
// has ended.
func (p *Pod) Needed(sandbox string) bool {
	for _, c := range p.Containers {
		if c.Now != nil && c.Sandbox == sandbox {
			return true
		}
	}
	return false
}

// Observed is the view as a plan takes it.
func (p *Pod) Observed() plan.Observed {
	out := plan.Observed{Containers: map[string]*plan.Container{}}
	if b := p.Box; b != nil {
		out.Sandbox = &plan.Sandbox{ID: b.GetId(), Attempt: b.GetMetadata().GetAttempt(), Ready: b.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY}
	}
	for name, c := range p.Containers {
		if c.Now == nil || c.Removed {
			continue
		}
		seen := &plan.Container{
			ID: c.Now.GetId(), Sandbox: c.Sandbox, Attempt: c.Now.GetMetadata().GetAttempt(), State: StateOf(c.Now.GetState()),
			ExitCode: c.Now.GetExitCode(), Crashes: c.Crashes, Hash: c.Hash,
		}
		switch seen.State {
		case plan.Running:
			c.Care.Tell(seen)
			seen.Sick = cmp.Or(seen.Sick, c.Why)
			if ct := podspec.ContainerOf(p.Tend.Spec.Pod, name); ct != nil {
				seen.Resources = podspec.ResourcesOf(p.Tend.Spec, ct, c.Now)
			}
		case plan.Created:
			seen.Refused = p.Refused[seen.ID]
		case plan.Exited:
			seen.Probed, seen.Finished = c.Probed, time.Unix(0, c.Now.GetFinishedAt())
		}
		out.Containers[name] = seen
	}
	return out
}

// Statuses is the view as statuses take it.
func (p *Pod) Statuses() map[string]status.Container {
	out := map[string]status.Container{}
	for name, c := range p.Containers {
		var seen plan.Container
		if c.Now != nil && StateOf(c.Now.GetState()) == plan.Running {
			c.Care.Tell(&seen)
		}
		out[name] = status.Container{
			Now: c.Now, Last: c.Last, Probed: c.Probed, Ready: seen.Ready, Started: seen.Up && !seen.Starting, Message: c.Message, LastMessage: c.LastWords,
		}
	}
	return out
}

// Running are the containers that run, with their logs. By the number of an attempt nobody
// would find these: a runtime that has lost all it had counts anew.
func (p *Pod) Running() []rotate.Container {
	var out []rotate.Container
	for _, name := range slices.Sorted(maps.Keys(p.Containers)) {
		if now := p.Containers[name].Now; now != nil && StateOf(now.GetState()) == plan.Running {
			out = append(out, rotate.Container{ID: now.GetId(), Path: now.GetLogPath()})
		}
	}
	return out
}

// Target is the id of the container that an ephemeral one looks into.
func (p *Pod) Target(name string) string {
	pod := p.Tend.Spec.Pod
	for i := range pod.Spec.EphemeralContainers {
		e := &pod.Spec.EphemeralContainers[i]
		if c := p.Containers[e.TargetContainerName]; e.Name == name && c != nil {
			return c.Now.GetId()
		}
	}
	return ""
}

// StateOf is what a container does, as plans have it.
func StateOf(s runtimeapi.ContainerState) plan.State {
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

// DescribeExit says how an attempt ended, as one reads it.
func DescribeExit(c *Container) string {
	text := fmt.Sprintf("ended with exit code %d", c.Now.GetExitCode())
	if c.Why != "" {
		text += ", as " + c.Why
	}
	if r := c.Now.GetReason(); r != "" && r != "Completed" && r != "Error" {
		text += " (" + r + ")"
	}
	if m := lastwords.OneLine(cmp.Or(c.Message, errtext.Stable(c.Now.GetMessage()))); m != "" {
		text += ": " + m
	}
	return text
}

// Unheard says that a runtime may not have heard what it was asked, or not have said all of it.
func Unheard(err error) bool {
	switch grpcstatus.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// CutOff says that something was given up because the pod is to end, or the agent ends.
func CutOff(err error) bool {
	return errors.Is(err, context.Canceled) || grpcstatus.Code(err) == codes.Canceled
}
