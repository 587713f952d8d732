package foreground

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/agent"
	"fairlead.run/internal/node/endpoint"
	"fairlead.run/internal/node/handlers"
	"fairlead.run/internal/node/images"
	"fairlead.run/internal/node/logs/rotate"
	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/podspec"
)

// Config is what a Run works with. All fields but Rotation are required.
type Config struct {
	Endpoint    *endpoint.Endpoint
	Puller      images.Puller
	Objects     *manifest.Objects
	Node        podspec.Node
	Observer    Observer
	Root, State string // persistent folder, and one on a tmpfs
	// Rotation says how large logs become; what it is done with is set here.
	Rotation rotate.Config
}

// Plan is a pod whose handler is known.
type Plan struct {
	Pod *manifest.Pod
	handlers.Choice
	Features *runtimeapi.RuntimeHandlerFeatures
	UID      types.UID // what the pod will have
}

// Resolve finds the handler of every pod. Nothing is created or pulled before it succeeds
// for all.
func Resolve(set *handlers.Set, pods []*manifest.Pod, classes map[string]*nodev1.RuntimeClass) ([]Plan, error) {
	var plans []Plan
	var errs []error
	seen := map[string]bool{} // replicas fail alike: once is enough
	for _, p := range pods {
		choice, err := set.Resolve(p, classes)
		if _, why := set.CheckSecurity(p.Pod); err == nil && why != nil {
			err = fmt.Errorf("%s: %w", p.Origin, why)
		}
		if err != nil {
			if !seen[err.Error()] {
				errs = append(errs, err)
			}
			seen[err.Error()] = true
			continue
		}
		plans = append(plans, Plan{Pod: p, Choice: choice, Features: set.Features(choice.Handler), UID: uuid.NewUUID()})
	}
	return plans, errors.Join(errs...)
}

// Run is one set of pods. Make it by New, then Start it; after that comes Wait and Stop, or
// Leave.
type Run struct {
	cfg     Config
	images  refs
	agent   *agent.Agent
	byUID   map[types.UID]*pod
	pods    []*pod        // in the order of the manifests
	changed chan struct{} // a pod is not as it was
	end     func()        // ends the agent, and waits for that
}

// New makes a Run.
func New(cfg Config) *Run {
	r := &Run{
		cfg: cfg, images: refs{refs: map[imageKey]string{}, info: map[imageKey]*runtimeapi.Image{}},
		byUID: map[types.UID]*pod{}, changed: make(chan struct{}, 1), end: func() {},
	}
	r.agent = agent.New(agent.Config{
		Runtime: cfg.Endpoint.Runtime, Scheme: cfg.Endpoint.Name, Images: &r.images, Objects: lookup{cfg.Objects}, Node: cfg.Node,
		Place: r.place, Reporter: reporter{r}, Root: cfg.Root, State: cfg.State, Log: slog.New(slog.DiscardHandler),
	})
	return r
}

// lookup has the objects that pods refer to.
type lookup struct{ *manifest.Objects }

// ConfigMap implements podspec.Lookup.
func (l lookup) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return l.ConfigMaps[manifest.Key{Namespace: namespace, Name: name}], nil
}

// Secret implements podspec.Lookup.
func (l lookup) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return l.Secrets[manifest.Key{Namespace: namespace, Name: name}], nil
}

// place is what was resolved before.
func (r *Run) place(_ context.Context, p *corev1.Pod) (agent.Placement, error) {
	plan := r.byUID[p.UID].plan
	return agent.Placement{Class: plan.Class, Handler: plan.Handler, Overhead: plan.Overhead, Features: plan.Features}, nil
}

// Start pulls the images and starts all pods. It returns when every container was started,
// its postStart hook included, and every init container has ended. If it fails, what it
// created is removed.
func (r *Run) Start(ctx context.Context, plans []Plan) error {
	if err := r.checkNames(ctx, plans); err != nil {
		return err
	}
	if err := r.pullAll(ctx, plans); err != nil {
		return err
	}
	var wanted []*corev1.Pod
	for _, plan := range plans {
		p := newPod(r, plan)
		r.pods, r.byUID[plan.UID] = append(r.pods, p), p
		wanted = append(wanted, p.pod)
	}
	r.agent.Set(wanted)
	if err := r.keep(ctx); err != nil {
		return err
	}
	err := r.await(ctx, r.started)
	if err == nil {
		r.nameHandlers(ctx)
		return nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("wait until all pods have started: %w", ctx.Err())
	}
	now := make(chan struct{})
	close(now)
	return errors.Join(err, r.Stop(context.WithoutCancel(ctx), now))
}

// keep has the agent run beside, also when ctx has ended: it is needed to end the pods. So
// has it what keeps their logs small.
func (r *Run) keep(ctx context.Context) error {
	rotation := r.cfg.Rotation
	rotation.Runtime, rotation.List, rotation.Log = r.cfg.Endpoint.Runtime, r.agent.Running, slog.New(slog.DiscardHandler)
	logs, err := rotate.New(rotation)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { _ = r.agent.Run(ctx) }) // it ends with the context, and for nothing else
	running.Go(func() { _ = logs.Run(ctx) })    // as does this
	r.end = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	return nil
}

// await waits until something is so, or has failed.
func (r *Run) await(ctx context.Context, so func() (bool, error)) error {
	for {
		if done, err := so(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.changed:
		}
	}
}

// started says whether all pods have, and what came in the way.
func (r *Run) started() (bool, error) {
	var errs []error
	all := true
	for _, p := range r.pods {
		started, err := p.hasStarted()
		all, errs = all && started, append(errs, err)
	}
	return all, errors.Join(errs...)
}

// checkNames refuses pods whose names are taken.
func (r *Run) checkNames(ctx context.Context, plans []Plan) error {
	list, err := r.cfg.Endpoint.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	taken := map[manifest.Key]string{}
	for _, s := range list.GetItems() {
		taken[manifest.Key{Namespace: s.GetMetadata().GetNamespace(), Name: s.GetMetadata().GetName()}] = s.GetId()
	}
	var errs []error
	for _, p := range plans {
		if id, ok := taken[p.Pod.Key()]; ok {
			errs = append(errs, fmt.Errorf("%s: a pod %s exists already (%.13s); remove it with: fairlead rm %s: %w",
				p.Pod.Origin, p.Pod.Key(), id, p.Pod.Key(), errdefs.ErrAlreadyExists))
		}
	}
	return errors.Join(errs...)
}

// nameHandlers finds out on which handler pods run that have asked for none.
func (r *Run) nameHandlers(ctx context.Context) {
	for _, p := range r.pods {
		if p.plan.Handler != "" {
			continue
		}
		mine := map[string]string{podspec.LabelPodUID: string(p.plan.UID)}
		list, err := r.cfg.Endpoint.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: mine}})
		if err != nil || len(list.GetItems()) == 0 {
			continue // the table has a gap then
		}
		answer, err := r.cfg.Endpoint.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: list.GetItems()[0].GetId(), Verbose: true})
		if err == nil {
			p.setHandler(handlers.Of(answer))
		}
	}
}

// Statuses are all pods in the order of the manifests.
func (r *Run) Statuses() []Status {
	out := make([]Status, 0, len(r.pods))
	for _, p := range r.pods {
		out = append(out, p.current())
	}
	return out
}

// ErrPodFailed says that a pod ended with a failure of its own.
var ErrPodFailed = errors.New("a pod failed")

// Wait waits until every pod has ended, or the context has. The error is ErrPodFailed if
// one failed.
func (r *Run) Wait(ctx context.Context) error { return r.await(ctx, r.outcome) }

// outcome says whether all pods have ended, and how.
func (r *Run) outcome() (bool, error) {
	var failed []string
	for _, s := range r.Statuses() {
		switch s.Phase {
		case Pending, Running:
			return false, nil
		case Failed:
			failed = append(failed, s.Namespace+"/"+s.Name)
		}
	}
	if len(failed) > 0 {
		return true, fmt.Errorf("%w: %s", ErrPodFailed, strings.Join(failed, " "))
	}
	return true, nil
}

// poke has whoever waits look again.
func (r *Run) poke() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}
