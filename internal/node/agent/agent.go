package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/admission"
	"fairlead.run/internal/node/changes"
	"fairlead.run/internal/node/clock"
	"fairlead.run/internal/node/ledger"
	"fairlead.run/internal/node/logs/rotate"
	"fairlead.run/internal/node/outfit"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/probe"
	"fairlead.run/internal/node/pulse"
	"fairlead.run/internal/node/shown"
	"fairlead.run/internal/node/slots"
	"fairlead.run/internal/node/source"
	"fairlead.run/internal/node/strays"
	"fairlead.run/internal/node/tally"
	"fairlead.run/internal/node/userids"
	"fairlead.run/internal/node/volume"
	"fairlead.run/internal/node/volume/survey"
)

// Config is what an Agent works with. What is not said to be optional is required.
type Config struct {
	// Name marks the sandboxes of this agent. It never touches those of others. Without
	// one it is given one that nobody else has: no agent takes its pods over then, and
	// nothing that it knows outlives it.
	Name    string
	Runtime runtimeapi.RuntimeServiceClient
	// Scheme is how ids of containers begin in statuses: the name of the runtime.
	Scheme  string
	Images  outfit.Images
	Objects podspec.Lookup
	Node    podspec.Node
	Place   Place
	Reporter
	Root, State   string // persistent folder, and one on a tmpfs
	volume.Around        // what volumes need; may be empty
	// Cgroups may be nil: the runtime then puts pods where it likes. Room may be nil:
	// there is room for all then.
	Cgroups Cgroups
	Room    admission.Room
	Logs
	Log *slog.Logger
}

// Logs says where those of containers are.
type Logs struct {
	// LogDir is where the logs of a pod are; nil for a folder below Root.
	LogDir func(*corev1.Pod) string
	// Links is a folder of links to them; see package links. Empty for none.
	Links string
}

// Place says where on the node a pod runs. An error that is a *Refusal ends the pod;
// with any other it is asked again.
type Place func(ctx context.Context, pod *corev1.Pod) (Placement, error)

// Placement is what a RuntimeClass comes to.
type Placement struct {
	Class, Handler string // empty for none, and the default
	Overhead       corev1.ResourceList
	Features       *runtimeapi.RuntimeHandlerFeatures
	Notes          []string // for an event
}

// Refusal is why a pod never runs here. It has failed then.
type Refusal = ledger.Refusal

// Reporter is told how pods are. Calls come from many goroutines, and must not wait.
type Reporter interface {
	// Changed tells the new status of a pod. The pod is not to be changed.
	Changed(pod *corev1.Pod, status corev1.PodStatus)
	// Event tells what happened; kind is Normal or Warning.
	Event(pod *corev1.Pod, kind, reason, message string)
	// Gone tells that nothing of a pod is left here.
	Gone(pod *corev1.Pod)
}

// Detailed is a Reporter that wants to know more than statuses hold. It is told by Detail
// in the place of Changed, also when nothing but the detail is new.
type Detailed interface {
	Reporter
	Detail(pod *corev1.Pod, status corev1.PodStatus, d shown.Detail)
}

// Precise is a Reporter that wants to know which container an event is about. It is told by
// ContainerEvent in the place of Event, if that is about one.
type Precise interface {
	Reporter
	ContainerEvent(pod *corev1.Pod, e ContainerEvent)
}

// Warner is a Reporter that wants to know what is wrong with the node and not with a pod that
// somebody knows.
type Warner interface {
	Reporter
	Warn(reason, message string)
}

// ContainerEvent is an event about a container, whose field path in its pod is
// spec.containers{web}.
type ContainerEvent struct{ Path, Kind, Reason, Message string }

// Agent keeps pods.
type Agent struct {
	cfg Config
	bounds
	memory
	poked chan struct{} // there is something to arrange
	pulse pulse.Pulse
	counts

	mu      sync.Mutex
	wanted  []*corev1.Pod // the last Set
	unread  []string      // of the last Set
	known   bool          // there was a Set
	settled bool          // nothing is left that may belong to pods of unread sources
	workers map[types.UID]*worker
	done    map[types.UID]bool // pods that are gone, and still asked to go
	queue   map[types.UID]bool // pods that wait for others of their name
}

// bounds are what pods wait for.
type bounds struct {
	gate   *admission.Gate
	starts *slots.Slots // for what starts sandboxes and containers
	probes *slots.Slots
}

// counts are what the agent tells of its pods in numbers.
type counts struct {
	stats   *tally.Tally
	volumes *survey.Survey
}

// memory is what outlives an agent.
type memory struct {
	ledger    ledger.Ledger
	ids       *userids.Pool
	transient bool // it was given its name, and has no ledger
}

// What begins at a time: sandboxes and containers that start, and probes; and how long
// a start counts, the first time, and of a pod whose last one took longer than that.
const (
	heldOnce       = 2 * time.Second
	heldAgain      = 20 * time.Millisecond
	parallelStarts = 8
	parallelProbes = 16
)

// New makes an Agent.
func New(cfg Config) *Agent {
	if cfg.Cgroups == nil {
		cfg.Cgroups = noCgroups{}
	}
	book := ledger.Ledger{Root: cfg.Root, Agent: cfg.Name}
	transient := cfg.Name == ""
	if transient {
		cfg.Name, book = "run-"+string(uuid.NewUUID()), ledger.Ledger{}
	}
	a := &Agent{
		cfg: cfg, bounds: bounds{gate: admission.New(cfg.Room, book), starts: slots.New(parallelStarts), probes: probe.NewSlots(parallelProbes)},
		memory: memory{ledger: book, ids: userids.New(userids.In(cfg.Root)), transient: transient},
		poked:  make(chan struct{}, 1), workers: map[types.UID]*worker{}, done: map[types.UID]bool{}, counts: counts{stats: tally.New()},
	}
	a.stats.Watch(cfg.Node.Name, a.Pods)
	a.volumes = survey.New(a.parts)
	return a
}

// Set says which pods are wanted: all of them. Each has a UID, and the agent changes
// none of them. One that has a deletionTimestamp ends within its grace period, and so
// does one that is not among them any more. It may be called before Run.
//
// Unread are the sources of pods (see source.Of) that nobody
// could read yet. What an earlier agent has left of their pods stays as it is.
func (a *Agent) Set(pods []*corev1.Pod, unread ...string) {
	a.mu.Lock()
	a.wanted, a.unread, a.known = slices.Clone(pods), unread, true
	a.mu.Unlock()
	poke(a.poked)
}

// Remembered are the pods that the agent has had before it was started: their names, and
// the statuses of those that have ended.
func (a *Agent) Remembered() []*corev1.Pod { return a.ledger.Pods() }

// Ended says that the agent remembers how a pod has ended, so that it would not run it
// again.
func (a *Agent) Ended(uid types.UID) bool {
	r, found, err := a.ledger.Read(uid)
	return err == nil && found && r.Ended != nil
}

// Touch has pods tried at once, whatever they wait for, to which something may have happened
// that no runtime knows, such as a change of an object that they refer to.
func (a *Agent) Touch(pods ...types.UID) {
	for _, uid := range pods {
		if w := a.worker(uid); w != nil {
			w.in.Retry()
		}
	}
}

// Reconsider asks once more where the pods can run that were refused, as what they
// refer to may be there by now. What could not be started goes on waiting; see Touch.
func (a *Agent) Reconsider() {
	for _, w := range a.all() {
		w.in.Reconsider()
	}
}

// Evict ends a pod that stays wanted: it has failed, for that reason, and is not run
// again, unless that has Again and Resume is called. It says whether there is such a pod.
func (a *Agent) Evict(uid types.UID, grace int64, why Refusal) bool {
	w := a.worker(uid)
	if w == nil {
		return false
	}
	w.in.Fail(grace, why)
	return true
}

// again has the pods do what has come due by a clock that was set.
func (a *Agent) again() {
	for _, w := range a.all() {
		w.in.Wake()
	}
}

// Resume has the pods run again that were evicted for a reason with Again: what they had to
// end for is over.
func (a *Agent) Resume() {
	for _, w := range a.all() {
		w.in.Resume()
	}
}

// Pods are the pods that the agent has, with their statuses, by namespace and name.
func (a *Agent) Pods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, w := range a.all() {
		if p := w.shown.WithStatus(); p != nil {
			out = append(out, w.in.Going(p))
		}
	}
	slices.SortFunc(out, func(x, y *corev1.Pod) int { return strings.Compare(x.Namespace+"/"+x.Name, y.Namespace+"/"+y.Name) })
	return out
}

func (a *Agent) all() []*worker {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]*worker, 0, len(a.workers))
	for _, w := range a.workers {
		out = append(out, w)
	}
	return out
}

func (a *Agent) worker(uid types.UID) *worker {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.workers[uid]
}

// Run keeps the pods until ctx ends. They go on then; whoever runs next finds them. The
// error is errdefs.ErrAlreadyExists if another process keeps them.
func (a *Agent) Run(ctx context.Context) error {
	if !a.transient {
		release, err := ledger.Lock(a.cfg.State, a.cfg.Name)
		if err != nil {
			return err
		}
		defer release()
	}
	return a.RunLocked(ctx)
}

// RunLocked is Run of whoever has the agent's ledger.Lock already.
func (a *Agent) RunLocked(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	a.pulse.Beat()
	watcher := changes.New(a.cfg.Runtime, a.cfg.Log, a.wake)
	watcher.Listed = a.stats.Listed
	all.Go(func() { watcher.Run(ctx) })
	all.Go(func() { _ = clock.Watch(ctx, a.again) }) // it ends with ctx alone, too
	all.Go(func() { _ = a.volumes.Run(ctx) })        // it ends with ctx alone
	found, err := a.survey(ctx)
	for err == nil {
		a.tellQueue(a.arrange(ctx, &all, found))
		err = a.pulse.Await(ctx, a.poked)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// wake has a pod looked at to which something has happened.
func (a *Agent) wake(uid string) {
	if w := a.worker(types.UID(uid)); w != nil {
		w.in.Look()
	}
}

// arrange has a worker for each pod that is wanted or left over, and none besides. Of
// two pods with one name the second waits until nothing of the first is left, also where
// that has no worker as its source was not read. It gives
// those that begin to wait for that, of which nobody was told yet.
func (a *Agent) arrange(ctx context.Context, all *sync.WaitGroup, found map[types.UID]*corev1.Pod) []queued {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.known {
		return nil // nobody has said yet which pods are to go
	}
	wanted := map[types.UID]*corev1.Pod{}
	for _, p := range a.wanted {
		wanted[p.UID] = p
	}
	maps.DeleteFunc(a.done, func(uid types.UID, _ bool) bool { return wanted[uid] == nil })
	named := map[string]types.UID{}
	for uid, w := range a.workers {
		named[w.name] = uid
		if p := wanted[uid]; p != nil {
			w.in.Update(p)
		} else {
			w.guest.Leave()
			w.in.End("it is not wanted any more")
		}
	}
	begin := func(w *worker) {
		a.workers[w.uid], named[w.name] = w, w.uid
		all.Go(func() { a.keep(ctx, w, found) })
	}
	for _, left := range a.unwanted(wanted, found) {
		w := newWorker(a, left)
		w.guest.Leave()
		w.in.End("nobody wants it any more")
		begin(w)
	}
	a.settled = len(a.unread) == 0
	left := map[string]*corev1.Pod{} // what stays untouched, as it may be wanted
	for _, p := range found {
		left[fullName(p)] = p
	}
	var queue []queued
	for _, p := range a.wanted {
		switch w, before := a.workers[p.UID], named[fullName(p)]; {
		case w != nil:
			w.guest.Retry()
		case p.DeletionTimestamp != nil && a.done[p.UID]:
		case before != "":
			queue = append(queue, queued{pod: p, before: before})
		case left[fullName(p)] != nil:
			untouched := left[fullName(p)]
			queue = append(queue, queued{pod: p, before: untouched.UID, unread: source.Of(untouched)})
		default:
			w = newWorker(a, p)
			w.guest.Ask()
			begin(w)
		}
	}
	return a.newIn(queue)
}

// keep runs a worker to its end. If its pod is to be run anew it is found again.
func (a *Agent) keep(ctx context.Context, w *worker, found map[types.UID]*corev1.Pod) {
	w.run(ctx)
	a.mu.Lock()
	switch {
	case w.gone:
		a.done[w.uid] = true
		delete(a.workers, w.uid)
		w.guest.End()
	case w.resumes:
		found[w.uid] = w.given // nobody may want it by now
		delete(a.workers, w.uid)
	}
	a.mu.Unlock()
	poke(a.poked) // there may be room for others now
}

// unwanted takes out of what was found the pods that are known to be wanted or not, and
// returns those that nobody wants and no worker has. The caller holds mu.
func (a *Agent) unwanted(wanted, found map[types.UID]*corev1.Pod) (out []*corev1.Pod) {
	replaced := map[string]bool{} // names in sources of which another pod is wanted
	for _, p := range a.wanted {
		replaced[source.Of(p)+" "+fullName(p)] = true
	}
	for uid, left := range found {
		if wanted[uid] == nil && a.workers[uid] == nil {
			from := source.Of(left)
			unread := slices.Contains(a.unread, from) || from == strays.Nowhere && len(a.unread) > 0
			if unread && !replaced[from+" "+fullName(left)] { // no source has two of a name
				continue // it may be wanted
			}
			out = append(out, left)
		}
		delete(found, uid)
	}
	return out
}

func fullName(p *corev1.Pod) string { return fmt.Sprintf("%s/%s", p.Namespace, p.Name) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Running are the containers that run, with their logs, for whoever rotates these.
func (a *Agent) Running(context.Context) ([]rotate.Container, error) {
	var out []rotate.Container
	for _, w := range a.all() {
		if logs := w.logs.Load(); logs != nil {
			out = append(out, *logs...)
		}
	}
	return out, nil
}

// Metrics writes what the agent has counted, in the text format of Prometheus.
func (a *Agent) Metrics(to io.Writer) error {
	return errors.Join(a.stats.Write(to), tally.WriteClaims(to, a.claims()))
}

// Healthy says that the agent goes on giving pods to their workers. It does not while a
// runtime has not said yet which pods it has.
func (a *Agent) Healthy(context.Context) error {
	if err := a.pulse.Healthy(); err != nil {
		return fmt.Errorf("the agent does not look for new pods: %w", err)
	}
	return nil
}

// ProbeMetrics writes how the probes of the pods that are here have ended.
func (a *Agent) ProbeMetrics(to io.Writer) error { return a.stats.Probes.Write(to) }
