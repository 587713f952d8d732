package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

var errBoom = errors.New("boom")

// host is all drivers in one: it knows what exists, fails where it is told to,
// and outlives the core like a real host does.
type host struct {
	mu       sync.Mutex
	things   map[string]bool // "sandbox ID", "net ID", "use ID", "root ID", "bundle ID"
	procs    map[string]*proc
	fail     map[string]error // by step
	once     map[string]error // as fail, for one call
	calls    map[string]int
	hold     map[string]chan struct{} // a step waits for it
	hangs    map[string]bool          // a step that ends with its context
	feed     chan ended
	stuck    bool  // processes do not die
	limit    int64 // of memory, in the bundle that was updated last
	traces   map[pod.ContainerID]pod.ID
	uses     map[pod.ContainerID][]string    // as SyncUses told them
	mounts   map[pod.ContainerID][]pod.Mount // that Bundles.Write was told
	labels   map[string][]string             // that drivers were told, by container
	untried  bool                            // nobody has asked for a handler that works yet
	together bool                            // all containers of a pod run in its own process
	deleted  []string                        // by handlers, in order
	able     bool                            // handlers can make checkpoints
	kept     Checkpoints                     // nil for a core that makes none
	restored []string                        // folders that processes were started from
}

type proc struct {
	alive   bool
	exit    *pod.Exit
	obeys   bool // ends on its stop signal
	running pod.RunningProcess
}

type ended struct {
	id string
	e  pod.Exit
}

func newHost() *host {
	return &host{
		things: map[string]bool{}, procs: map[string]*proc{}, fail: map[string]error{},
		calls: map[string]int{}, hold: map[string]chan struct{}{}, feed: make(chan ended, 100),
		labels: map[string][]string{}, mounts: map[pod.ContainerID][]pod.Mount{},
	}
}

func (h *host) step(name string) error {
	h.mu.Lock()
	h.calls[name]++
	hold, err := h.hold[name], h.fail[name]
	if first, ok := h.once[name]; ok {
		err = first
		delete(h.once, name)
	}
	h.mu.Unlock()
	if hold != nil {
		<-hold
	}
	return err
}

// stepIn is step for one that ends when it is given up.
func (h *host) stepIn(ctx context.Context, name string) error {
	if err := h.step(name); err != nil {
		return err
	}
	h.mu.Lock()
	hangs := h.hangs[name]
	h.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}

// make notes that a thing exists even where the step fails: the caller's undo
// must cover a step that failed half-way.
func (h *host) make(step, thing string) error {
	err := h.step(step)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.things[thing] = true
	return err
}

func (h *host) drop(step, thing string) error {
	if err := h.step(step); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.things, thing)
	return nil
}

func (h *host) left() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for t := range h.things {
		out = append(out, t)
	}
	for id := range h.procs {
		out = append(out, "process "+id)
	}
	slices.Sort(out)
	return out
}

func (h *host) has(thing string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.things[thing]
}

func (h *host) count(step string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls[step]
}

func (h *host) mountsOf(id pod.ContainerID) []pod.Mount {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mounts[id]
}

func (h *host) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// die ends a process as if by itself.
func (h *host) die(id string, e pod.Exit) {
	h.mu.Lock()
	p := h.procs[id]
	if p == nil || !p.alive {
		h.mu.Unlock()
		return
	}
	p.alive, p.exit = false, &e
	h.mu.Unlock()
	h.feed <- ended{id, e}
}

type (
	fakeSandboxes struct{ *host }
	fakeNetwork   struct{ *host }
	fakeImages    struct{ *host }
	fakeRoots     struct{ *host }
	fakeLabels    struct{}
	fakeBundles   struct{ *host }
	fakeHandlers  struct{ *host }
	fakeHandler   struct {
		*host
		name string
	}
	fakeStreams struct{ *host }
	fakeExits   struct{ *host }
	fakeTracer  struct{ *host }
)

func (f fakeSandboxes) Create(_ context.Context, id pod.ID, _ *pod.Config) (pod.Sandbox, error) {
	return pod.Sandbox{NetNS: "/ns/" + string(id)}, f.make("sandbox.create", "sandbox "+string(id))
}

func (f fakeSandboxes) Resize(_ context.Context, _ *pod.Record, to *pod.Config) error {
	err := f.step("sandbox.resize")
	f.set(func() {
		if to.Resources != nil { // also where the step fails half-way
			f.limit = to.Resources.MemoryLimit
		}
	})
	return err
}

func (f fakeSandboxes) LimitProcess(_ context.Context, _ *pod.Record, to *pod.Resources) error {
	err := f.step("sandbox.limit")
	f.set(func() {
		if err == nil {
			f.limit = to.MemoryLimit
		}
	})
	return err
}

func (f fakeHandler) Together() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.together
}

func (f fakeSandboxes) WriteFiles(context.Context, *pod.Record) error { return f.step("sandbox.files") }

func (f fakeSandboxes) Stop(context.Context, pod.ID) error { return f.step("sandbox.stop") }

func (f fakeSandboxes) Remove(_ context.Context, id pod.ID) error {
	err := f.drop("sandbox.remove", "sandbox "+string(id))
	f.set(func() {
		if err == nil {
			delete(f.things, "files "+string(id))
		}
	})
	return err
}

func (f fakeSandboxes) Leftovers(live func(pod.ID) bool) (out []pod.ID, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for t := range f.things {
		var id string
		if _, err := fmt.Sscanf(t, "files %s", &id); err == nil && !live(pod.ID(id)) {
			out = append(out, pod.ID(id))
		}
	}
	return out, nil
}

func (f fakeSandboxes) Observe(_ context.Context, r *pod.Record) pod.Seen {
	if err := errors.Join(f.step("sandbox.observe"), f.step("sandbox.observe "+r.Config.Metadata.Name)); err != nil {
		return pod.Seen{Err: err}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return pod.Seen{Alive: f.things["sandbox "+string(r.ID)]}
}

// Traces knows of sandboxes, and of the containers that traces names.
func (f fakeTracer) Traces(_ context.Context, known func(string) bool) (out []pod.Trace, err error) {
	err = f.step("trace")
	f.mu.Lock()
	defer f.mu.Unlock()
	for t := range f.things {
		var id string
		if _, err := fmt.Sscanf(t, "sandbox %s", &id); err == nil && !known(id) {
			out = append(out, pod.Trace{Pod: pod.ID(id)})
		}
	}
	for id, of := range f.traces {
		if !known(string(id)) {
			out = append(out, pod.Trace{Pod: of, Handler: "crun", Container: &pod.ContainerTrace{ID: id}})
		}
	}
	return out, err
}

func (f fakeNetwork) Attach(_ context.Context, r *pod.Record) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("10.1.2.3")}, f.make("net.attach", "net "+string(r.ID))
}

func (f fakeNetwork) Detach(_ context.Context, id pod.ID) error {
	return f.drop("net.detach", "net "+string(id))
}

// Check fails as "net.check NAME" says.
func (f fakeNetwork) Check(_ context.Context, r *pod.Record) error {
	return f.step("net.check " + r.Config.Metadata.Name)
}

func (f fakeNetwork) Status(context.Context) error { return nil }
func (f fakeNetwork) Reconcile(_ context.Context, live func(pod.ID) bool) error {
	if err := f.step("net.reconcile"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for t := range f.things {
		var id string
		if _, err := fmt.Sscanf(t, "net %s", &id); err == nil {
			if !live(pod.ID(id)) {
				delete(f.things, t)
			}
		}
	}
	return nil
}

func (f fakeImages) Use(_ context.Context, ref string, by pod.ContainerID) (Image, error) {
	if ref == "missing" {
		return Image{}, fmt.Errorf("image %q: %w", ref, errdefs.ErrNotFound)
	}
	id := "sha256:1"
	if strings.HasPrefix(ref, "volume") {
		id = "sha256:" + ref
	}
	return Image{ContainerImage: pod.ContainerImage{ID: id}, Lower: []string{"/l"}}, f.make("image.use", "use "+string(by))
}

func (f fakeImages) Release(_ context.Context, by pod.ContainerID) error {
	return f.drop("image.release", "use "+string(by))
}

func (f fakeImages) SyncUses(_ context.Context, live map[pod.ContainerID][]string) error {
	f.mu.Lock()
	f.uses = live
	f.mu.Unlock()
	return f.step("image.sync")
}

// Pod offers few levels, so that pods run into each other's.
func (fakeLabels) Pod(r *pod.Record, _ pod.HandlerInfo, pick func(iter.Seq[string]) string) (pod.Labels, error) {
	if o := r.Config.Security.SELinux; o != nil {
		return pod.Labels{Mount: "u:r:t:" + o.Level}, nil
	}
	return pod.Labels{Mount: "u:r:t:" + pick(slices.Values([]string{"s0:c1", "s0:c2", "s0:c3", "s0:c4"}))}, nil
}

func (fakeLabels) Container(r *pod.Record, c *pod.Container, _ pod.HandlerInfo) (pod.Labels, error) {
	return pod.Labels{Process: "p:" + r.Labels.Level(), Mount: string(c.ID) + ":" + r.Labels.Mount}, nil
}

func (f fakeRoots) Mount(_ context.Context, _ *pod.Record, id pod.ContainerID, _ []string, label string) (string, error) {
	f.mu.Lock()
	f.labels[string(id)] = append(f.labels[string(id)], label)
	f.mu.Unlock()
	return "/root", f.make("root.mount", "root "+string(id))
}

func (f fakeRoots) MountImage(_ context.Context, _ *pod.Record, v pod.VolumeRequest) (string, error) {
	f.mu.Lock()
	f.labels[string(v.Container)] = append(f.labels[string(v.Container)], v.Label)
	f.mu.Unlock()
	return fmt.Sprintf("/volume-%d", v.Index), f.step("root.mount-image")
}
func (f fakeRoots) Unmount(context.Context, pod.ContainerID) error { return f.step("root.unmount") }
func (f fakeRoots) Remove(_ context.Context, id pod.ContainerID) error {
	return f.drop("root.remove", "root "+string(id))
}

func (f fakeRoots) Leftovers(live map[pod.ContainerID]bool) (out []pod.ContainerID, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for t := range f.things {
		var id string
		if _, err := fmt.Sscanf(t, "root %s", &id); err == nil && !live[pod.ContainerID(id)] {
			out = append(out, pod.ContainerID(id))
		}
	}
	return out, nil
}

func (f fakeBundles) Write(_ context.Context, in BundleRequest) (pod.Bundle, error) {
	if !in.Handler.Ready {
		return pod.Bundle{}, errors.New("a bundle for a handler that nobody has tried")
	}
	f.mu.Lock()
	f.labels[string(in.Container.ID)] = append(f.labels[string(in.Container.ID)], in.Labels.Mount, in.Labels.Process)
	f.mounts[in.Container.ID] = in.Container.Config.Mounts
	f.mu.Unlock()
	return pod.Bundle{Path: "/b", StopSignal: "SIGTERM"}, f.make("bundle.write", "bundle "+string(in.Container.ID))
}

func (f fakeBundles) CheckSandbox(context.Context, *pod.Record, pod.HandlerInfo) error {
	return f.step("bundle.check")
}

func (f fakeBundles) WriteSandbox(_ context.Context, r *pod.Record, _ pod.HandlerInfo) (pod.Bundle, error) {
	return pod.Bundle{Path: "/b"}, f.make("bundle.sandbox", "bundle "+string(r.ID))
}

func (f fakeBundles) Update(_ context.Context, _ *pod.Record, c *pod.Container) error {
	f.set(func() {
		f.limit = 0
		if c.Config.Resources != nil {
			f.limit = c.Config.Resources.MemoryLimit
		}
	})
	return f.step("bundle.update")
}

func (f fakeBundles) Remove(_ context.Context, id string) error {
	return f.drop("bundle.remove", "bundle "+id)
}

func (f fakeHandlers) Get(name string) (Handler, error) {
	if name == "" {
		name = "crun"
	}
	if err := f.step("handler.get"); err != nil {
		return nil, err
	}
	f.set(func() { f.untried = false })
	if name != "crun" && name != "runc" {
		return nil, fmt.Errorf("handler %q: here are crun, runc: %w", name, errdefs.ErrNotFound)
	}
	return fakeHandler{f.host, name}, nil
}

func (f fakeHandlers) Serving(name, _ string) (Handler, error) {
	return fakeHandler{f.host, name}, f.step("serving")
}
func (f fakeHandlers) List() []pod.HandlerInfo { return nil }

func (f fakeHandler) Info() pod.HandlerInfo {
	f.mu.Lock()
	defer f.mu.Unlock()
	return pod.HandlerInfo{Name: f.name, Ready: !f.untried, Features: pod.HandlerFeatures{Checkpoints: f.able}}
}

func (f fakeHandler) Start(ctx context.Context, s StartRequest) (pod.RunningProcess, error) {
	if err := f.stepIn(ctx, "start"); err != nil {
		return pod.RunningProcess{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.Restore != "" {
		f.restored = append(f.restored, s.Restore)
	}
	p := pod.RunningProcess{PID: 100 + len(f.procs), StartTime: 1}
	f.procs[s.ID] = &proc{alive: true, obeys: true, running: p}
	return p, nil
}

func (f fakeHandler) Exec(ctx context.Context, _ ExecRequest) (Exec, error) {
	return fakeExec{f.host}, f.stepIn(ctx, "exec")
}

type fakeExec struct{ *host }

func (x fakeExec) Wait(context.Context) (pod.Exit, error) { return pod.Exit{}, x.step("exec.wait") }
func (x fakeExec) Kill(context.Context) error             { return x.step("exec.kill") }
func (x fakeExec) TTY() *os.File                          { return nil }
func (x fakeExec) Close(context.Context) error            { return x.step("exec.close") }

func (f fakeHandler) Kill(_ context.Context, c *pod.Container, sig string, all bool) error {
	if err := f.step("kill " + sig); err != nil {
		return err
	}
	f.mu.Lock()
	p := f.procs[string(c.ID)]
	dies := p != nil && p.alive && !f.stuck && (sig == "SIGKILL" || p.obeys)
	f.mu.Unlock()
	if dies {
		go f.die(string(c.ID), pod.Exit{Code: 137, Signal: 9, FinishedAt: time.Unix(5, 0)})
	}
	return nil
}

func (f fakeHandler) Update(ctx context.Context, _ string, _ pod.Bundle) error {
	return f.stepIn(ctx, "update")
}

func (f fakeHandler) Delete(_ context.Context, id string) error {
	if err := f.step("delete"); err != nil {
		return err
	}
	f.set(func() { f.deleted = append(f.deleted, id) })
	f.die(id, pod.Exit{Code: 137, Signal: 9})
	return nil
}

func (f fakeHandler) Observe(_ context.Context, id string, _ *pod.RunningProcess) pod.Seen {
	if err := f.step("observe"); err != nil {
		return pod.Seen{Err: err}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.procs[id]
	if p == nil {
		return pod.Seen{}
	}
	return pod.Seen{Alive: p.alive, Process: &p.running, Exit: p.exit}
}

func (f fakeStreams) Attach(context.Context, pod.ContainerID, *os.File, *os.File, bool) (Attachment, error) {
	return nil, f.step("attach")
}
func (f fakeStreams) ReopenLog(context.Context, pod.ContainerID) error { return f.step("reopen") }
func (f fakeStreams) Resize(context.Context, pod.ContainerID, uint16, uint16) error {
	return f.step("resize")
}

func (f fakeExits) Run(ctx context.Context, seen func(string, pod.Exit)) error {
	for {
		select {
		case e := <-f.feed:
			seen(e.id, e.e)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f fakeExits) Forget(_ context.Context, id string) error {
	if err := f.step("forget"); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.procs[id]; p != nil && p.alive {
		return fmt.Errorf("forget %s: it lives: %w", id, errdefs.ErrPrecondition)
	}
	delete(f.procs, id)
	return nil
}

// disk is a Store that outlives the core, as the file does. Records go through
// JSON, so that nothing survives in it that a real one would lose.
type disk struct {
	mu       sync.Mutex
	records  map[pod.ID][]byte
	full     error // what Put fails with
	failures int
}

func (d *disk) refuse(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = err
}

func (d *disk) refused() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failures
}

func newDisk() *disk { return &disk{records: map[pod.ID][]byte{}} }

func (d *disk) Put(_ context.Context, r *pod.Record) error {
	value, err := json.Marshal(r)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full != nil {
		d.failures++
		return d.full
	}
	d.records[r.ID] = value
	return nil
}

func (d *disk) Delete(_ context.Context, id pod.ID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.records, id)
	return nil
}

func (d *disk) Load(context.Context) (records []*pod.Record, broken map[pod.ID]error, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	broken = map[pod.ID]error{}
	for id, value := range d.records {
		var r pod.Record
		if err := json.Unmarshal(value, &r); err != nil {
			broken[id] = err
			continue
		}
		records = append(records, &r)
	}
	return records, broken, nil
}

// open makes a core on the host that nobody runs.
func open(t *testing.T, h *host, d *disk) *Core {
	t.Helper()
	c, err := New(context.Background(), Drivers{
		Store: d, Sandboxes: fakeSandboxes{h}, Network: fakeNetwork{h}, Images: fakeImages{h}, Roots: fakeRoots{h}, Labels: fakeLabels{},
		Bundles: fakeBundles{h}, Handlers: fakeHandlers{h}, Streams: fakeStreams{h}, Exits: fakeExits{h},
		Tracers: []Tracer{fakeTracer{h}}, Checkpoints: h.kept,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// boot runs a core on the host. The function it returns kills it: nothing is
// told, nothing is tidied, only the store and the host stay.
func boot(t *testing.T, h *host, d *disk) (c *Core, kill func()) {
	t.Helper()
	c = open(t, h, d)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	kill = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(kill)
	return c, kill
}

func podConfig(name string) pod.Config {
	return pod.Config{
		Metadata: pod.Metadata{Name: name, Namespace: "default", UID: "uid-" + name},
		Security: pod.Security{Namespaces: pod.Namespaces{PID: pod.NamespaceContainer}},
	}
}

func containerConfig(name string) pod.ContainerConfig {
	return pod.ContainerConfig{Metadata: pod.ContainerMetadata{Name: name}, Image: pod.ImageSpec{Image: "busybox"}}
}
