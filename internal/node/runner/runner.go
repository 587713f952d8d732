package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/changes"
	"fairlead.run/internal/node/endpoint"
	"fairlead.run/internal/node/handlers"
	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/probe"
	"fairlead.run/internal/node/removal"
	"fairlead.run/internal/node/slots"
	"fairlead.run/internal/node/tend"
)

// Config is what a Runner works with. All fields are required.
type Config struct {
	Endpoint *endpoint.Endpoint
	Puller   Puller
	Objects  *Objects
	Node     podspec.Node
	Observer Observer
	Root     string // persistent folder
	State    string // folder on a tmpfs
}

// Objects are the objects that pods refer to.
type Objects struct{ *manifest.Objects }

// ConfigMap implements podspec.Lookup.
func (o *Objects) ConfigMap(namespace, name string) *corev1.ConfigMap {
	return o.ConfigMaps[manifest.Key{Namespace: namespace, Name: name}]
}

// Secret implements podspec.Lookup.
func (o *Objects) Secret(namespace, name string) *corev1.Secret {
	return o.Secrets[manifest.Key{Namespace: namespace, Name: name}]
}

// Plan is a pod whose handler is known.
type Plan struct {
	Pod *manifest.Pod
	handlers.Choice
	Features *runtimeapi.RuntimeHandlerFeatures
	UID      types.UID // what the pod will have
}

// Resolve finds the handler of every pod. Nothing is created or pulled before
// it succeeds for all.
func Resolve(set *handlers.Set, pods []*manifest.Pod, classes map[string]*nodev1.RuntimeClass) ([]Plan, error) {
	var plans []Plan
	var errs []error
	seen := map[string]bool{} // replicas fail alike: once is enough
	for _, p := range pods {
		choice, err := set.Resolve(p, classes)
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

// Runner runs one set of pods.
type Runner struct {
	cfg     Config
	images  refs
	pods    []*worker
	starts  chan struct{} // slots for what starts sandboxes and containers
	slots   *slots.Slots
	changed chan struct{} // a pod is not as it was
}

// New makes a Runner.
func New(cfg Config) *Runner {
	return &Runner{
		cfg: cfg, images: refs{refs: map[imageKey]string{}, info: map[imageKey]*runtimeapi.Image{}},
		starts: make(chan struct{}, parallelStarts), slots: probe.NewSlots(parallelProbes), changed: make(chan struct{}, 1),
	}
}

// What begins at a time: sandboxes and containers that start, and probes.
const (
	parallelStarts = 8
	parallelProbes = 16
)

// Start pulls the images and starts all pods. It returns when every container
// was started, its postStart hook included, and every init container has ended.
// If it fails, what it created is removed.
func (r *Runner) Start(ctx context.Context, plans []Plan) (err error) {
	if err := r.checkNames(ctx, plans); err != nil {
		return err
	}
	if err := r.pullAll(ctx, plans); err != nil {
		return err
	}
	for _, p := range plans {
		for _, ct := range allContainers(p.Pod.Pod) {
			_, info := r.images.get(keyOf(p.Pod.Pod, ct.Image))
			if err := podspec.CheckNonRoot(p.Pod.Pod, ct, info); err != nil {
				return fmt.Errorf("%s: %w", p.Pod.Origin, err)
			}
		}
	}
	for _, p := range plans {
		r.pods = append(r.pods, newWorker(r, p))
	}
	defer func() {
		if err != nil {
			now := make(chan struct{})
			close(now)
			err = errors.Join(err, r.Stop(context.WithoutCancel(ctx), now))
		}
	}()
	defer r.watch(ctx)()
	return r.each(func(w *worker) error { return w.start(ctx) })
}

// watch wakes pods to which something happens, until what it returns is called.
func (r *Runner) watch(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	watcher := changes.New(r.cfg.Endpoint.Runtime, slog.New(slog.DiscardHandler), r.wake)
	go func() {
		defer close(ended)
		watcher.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

func newWorker(r *Runner, p Plan) *worker {
	pod := p.Pod.DeepCopy()
	pod.UID = p.UID
	dirs := removal.Dirs(r.cfg.Root, r.cfg.State, string(pod.UID))
	pulled := func(image string) string {
		ref, _ := r.images.get(keyOf(pod, image))
		return ref
	}
	w := &worker{
		r: r, plan: p, dirs: dirs,
		spec: &podspec.Context{
			Pod: pod, Node: r.cfg.Node, Objects: r.cfg.Objects, LogDir: filepath.Join(dirs.Disk, "logs"),
			Overhead: p.Overhead, Features: p.Features, Pulled: pulled,
		},
		containers: map[string]*container{}, in: newInbox(),
		status: Status{
			Namespace: pod.Namespace, Name: pod.Name, Class: p.Class, Handler: p.Handler,
			Phase: Pending, Total: len(pod.Spec.Containers) + sidecars(pod),
		},
	}
	w.tend = &tend.Pod{Spec: w.spec, Runtime: r.cfg.Endpoint.Runtime, Slots: r.slots, Wake: w.in.wake, Told: w.told}
	return w
}

func sidecars(pod *corev1.Pod) (n int) {
	for i := range pod.Spec.InitContainers {
		if plan.Sidecar(&pod.Spec.InitContainers[i]) {
			n++
		}
	}
	return n
}

// each does something with every pod, and none waits for another.
func (r *Runner) each(do func(*worker) error) error {
	errs := make([]error, len(r.pods))
	var wg sync.WaitGroup
	for i, w := range r.pods {
		wg.Go(func() { errs[i] = do(w) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// checkNames refuses pods whose names are taken.
func (r *Runner) checkNames(ctx context.Context, plans []Plan) error {
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

// Statuses are all pods in the order of the manifests.
func (r *Runner) Statuses() []Status {
	out := make([]Status, 0, len(r.pods))
	for _, w := range r.pods {
		out = append(out, w.current())
	}
	return out
}

// ErrPodFailed says that a pod ended with a failure of its own.
var ErrPodFailed = errors.New("a pod failed")

// Run watches the started pods and restarts containers by their policy, until
// every pod has ended or the context does. The error is ErrPodFailed if one
// failed. Each pod has a goroutine of its own: one that takes long to stop a
// container delays no other.
func (r *Runner) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var workers sync.WaitGroup
	for _, w := range r.pods {
		workers.Go(func() {
			if err := w.run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	defer r.watch(ctx)()
	defer workers.Wait()
	defer cancel(nil)
	return r.wait(ctx)
}

// wake has a pod looked at to which something has happened.
func (r *Runner) wake(uid string) {
	for _, w := range r.pods {
		if string(w.spec.Pod.UID) == uid {
			w.in.wake()
		}
	}
}

// wait waits until all pods have ended.
func (r *Runner) wait(ctx context.Context) error {
	for {
		if done, err := r.outcome(); done {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.changed:
		}
	}
}

// outcome says whether all pods have ended, and how.
func (r *Runner) outcome() (done bool, err error) {
	failed, names := 0, ""
	for _, s := range r.Statuses() {
		switch s.Phase {
		case Pending, Running:
			return false, nil
		case Failed:
			failed++
			names += " " + s.Namespace + "/" + s.Name
		}
	}
	if failed > 0 {
		return true, fmt.Errorf("%w:%s", ErrPodFailed, names)
	}
	return true, nil
}

// Stop stops and removes every pod that the run created. Containers have their
// grace period until now is closed; nil is never.
func (r *Runner) Stop(ctx context.Context, now <-chan struct{}) error {
	return r.each(func(w *worker) error { return w.remove(ctx, now) })
}

// Close ends probes, and waits for the last lines of logs. The pods stay.
func (r *Runner) Close() {
	for _, w := range r.pods {
		w.endCare()
		w.endLogs()
	}
}
