package machine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/agent"
	"fairlead.run/internal/node/endpoint"
	"fairlead.run/internal/node/eviction"
	"fairlead.run/internal/node/garbage"
	"fairlead.run/internal/node/handlers"
	"fairlead.run/internal/node/ledger"
	"fairlead.run/internal/node/logs/rotate"
	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/priority"
	"fairlead.run/internal/node/removal"
	"fairlead.run/internal/node/resources"
	"fairlead.run/internal/node/shown"
	"fairlead.run/internal/node/source"
	"fairlead.run/internal/node/source/changeset"
	"fairlead.run/internal/node/source/gather"
	"fairlead.run/internal/node/stock"
	"fairlead.run/internal/node/volume"
	"fairlead.run/internal/node/volume/unsupported"
	"fairlead.run/internal/node/workload"
)

// Name marks the pods of a machine; see agent.Config.
const Name = "up"

// Config is what a Machine works with. All fields are required.
type Config struct {
	Endpoint    *endpoint.Endpoint
	Node        podspec.Node
	Manifests   gather.Config // where pods are written; Changes, Keep and Log are set here
	Stock       stock.Settings
	Root, State string // persistent folder, and one on a tmpfs
	Resources   resources.Settings
	Watcher
	Log *slog.Logger
}

// Watcher is told what happens, for people. Calls come from many goroutines.
type Watcher interface {
	// Changed tells the new status of a pod, and what keeps it from being ready beyond
	// what that says.
	Changed(pod *corev1.Pod, status corev1.PodStatus, why string)
	// Event tells what happened to a pod.
	Event(pod *corev1.Pod, kind, reason, message string)
	// Gone tells that nothing of a pod is left.
	Gone(pod *corev1.Pod)
	// Problems tells what is wrong with manifests: all of it, each time that it has
	// changed.
	Problems(list []source.Problem)
	// Note tells of something in manifests that is right but may surprise, as what means
	// nothing here and is left out; once, as long as it stays the same.
	Note(text string)
}

// Lock makes sure that nobody else keeps the pods of the machine with that state folder.
// It comes before New, and before anything of the machine is changed. The error is
// errdefs.ErrAlreadyExists if somebody else has it.
func Lock(state string) (release func(), err error) { return ledger.Lock(state, Name) }

// Machine is one. Make it by New.
type Machine struct {
	cfg     Config
	agent   *agent.Agent
	garbage *garbage.Collector // also for when the disk is needed at once
	keeper  *resources.Keeper
	sources *gather.Sources
	events  journal
	changed chan struct{} // manifests or pods have
	// beside is what is known of pods beside what the agent has, by UID.
	beside struct {
		remembered sync.Map // pods that there were before the agent was started
		whys       sync.Map // what keeps pods from being ready; see shown.Detail
		unclassed  sync.Map // specs of those whose priorities do not fit their classes
		again      replacements
	}

	mu       sync.Mutex
	objects  *manifest.Objects // nil before the manifests were read
	unread   []string          // sources
	problems []source.Problem
	// last is what the agent was last asked for.
	last struct {
		objects  *manifest.Objects
		pods     map[types.UID]ask
		going    map[types.UID]ask          // that it was asked for before, and of which something is left
		statuses map[string]workload.Status // see workload.All
	}
	set   *handlers.Set // what the runtime can do, as it was last asked
	asked time.Time
}

// New makes a Machine. Whoever does so has the Lock until Run has ended.
func New(ctx context.Context, cfg Config) (*Machine, error) {
	if cfg.Manifests.Folder != "" {
		cfg.Manifests.Changes = changeset.New(cfg.Manifests.Folder)
	}
	m := &Machine{cfg: cfg, changed: make(chan struct{}, 1)}
	m.beside.again = replacements{}
	if err := os.MkdirAll(cfg.Root, 0o711); err != nil {
		return nil, err
	}
	if err := m.events.load(m.eventFile()); err != nil {
		m.warn("EventsLost", "What has happened before is not known any more, and is kept anew from now on: "+err.Error())
	}
	var err error
	if m.keeper, err = resources.New(ctx, resources.Config{
		Settings: cfg.Resources, Runtime: cfg.Endpoint.Runtime, Images: cfg.Endpoint.Images, Name: cfg.Node.Name, Folder: cfg.Root, Logs: m.logDir, Tell: m.tell(),
		Node: m.node, Manifests: true, Log: cfg.Log,
	}); err != nil {
		return nil, err
	}
	cfg.Node.Allocatable = m.keeper.Node().Allocatable
	goods, err := stock.New(stock.Config{Settings: cfg.Stock, Runtime: cfg.Endpoint.Runtime, Client: cfg.Endpoint.Images, Root: cfg.Root, Warn: m.warn, Log: cfg.Log})
	if err != nil {
		return nil, err
	}
	m.agent = agent.New(agent.Config{
		Name: Name, Runtime: cfg.Endpoint.Runtime, Scheme: cfg.Endpoint.Name, Images: goods, Objects: m, Node: cfg.Node, Place: m.place,
		Cgroups: m.keeper.Cgroups(), Room: m.keeper, Around: volume.Around{Allocatable: m.keeper.Node().Allocatable, Claims: claims{m}}, Reporter: reporter{m}, Root: cfg.Root, State: cfg.State, Log: cfg.Log,
	})
	cfg.Manifests.Keep, cfg.Manifests.Log = cfg.Root, cfg.Log
	if m.sources, err = gather.New(cfg.Manifests, m.take); err != nil {
		return nil, err
	}
	// The logs of a pod go with its volumes.
	m.garbage, err = goods.Collector(m.agent, "", m.garbageIsLeft)
	return m, err
}

// eventFile is where the last events are kept.
func (m *Machine) eventFile() string { return filepath.Join(m.cfg.Root, "events.json") }

// eventsNotKept tells why.
func (m *Machine) eventsNotKept(err error) {
	m.warn("EventsNotKept", "The next start will not know what has happened since; that is tried again: "+err.Error()+hostpath.Advice(err))
}

// garbageIsLeft tells why, by an event of the machine.
func (m *Machine) garbageIsLeft(reason string, err error) {
	m.warn(reason, err.Error()+hostpath.Advice(err))
}

// logGrows tells of a log that is not rotated.
func (m *Machine) logGrows(err error) {
	m.event(rotate.FailedRotation, err.Error()+hostpath.Advice(err))
}

// warn tells of what is wrong with the machine itself, by an event of it.
func (m *Machine) warn(reason, message string) {
	m.cfg.Log.Warn("something is wrong with the machine", "reason", reason, "message", message)
	m.event(reason, message)
}

// event adds one about what is in the log already.
func (m *Machine) event(reason, message string) {
	m.events.add(m.self(), corev1.EventTypeWarning, reason, message)
}

// self is the machine, as events are about it.
func (m *Machine) self() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: m.cfg.Node.Name}
}

// Run keeps the pods of the manifests until ctx ends. They go on then.
func (m *Machine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	logs, err := m.cfg.Stock.Logs.Rotator(rotate.Config{Runtime: m.cfg.Endpoint.Runtime, List: m.agent.Running, Failed: m.logGrows, Log: m.cfg.Log})
	if err != nil {
		return err
	}
	defer m.keeper.Close()
	defer func() { _, _ = m.events.save(m.eventFile()) }() // also what is told while all end
	events := func(ctx context.Context) error { return m.events.run(ctx, m.eventFile(), m.eventsNotKept) }
	keeper := func(ctx context.Context) error { return m.keeper.Run(ctx, m.agent, m.garbage) }
	parts := []func(context.Context) error{m.sources.Run, m.keep, m.agent.RunLocked, logs.Run, m.garbage.Run, keeper, events, m.serve}
	errs := make([]error, len(parts))
	var all sync.WaitGroup
	for i, run := range parts {
		all.Go(func() {
			errs[i] = run(ctx)
			cancel() // none goes on alone
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// take is the new set of manifests.
func (m *Machine) take(s source.Set) {
	m.mu.Lock()
	before := m.problems
	changed := !same(before, s.Problems)
	m.problems = s.Problems
	var notes []string
	var idle []manifest.Shown
	known := m.objects
	if s.Objects != nil { // of those sources that were read; the rest is left as it is
		notes = s.Objects.Notes
		if known != nil {
			notes = slices.DeleteFunc(slices.Clone(notes), func(n string) bool { return slices.Contains(known.Notes, n) })
		}
		idle = newGuards(known, s.Objects)
		m.objects = s.Objects
	}
	m.unread = s.Unread
	m.mu.Unlock()
	for _, o := range idle {
		m.events.add(referenceTo(o), corev1.EventTypeWarning, notEnforced, "Nothing here acts on it: "+o.LeftOut)
	}
	for _, n := range notes {
		m.cfg.Note(n)
	}
	if changed {
		m.cfg.Problems(s.Problems)
		m.complain(before, s.Problems)
	}
	m.poke()
	m.agent.Reconsider()
	m.agent.Touch(concerned(m.agent.Pods(), known, s.Objects)...)
}

// complain tells of what is wrong with manifests now, and was not before, by events.
func (m *Machine) complain(before, now []source.Problem) {
	for _, p := range now {
		if !slices.ContainsFunc(before, func(old source.Problem) bool { return same([]source.Problem{old}, []source.Problem{p}) }) {
			m.event(p.Event(), p.Err.Error())
		}
	}
}

// current is what the manifests hold, and which sources were not read yet; nil as long
// as nobody knows which pods are to be.
func (m *Machine) current() (*manifest.Objects, []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects, m.unread
}

// poke has it thought anew which pods are to be.
func (m *Machine) poke() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// ConfigMap implements podspec.Lookup.
func (m *Machine) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return m.read().ConfigMaps[manifest.Key{Namespace: namespace, Name: name}], nil
}

// Secret implements podspec.Lookup.
func (m *Machine) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return m.read().Secrets[manifest.Key{Namespace: namespace, Name: name}], nil
}

// read is what the manifests hold now.
func (m *Machine) read() *manifest.Objects {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects == nil {
		return &manifest.Objects{}
	}
	return m.objects
}

// logDir is where an agent has the logs of a pod by itself.
func (m *Machine) logDir(p *corev1.Pod) string {
	return filepath.Join(removal.Dirs(m.cfg.Root, m.cfg.State, string(p.UID)).Disk, "logs")
}

// tell is how people are told of the machine. Its own events are about no pod.
func (m *Machine) tell() resources.Tell {
	return resources.Tell{
		Evicted: func(p *corev1.Pod, message string, _ map[string]string) {
			reporter{m}.Event(p, corev1.EventTypeWarning, eviction.Reason, message)
		},
		Node:    func(kind, reason, message string) { m.events.add(m.self(), kind, reason, message) },
		Changed: func() { m.agent.RoomChanged() },
	}
}

// node is this machine as the object of a node.
func (m *Machine) node() *corev1.Node {
	n := &corev1.Node{}
	n.Name = m.cfg.Node.Name
	n.Labels = map[string]string{corev1.LabelHostname: n.Name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH}
	return n
}

// priorityRefused is why a pod has failed whose priority is not that of its class, or whose
// class is not there.
const priorityRefused = "PriorityRefused"

// fresh is how long an answer of the runtime about its handlers is good for.
const fresh = 10 * time.Second

// place finds the handler of a pod by the RuntimeClass rules. What cannot be helped by
// waiting is a refusal.
func (m *Machine) place(ctx context.Context, pod *corev1.Pod) (agent.Placement, error) {
	if err := unsupported.Pod(pod); err != nil {
		return agent.Placement{}, &agent.Refusal{Reason: unsupported.Reason, Message: err.Error()}
	}
	if err := m.classed(pod.UID); err != nil {
		return agent.Placement{}, &agent.Refusal{Reason: priorityRefused, Message: err.Error(), Again: true}
	}
	objects := m.read()
	p := &manifest.Pod{Pod: pod, Origin: "pod " + pod.Namespace + "/" + pod.Name}
	set, err := m.handlers(ctx, p, objects.Classes)
	if err != nil {
		return agent.Placement{}, err
	}
	if reason, err := set.CheckSecurity(pod); err != nil {
		m.forget()
		return agent.Placement{}, &agent.Refusal{Reason: reason, Message: err.Error(), Again: true}
	}
	choice, err := set.Resolve(p, objects.Classes)
	if err != nil {
		m.forget()
	}
	switch {
	case errors.Is(err, errdefs.ErrNotFound):
		return agent.Placement{}, &agent.Refusal{Reason: "RuntimeClassNotFound", Message: err.Error(), Again: true}
	case errors.Is(err, errdefs.ErrInvalidArgument):
		return agent.Placement{}, &agent.Refusal{Reason: "RuntimeClassRefused", Message: err.Error(), Again: true}
	case err != nil:
		return agent.Placement{}, err
	}
	return agent.Placement{
		Class: choice.Class, Handler: choice.Handler, Overhead: choice.Overhead, Features: set.Features(choice.Handler), Notes: choice.Notes(),
	}, nil
}

// classed says what of a pod's priority does not fit its class as it is now, which may be
// newer than what the agent was asked for.
func (m *Machine) classed(uid types.UID) error {
	spec, ok := m.beside.unclassed.Load(uid)
	if !ok {
		return nil
	}
	return priority.Resolve(spec.(*corev1.PodSpec).DeepCopy(), m.read().Priorities)
}

// handlers asks the runtime what it can do, if nobody has done so lately.
func (m *Machine) handlers(ctx context.Context, p *manifest.Pod, classes map[string]*nodev1.RuntimeClass) (*handlers.Set, error) {
	m.mu.Lock()
	set := m.set
	if time.Since(m.asked) > fresh {
		set = nil
	}
	m.mu.Unlock()
	if set != nil {
		return set, nil
	}
	set, err := handlers.List(ctx, m.cfg.Endpoint.Runtime, handlers.Wanted([]*manifest.Pod{p}, classes)...)
	if err != nil {
		return nil, fmt.Errorf("ask the runtime for its handlers: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set, m.asked = set, time.Now()
	return set, nil
}

// forget has the runtime asked anew: what did not work may do so next time.
func (m *Machine) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set = nil
}

// Problems are what is wrong with the manifests now.
func (m *Machine) Problems() []source.Problem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.problems)
}

// reporter tells both the journal and the watcher.
type reporter struct{ m *Machine }

// Detail implements agent.Detailed.
func (r reporter) Detail(p *corev1.Pod, s corev1.PodStatus, d shown.Detail) {
	why := strings.Join(slices.DeleteFunc([]string{d.Why, d.Trouble}, func(text string) bool { return text == "" }), "; ")
	if why == "" {
		r.m.beside.whys.Delete(p.UID)
	} else {
		r.m.beside.whys.Store(p.UID, why)
	}
	r.m.poke()
	r.m.cfg.Changed(p, s, why)
}

// Changed implements agent.Reporter; Detail is told in its place.
func (r reporter) Changed(p *corev1.Pod, s corev1.PodStatus) { r.Detail(p, s, shown.Detail{}) }

func (r reporter) Event(p *corev1.Pod, kind, reason, message string) {
	r.m.events.add(ofPod(p), kind, reason, message)
	r.m.cfg.Event(p, kind, reason, message)
}

// Warn implements agent.Warner.
func (r reporter) Warn(reason, message string) { r.m.warn(reason, message) }

func (r reporter) Gone(p *corev1.Pod) {
	r.m.beside.remembered.Delete(p.UID)
	r.m.beside.whys.Delete(p.UID)
	r.m.beside.unclassed.Delete(p.UID)
	r.m.poke()
	r.m.cfg.Gone(p)
}

func same(a, b []source.Problem) bool {
	return slices.EqualFunc(a, b, func(a, b source.Problem) bool { return a.Origin == b.Origin && a.Err.Error() == b.Err.Error() })
}
