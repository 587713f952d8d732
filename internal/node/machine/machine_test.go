package machine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/endpoint"
	"fairlead.run/internal/node/eviction"
	"fairlead.run/internal/node/fakeruntime"
	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/resources"
	"fairlead.run/internal/node/source"
	"fairlead.run/internal/node/source/changeset"
	"fairlead.run/internal/node/source/gather"
	"fairlead.run/internal/node/source/keep"
	"fairlead.run/internal/node/stock"
)

// heard is what people are told.
type heard struct {
	mu       sync.Mutex
	problems []string
	notes    []string
}

func (*heard) Changed(*corev1.Pod, corev1.PodStatus, string) {}
func (*heard) Event(*corev1.Pod, string, string, string)     {}
func (*heard) Gone(*corev1.Pod)                              {}
func (h *heard) Problems(list []source.Problem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problems = nil
	for _, p := range list {
		h.problems = append(h.problems, p.Err.Error())
	}
}

func (h *heard) Note(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, text)
}

func (h *heard) has(text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.problems, func(p string) bool { return strings.Contains(p, text) })
}

// place is a computer on which one machine after the other may run.
type place struct {
	t    *testing.T
	fake *fakeruntime.Runtime
	dir  string
	url  string // of manifests; empty for none
	heard
	machine *Machine // that runs
	stop    func()
}

func newPlace(t *testing.T) *place {
	dir, err := os.MkdirTemp("", "m") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &place{t: t, fake: fakeruntime.New(), dir: dir}
}

func (p *place) make() *Machine {
	p.t.Helper()
	m, err := New(p.t.Context(), Config{
		Endpoint: &endpoint.Endpoint{Runtime: p.fake, Images: p.fake.Images, Name: "fake"}, Node: podspec.Node{Name: "n", IPs: podspec.Fixed([]string{"192.0.2.7"}), DNS: podspec.Fixed(podspec.DNS{})},
		Manifests: gather.Config{Folder: p.dir + "/manifests", Address: gather.Address{URL: p.url}}, Stock: stock.Default, Root: p.dir + "/lib", State: p.dir + "/run", Watcher: &p.heard, Log: slog.New(slog.DiscardHandler),
		// The disk of the computer that tests run on is no reason to evict pods.
		Resources: resources.Settings{
			Cgroups: resources.Cgroups{Off: true}, Capacity: capacity.Settings{MaxPods: 110},
			Eviction: resources.Eviction{Settings: eviction.Settings{Hard: map[string]string{}}},
		},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return m
}

// boot starts a machine, which p.stop ends.
func (p *place) boot() {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	ended := make(chan error, 1)
	release, err := Lock(p.dir + "/run")
	if err != nil {
		p.t.Fatal(err)
	}
	m := p.make()
	p.machine = m
	go func() { ended <- m.Run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			p.t.Error(err)
		}
		release()
	})
	p.t.Cleanup(p.stop)
	p.await("an answer", func() bool { code, _ := p.ask(http.MethodGet, "/pods", ""); return code == http.StatusOK })
}

func (p *place) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", Socket(p.dir+"/run"))
	}}}
}

// ask asks the machine as commands do.
func (p *place) ask(method, path, body string) (code int, answer string) {
	r, err := http.NewRequestWithContext(p.t.Context(), method, "http://m"+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := p.client().Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, strings.TrimSpace(string(text))
}

// pods are those that there are, by name.
func (p *place) pods() map[string]corev1.Pod {
	_, text := p.ask(http.MethodGet, "/pods", "")
	var list corev1.PodList
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		p.t.Fatalf("%v: %s", err, text)
	}
	out := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		out[pod.Name] = pod
	}
	return out
}

func (p *place) phase(name string) string {
	pod := p.pods()[name]
	return string(pod.Status.Phase)
}

func (p *place) await(what string, so func() bool) {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("%s does not come; calls %q", what, p.fake.Calls(""))
		}
	}
}

// told says that there is an event of the machine itself.
func (p *place) told(reason, text string) bool {
	_, lines := p.ask(http.MethodGet, "/events", "")
	for line := range strings.Lines(lines) {
		var e corev1.Event
		if json.Unmarshal([]byte(line), &e) == nil && e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == "n" && e.Reason == reason && strings.Contains(e.Message, text) {
			return true
		}
	}
	return false
}

// write puts a file into the folder of manifests at once, as everybody should.
func (p *place) write(name, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, "manifests", name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path+"~", []byte(text), 0o600), os.Rename(path+"~", path)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) remove(name string) {
	p.t.Helper()
	if err := os.Remove(filepath.Join(p.dir, "manifests", name)); err != nil {
		p.t.Fatal(err)
	}
}

// podOf is a manifest; more are lines of its spec, and argument what its container does.
func podOf(name, argument, more string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n%s  containers: [{name: c, image: 'i:1', args: ['%s']}]\n", name, more, argument)
}

// TestFollowsManifests starts what is written, replaces what changes and ends what goes.
func TestFollowsManifests(t *testing.T) {
	p := newPlace(t)
	p.write("a.yaml", podOf("a", "run", ""))
	p.boot()
	p.await("the pod", func() bool { return p.phase("a") == "Running" })
	first := p.pods()["a"].UID
	p.write("a.yaml", podOf("a", "run on", ""))
	p.await("another pod", func() bool { return p.phase("a") == "Running" && p.pods()["a"].UID != first })
	if n := len(p.fake.Sandboxes()); n != 1 {
		t.Errorf("%d sandboxes", n)
	}
	p.write("b.yaml", podOf("b", "run", ""))
	p.await("both", func() bool { return p.phase("b") == "Running" })
	p.remove("a.yaml")
	p.await("its end", func() bool { return len(p.pods()) == 1 && len(p.fake.Sandboxes()) == 1 })
}

// TestNotKept tells of copies of manifests that cannot be read, or written, until they can.
func TestNotKept(t *testing.T) {
	p := newPlace(t)
	full := p.dir + "/lib/manifests"
	if err := os.MkdirAll(p.dir+"/lib", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.write("a.yaml", podOf("a", "run", ""))
	p.boot()
	p.await("the pod", func() bool { return p.phase("a") == "Running" })
	p.await("its events", func() bool {
		return p.told(keep.NotKept, "not all are kept as they are now") && p.told(keep.Lost, "not a directory")
	})
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	p.await("an end of it", func() bool { return !p.has("kept") })
	if copies, err := keep.Folder(full).Load(); err != nil || len(copies) != 1 {
		t.Errorf("%v, %v", copies, err)
	}
}

// TestUnread runs the pods of a folder while an address has never answered.
func TestUnread(t *testing.T) {
	p := newPlace(t)
	p.url = "http://127.0.0.1:1/pods.yaml"
	p.write("a.yaml", podOf("a", "run", ""))
	p.boot()
	p.await("the pod", func() bool { return p.phase("a") == "Running" })
}

// TestBroken keeps the pod of a file that breaks, and tells what is wrong with it.
func TestBroken(t *testing.T) {
	p := newPlace(t)
	p.write("a.yaml", podOf("a", "run", ""))
	p.boot()
	p.await("the pod", func() bool { return p.phase("a") == "Running" })
	p.write("a.yaml", "kind: [")
	p.await("what is wrong", func() bool { return p.has("a.yaml") })
	if _, text := p.ask(http.MethodGet, "/problems", ""); !strings.Contains(text, "a.yaml") {
		t.Error(text)
	}
	p.await("an event of it", func() bool { return p.told("InvalidManifest", "what it held before stays in force") })
	p.stop()
	p.boot()
	p.await("the pod again", func() bool { return p.phase("a") == "Running" })
	if got := p.fake.Of("a/c"); got != "create, start" {
		t.Error(got)
	}
	p.write("a.yaml", podOf("a", "run", ""))
	p.await("order", func() bool { return !p.has("a.yaml") })
	if got := p.fake.Of("a/c"); got != "create, start" {
		t.Error(got)
	}
}

const job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: sum}\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n      containers: [{name: c, image: 'i:1', args: ['exit 0']}]\n"

// TestNextMachine takes over what runs and runs nothing again that has ended, after the
// end of the one before it and after that of the computer.
func TestNextMachine(t *testing.T) {
	p := newPlace(t)
	p.write("server.yaml", podOf("server", "run", ""))
	p.write("once.yaml", podOf("once", "exit 3", "  restartPolicy: Never\n"))
	p.write("job.yaml", job)
	done := func() bool {
		n := 0
		for name, pod := range p.pods() {
			if strings.HasPrefix(name, "sum-") && pod.Status.Phase == corev1.PodSucceeded {
				n++
			}
		}
		return n == 1 && p.phase("server") == "Running" && p.phase("once") == "Failed"
	}
	p.boot()
	p.await("all", done)
	before := p.pods()
	p.stop()
	p.boot()
	p.await("all again", done)
	for name, pod := range p.pods() {
		if pod.UID != before[name].UID {
			t.Errorf("pod %s is another one", name)
		}
	}
	if starts := p.fake.Calls("start"); len(starts) != 3 {
		t.Errorf("%q", starts)
	}
	p.stop()
	p.fake.Reboot()
	p.boot()
	p.await("all after a reboot", done)
	if starts := p.fake.Calls("start"); len(starts) != 4 || starts[3] != "start server/c" {
		t.Errorf("%q", starts)
	}
}

const set = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec:\n  replicas: 3\n  serviceName: db\n  selector: {matchLabels: {app: db}}\n  template:\n    metadata: {labels: {app: db}}\n    spec:\n      containers: [{name: c, image: 'i:1', args: ['run']}]\n"

// TestNameTaken has a pod of a StatefulSet give way to another object's of its name, and says so:
// two of a name would wait for each other.
func TestNameTaken(t *testing.T) {
	p := newPlace(t)
	p.write("a.yaml", podOf("db-1", "run", ""))
	p.write("set.yaml", set)
	p.boot()
	p.await("the pods", func() bool {
		return p.phase("db-0") == "Running" && p.phase("db-1") == "Running" && p.phase("db-2") == "Running"
	})
	if got := fmt.Sprint(p.machine.Problems()); !strings.Contains(got, "StatefulSet default/db: its pod db-1 is defined twice; the first is at "+p.dir+"/manifests/a.yaml:1") {
		t.Error(got)
	}
	if events, _, _ := p.machine.events.since(0); slices.ContainsFunc(events, func(e *corev1.Event) bool { return e.Reason == "WaitingForPredecessor" }) {
		t.Error("a pod waits for the other")
	}
	p.remove("a.yaml")
	p.await("its own", func() bool {
		return p.phase("db-1") == "Running" && p.fake.Of("db-1/c") == "create, start, stop in 30s, create, start"
	})
	if got := p.machine.Problems(); len(got) > 0 {
		t.Error(got)
	}
}

// TestStatefulSetGoesOn touches no pod of one when the next machine takes it over.
func TestStatefulSetGoesOn(t *testing.T) {
	p := newPlace(t)
	p.write("set.yaml", set)
	whole := func() bool {
		n := 0
		for _, pod := range p.pods() {
			if pod.Status.Phase == corev1.PodRunning {
				n++
			}
		}
		return n == 3
	}
	p.boot()
	p.await("all", whole)
	p.stop()
	p.boot()
	p.await("all again", whole)
	for _, c := range []string{"db-0/c", "db-1/c", "db-2/c"} {
		if got := p.fake.Of(c); got != "create, start" {
			t.Errorf("%s: %s", c, got)
		}
	}
}

// TestSecondMachine leaves the pods to the first.
func TestSecondMachine(t *testing.T) {
	p := newPlace(t)
	p.write("a.yaml", podOf("a", "run", ""))
	p.boot()
	p.await("the pod", func() bool { return p.phase("a") == "Running" })
	if _, err := Lock(p.dir + "/run"); !errors.Is(err, errdefs.ErrAlreadyExists) || !strings.Contains(err.Error(), fmt.Sprintf("process %d (", os.Getpid())) {
		t.Errorf("%v", err)
	}
	if got := p.fake.Of("a/c"); got != "create, start" || p.phase("a") != "Running" {
		t.Error(got)
	}
}

// TestClass fails the pod of a class that is not there, and runs it when that comes.
func TestClass(t *testing.T) {
	p := newPlace(t)
	p.write("a.yaml", podOf("a", "run", "  runtimeClassName: native\n"))
	p.boot()
	p.await("the refusal", func() bool { return p.pods()["a"].Status.Reason == "RuntimeClassNotFound" })
	p.write("class.yaml", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: native}\nhandler: runc\n")
	p.await("the pod", func() bool { return p.phase("a") == "Running" })
	if h := p.fake.Sandboxes()[0].RuntimeHandler; h != "runc" {
		t.Errorf("it runs on %q", h)
	}
}

// TestHandlerComes runs a pod that was refused for want of a handler once there is one, at the
// next change of a manifest, however soon that is.
func TestHandlerComes(t *testing.T) {
	p := newPlace(t)
	p.write("a.yaml", podOf("a", "run", "  runtimeClassName: new\n"))
	p.write("class.yaml", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: new}\nhandler: new\n")
	p.boot()
	p.await("the refusal", func() bool { return p.pods()["a"].Status.Reason == "RuntimeClassNotFound" })
	p.fake.AddHandler("new")
	p.write("b.yaml", podOf("b", "run", ""))
	p.await("the pod", func() bool { return p.phase("a") == "Running" })
}

// TestForAnother refuses a pod for another machine, by its labels.
func TestForAnother(t *testing.T) {
	p := newPlace(t)
	p.write("a.yaml", podOf("a", "run", "  nodeSelector: {kubernetes.io/os: linux, kubernetes.io/hostname: 'n'}\n"))
	p.write("b.yaml", podOf("b", "run", "  nodeSelector: {disk: fast}\n"))
	p.write("c.yaml", podOf("c", "run", "  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: Exists}]}]}}}\n"))
	p.boot()
	p.await("them", func() bool { return p.phase("a") == "Running" && p.phase("b") == "Failed" && p.phase("c") == "Failed" })
	for _, name := range []string{"b", "c"} {
		if s := p.pods()[name].Status; s.Reason != capacity.ReasonAffinity || len(p.fake.Of(name+"/c")) > 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestNotes tells once of what is left out of manifests, and again if it has changed.
func TestNotes(t *testing.T) {
	p := newPlace(t)
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: NAME}\nspec: {ports: [{port: 80}]}\n"
	p.write("service.yaml", strings.ReplaceAll(service, "NAME", "web"))
	p.boot()
	p.write("a.yaml", podOf("a", "run", ""))
	p.await("the pod", func() bool { return p.phase("a") == "Running" })
	p.write("service.yaml", strings.ReplaceAll(service, "NAME", "other"))
	p.write("b.yaml", podOf("b", "run", ""))
	p.await("another pod", func() bool { return p.phase("b") == "Running" })
	p.heard.mu.Lock()
	defer p.heard.mu.Unlock()
	if n := p.heard.notes; len(n) != 2 || !strings.Contains(n[0], "Service default/web: is left out: names of Services are not resolved") || !strings.Contains(n[1], "default/other") {
		t.Errorf("%q", n)
	}
}

// hooked gives the container of a manifest a preStop hook, which hangs until the test has it end.
func (p *place) hooked(pod, manifest string) (text string, end func()) {
	until := make(chan struct{})
	p.fake.Hang("exec "+pod+"/c pre", until)
	text = strings.Replace(manifest, "args: ['run']", "args: ['run'], lifecycle: {preStop: {exec: {command: ['pre']}}}", 1)
	return text, sync.OnceFunc(func() { close(until) })
}

// TestGoes says of a pod that it ends, and does not count it among those of its workload.
func TestGoes(t *testing.T) {
	p := newPlace(t)
	deployment, end := p.hooked("db-0", strings.NewReplacer("StatefulSet", "Deployment", "  serviceName: db\n", "", "replicas: 3", "replicas: 1", "      containers", "      terminationGracePeriodSeconds: 600\n      containers").Replace(set))
	defer end()
	p.write("db.yaml", deployment)
	p.write("b.yaml", podOf("b", "run", ""))
	p.boot()
	p.await("the pods", func() bool { return p.phase("db-0") == "Running" && p.phase("b") == "Running" })
	ready := func() bool {
		_, all := p.ask("GET", "/objects/Deployment", "")
		return strings.Contains(all, `"readyReplicas":1`)
	}
	if !ready() || p.pods()["db-0"].DeletionTimestamp != nil {
		t.Errorf("it goes: %+v", p.pods()["db-0"])
	}
	p.write("db.yaml", strings.Replace(deployment, "args: ['run']", "args: ['other']", 1))
	p.await("its end", func() bool { return p.pods()["db-0"].DeletionTimestamp != nil })
	if left := time.Until(p.pods()["db-0"].DeletionTimestamp.Time); p.phase("db-0") != "Running" || ready() || left < 0 || left > 10*time.Minute || p.pods()["b"].DeletionTimestamp != nil {
		t.Errorf("%s is left of %+v", left, p.pods())
	}
	end()
	p.await("the next one", func() bool { return p.pods()["db-0"].DeletionTimestamp == nil && ready() })
}

// TestComesAgain waits for a pod that is asked for again while it ends: it is not ready before it
// has begun anew.
func TestComesAgain(t *testing.T) {
	p := newPlace(t)
	text, end := p.hooked("b", podOf("b", "run", "  terminationGracePeriodSeconds: 600\n"))
	defer end()
	ready := func() bool {
		code, answer := p.ask("GET", "/objects/Pod/b/readiness?namespace=default", "")
		return code == 200 && answer == "{}"
	}
	p.write("b.yaml", text)
	p.boot()
	p.await("the pod", func() bool { return p.phase("b") == "Running" && ready() })
	p.remove("b.yaml")
	p.await("its end", func() bool { return p.pods()["b"].DeletionTimestamp != nil })
	p.write("b.yaml", text)
	p.await("that it is waited for", func() bool { // it is known a moment before it is asked for
		_, answer := p.ask("GET", "/objects/Pod/b/readiness?namespace=default", "")
		return strings.Contains(answer, "ends, and begins anew after that")
	})
	end()
	p.await("it again", func() bool { return ready() && strings.Count(p.fake.Of("b/c"), "start") == 2 })
}

// TestApply writes objects and takes them away, and leaves alone what people have written.
func TestApply(t *testing.T) {
	p := newPlace(t)
	p.write("mine.yaml", podOf("mine", "run", ""))
	p.write("job.yaml", job)
	p.boot()
	p.await("the pod", func() bool { return p.phase("mine") == "Running" && len(p.pods()) == 2 })
	owned := ""
	for name := range p.pods() {
		if strings.HasPrefix(name, "sum-") {
			owned = name
		}
	}
	for _, step := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"POST", "/objects", podOf("a", "run", ""), 200, `"change":"created"`},
		{"POST", "/objects", podOf("a", "run", ""), 200, `"change":"unchanged"`},
		{"POST", "/objects", podOf("a", "run on", ""), 200, `"change":"configured"`},
		{"POST", "/objects", podOf("b", "run", "") + "---\n" + podOf("mine", "run", ""), 409, "mine.yaml"},
		{"POST", "/objects", podOf("b", "run", "") + "---\n" + podOf("c", "run", "  readinessGates: [{conditionType: a}]\n"), 400, "spec.readinessGates"},
		{"POST", "/objects", strings.Repeat("#", 11<<20), 400, "read the manifest"},
		{"DELETE", "/objects/Pod/a?namespace=default", "", 200, `"change":"deleted"`},
		{"DELETE", "/objects/Pod/a?namespace=default", "", 404, "there is no Pod default/a"},
		{"DELETE", "/objects/Pod/mine?namespace=default", "", 412, "mine.yaml"},
		{"DELETE", "/objects/Pod/" + owned + "?namespace=default", "", 412, "pod default/" + owned + " belongs to Job default/sum; delete that"},
		{"POST", "/objects", set, 200, `"change":"created"`},
		{"DELETE", "/objects/Pod/db-0?namespace=default", "", 412, "delete that, or have its pods made anew: fairlead restart statefulset/db -n default"},
		{"DELETE", "/objects/StatefulSet/db?namespace=default", "", 200, `"change":"deleted"`},
		{"POST", "/objects", strings.NewReplacer("StatefulSet", "Deployment", "name: db", "name: front", "  serviceName: db\n", "").Replace(set), 200, `"change":"created"`},
		{"DELETE", "/objects/Pod/front-0?namespace=default", "", 412, "belongs to Deployment default/front; delete that, or have its pods made anew: fairlead restart deployment/front -n default"},
		{"DELETE", "/objects/Deployment/front?namespace=default", "", 200, `"change":"deleted"`},
		{"DELETE", "/objects/Pod/..%2F..%2Fmine?namespace=default", "", 400, "is no name of an object"},
		{"DELETE", "/objects/Pod/..%2Fmine?namespace=..%2F..", "", 400, "is no name of an object"},
		{"DELETE", "/objects/..%2F..%2Fx%2F../mine", "", 400, "is no name of an object"},
	} {
		code, answer := p.ask(step.method, step.path, step.body)
		if code != step.code || !strings.Contains(answer, step.want) {
			t.Errorf("%s %s %.60q: %d %s; want %d and %q", step.method, step.path, step.body, code, answer, step.code, step.want)
		}
	}
	files, _ := filepath.Glob(p.dir + "/manifests/*")
	if len(files) != 2 {
		t.Errorf("the folder has %q", files)
	}
	p.await("only what is written", func() bool { return p.phase("a") == "" && p.phase("b") == "" && p.phase("mine") == "Running" })
}

// TestApplyIsUndone has a file of one object that cannot be written: the others are as
// they were.
func TestApplyIsUndone(t *testing.T) {
	p := newPlace(t)
	p.boot()
	if code, answer := p.ask("POST", "/objects", podOf("old", "run", "")); code != 200 {
		t.Fatal(answer)
	}
	before, err := os.ReadFile(p.dir + "/manifests/applied.pod.default.old.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(p.dir+"/manifests/applied.pod.default.stuck.yaml", 0o700); err != nil {
		t.Fatal(err)
	}
	code, answer := p.ask("POST", "/objects", podOf("new", "run", "")+"---\n"+podOf("old", "run on", "")+"---\n"+podOf("stuck", "run", ""))
	if code != 500 || !strings.Contains(answer, "write Pod default/stuck") || !strings.Contains(answer, "nothing is applied") {
		t.Errorf("%d %s", code, answer)
	}
	after, err := os.ReadFile(p.dir + "/manifests/applied.pod.default.old.yaml")
	if err != nil || string(after) != string(before) {
		t.Errorf("%v: it was\n%s\nand is\n%s", err, before, after)
	}
	if _, err := os.Stat(p.dir + "/manifests/applied.pod.default.new.yaml"); !os.IsNotExist(err) {
		t.Errorf("a new one is left: %v", err)
	}
}

// TestApplyIsCutOff puts back what an earlier machine has half applied, before its pods start.
func TestApplyIsCutOff(t *testing.T) {
	p := newPlace(t)
	for name, text := range map[string]string{
		"applied.pod.default.old.yaml": podOf("old", "run on", ""), ".change/old.applied.pod.default.old.yaml": podOf("old", "run", ""),
		"applied.pod.default.new.yaml": podOf("new", "run", ""), ".change/none.applied.pod.default.new.yaml": "",
		".change/next.applied.pod.default.third.yaml": podOf("third", "run", ""),
	} {
		p.write(name, text)
	}
	p.boot()
	p.await("the pod", func() bool { return p.phase("old") == "Running" })
	if args := p.fake.Config("old/c")[0].Args; len(p.pods()) != 1 || args[0] != "run" {
		t.Errorf("%d pods run, and the one that was half applied has %q", len(p.pods()), args)
	}
	if left, err := os.ReadDir(p.dir + "/manifests"); err != nil || len(left) != 1 {
		t.Errorf("the folder has %v, %v", left, err)
	}
}

// TestChangesAtOnce restarts what is deleted meanwhile, and applies what is restarted: nothing
// comes back, and nothing is lost.
func TestChangesAtOnce(t *testing.T) {
	p := newPlace(t)
	p.boot()
	if code, answer := p.ask("POST", "/objects", set); code != 200 {
		t.Fatal(answer)
	}
	file := p.dir + "/manifests/applied.statefulset.default.db.yaml"
	during := func(method, path, body string, change func(changeset.Held)) (code int, answer string) {
		held, err := p.machine.cfg.Manifests.Changes.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			code, answer = p.ask(method, path, body)
			close(ended)
		}()
		time.Sleep(50 * time.Millisecond) // in which one that does not wait has read the file
		change(held)
		held.Release()
		<-ended
		return code, answer
	}
	const at = "2020-01-02T03:04:05Z"
	code, answer := during("POST", "/objects", set, func(h changeset.Held) {
		text, err := os.ReadFile(file)
		if err == nil {
			text, err = manifest.Restarted(text, at)
		}
		if err == nil {
			err = h.Change(changeset.Change{Name: filepath.Base(file), Data: text})
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	if text, err := os.ReadFile(file); err != nil || manifest.RestartedAt(text) != at || code != 200 || !strings.Contains(answer, `"change":"unchanged"`) {
		t.Errorf("a restart is lost: %d %s, %v", code, answer, err)
	}
	code, answer = during("POST", "/objects/StatefulSet/db/restart?namespace=default", "", func(h changeset.Held) {
		if err := h.Change(changeset.Change{Name: filepath.Base(file), Remove: true}); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := os.Stat(file); !os.IsNotExist(err) || code != 404 {
		t.Errorf("what was deleted comes back: %d %s, %v", code, answer, err)
	}
}

// TestFolderIsGone keeps pods whose folder is gone, as where its disk is not mounted: neither a
// start nor apply makes another one in its place, which would be empty.
func TestFolderIsGone(t *testing.T) {
	p := newPlace(t)
	p.write("a.yaml", podOf("a", "run", ""))
	p.boot()
	p.await("the pod", func() bool { return p.phase("a") == "Running" })
	p.stop()
	folder := p.dir + "/manifests"
	if err := os.Rename(folder, folder+".away"); err != nil {
		t.Fatal(err)
	}
	p.boot()
	p.await("the pod again, and what is wrong", func() bool { return p.phase("a") == "Running" && p.has("no such file or directory") })
	if code, answer := p.ask("POST", "/objects", podOf("b", "run", "")); code != 412 || !strings.Contains(answer, folder+" is gone") {
		t.Errorf("%d %s", code, answer)
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("there is another one: %v", err)
	}
	if err := os.Rename(folder+".away", folder); err != nil {
		t.Fatal(err)
	}
	p.await("order", func() bool { return !p.has("no such file or directory") })
	if got := p.fake.Of("a/c"); got != "create, start" {
		t.Error(got)
	}
}

// TestRestart makes the pods of workloads anew, once: to apply the same manifest again
// changes nothing. What is written by people is left to them.
func TestRestart(t *testing.T) {
	p := newPlace(t)
	deployment := strings.NewReplacer("StatefulSet", "Deployment", "name: db", "name: web", "  serviceName: db\n", "").Replace(set)
	p.write("mine.yaml", strings.ReplaceAll(set, "name: db", "name: mine"))
	p.boot()
	if code, answer := p.ask("POST", "/objects", set+"---\n"+deployment); code != 200 {
		t.Fatal(answer)
	}
	running := func() map[types.UID]bool {
		out := map[types.UID]bool{}
		for name, pod := range p.pods() {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil && !strings.HasPrefix(name, "mine-") {
				out[pod.UID] = true
			}
		}
		return out
	}
	whole := func() bool { return len(running()) == 6 }
	p.await("all pods", whole)
	before := running()
	for _, kind := range []string{"StatefulSet/db", "Deployment/web"} {
		if code, answer := p.ask("POST", "/objects/"+kind+"/restart?namespace=default", ""); code != 200 || !strings.Contains(answer, `"change":"restarted"`) {
			t.Fatalf("%d %s", code, answer)
		}
	}
	p.await("other pods", func() bool {
		now := running()
		for uid := range before {
			if now[uid] {
				return false
			}
		}
		return len(now) == 6
	})
	if code, answer := p.ask("POST", "/objects", deployment); code != 200 || !strings.Contains(answer, `"change":"unchanged"`) {
		t.Errorf("%d %s", code, answer)
	}
	for path, want := range map[string]string{
		"StatefulSet/mine": "mine.yaml:1", "Deployment/none": "there is no Deployment default/none", "Job/sum": "a Job cannot be restarted; these can: DaemonSet, Deployment, StatefulSet",
	} {
		if code, answer := p.ask("POST", "/objects/"+path+"/restart?namespace=default", ""); code < 400 || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s", path, code, answer)
		}
	}
}

// TestReadiness is of what was applied, and not of what there was before.
func TestReadiness(t *testing.T) {
	p := newPlace(t)
	p.boot()
	const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 2\n  selector: {matchLabels: {a: b}}\n" +
		"  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: 'i:1', args: ['run']}]}}\n"
	set := strings.NewReplacer("Deployment", "StatefulSet", "web", "db").Replace(deployment)
	ready := func(path string) string {
		code, answer := p.ask("GET", "/objects/"+path+"/readiness?namespace=default", "")
		return fmt.Sprint(code, " ", strings.TrimSpace(answer))
	}
	if code, answer := p.ask("POST", "/objects", deployment+"---\n"+set+"---\n"+job+"---\n"+podOf("a", "run", "")); code != 200 {
		t.Fatal(answer)
	}
	for _, path := range []string{"Deployment/web", "StatefulSet/db", "Pod/db-0", "Pod/a", "Job/sum"} {
		p.await(path, func() bool { return ready(path) == "200 {}" })
	}
	if got := ready("Pod/b"); !strings.HasPrefix(got, "404 there is no Pod default/b") {
		t.Error(got)
	}
	const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {k: v}\n"
	for range 5 { // what has no pods is known, too, when apply comes back
		if code, answer := p.ask("POST", "/objects", settings); code != 200 {
			t.Fatal(answer)
		}
		if got := ready("ConfigMap/settings"); got != "200 {}" {
			t.Error(got)
		}
		if code, answer := p.ask("DELETE", "/objects/ConfigMap/settings?namespace=default", ""); code != 200 {
			t.Fatal(answer)
		}
	}
	before := p.pods()["a"].UID
	if code, answer := p.ask("POST", "/objects", podOf("a", "run on", "")); code != 200 {
		t.Fatal(answer)
	}
	p.await("the other pod", func() bool {
		is := ready("Pod/a") == "200 {}"
		if is && p.pods()["a"].UID == before {
			t.Fatal("the pod that goes is said to be ready")
		}
		return is
	})
}

// TestDeleteTellsPods tells which pods end, and of an object that stays.
func TestDeleteTellsPods(t *testing.T) {
	p := newPlace(t)
	p.boot()
	if code, answer := p.ask("POST", "/objects", job+"---\n"+podOf("a", "run", "")+"---\n"+podOf("b", "run", "")); code != 200 {
		t.Fatal(answer)
	}
	p.await("the pods", func() bool { return p.phase("a") == "Running" && p.phase("b") == "Running" && len(p.pods()) == 3 })
	var owned string
	for name, pod := range p.pods() {
		if strings.HasPrefix(name, "sum-") {
			owned = string(pod.UID)
		}
	}
	a := string(p.pods()["a"].UID)
	p.write("too.yaml", podOf("b", "run", ""))
	p.await("the problem", func() bool { return p.has("defined twice") })
	for path, want := range map[string]string{
		"/objects/Job/sum?namespace=default": fmt.Sprintf(`"pods":[%q]}`, owned),
		"/objects/Pod/a?namespace=default":   fmt.Sprintf(`"pods":[%q]}`, a),
		"/objects/Pod/b?namespace=default":   "too.yaml",
	} {
		if code, answer := p.ask("DELETE", path, ""); code != 200 || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s, want %s", path, code, answer, want)
		}
	}
}

// TestDeleteOfWhatBegins tells of pods that have not begun yet, or make place for others, and
// nothing of them is left, and nothing comes, once they are present no more.
func TestDeleteOfWhatBegins(t *testing.T) {
	p := newPlace(t)
	p.boot()
	apply := func(text string) types.UID {
		if code, answer := p.ask("POST", "/objects", text); code != 200 {
			t.Fatal(answer)
		}
		p.machine.mu.Lock()
		defer p.machine.mu.Unlock()
		for uid, a := range p.machine.last.pods {
			if a.key.Name == "a" {
				return uid
			}
		}
		t.Fatal("nobody has asked for the pod")
		return ""
	}
	for i := range 10 {
		uids := []types.UID{apply(podOf("a", fmt.Sprint("run ", i), ""))}
		if i%2 == 1 { // another pod waits for the end of the first
			p.await("the pod", func() bool { return p.phase("a") == "Running" })
			uids = append(uids, apply(podOf("a", fmt.Sprint("run on ", i), "")))
		}
		code, answer := p.ask("DELETE", "/objects/Pod/a?namespace=default", "")
		for j, uid := range uids {
			// The first of two may have gone by now.
			if last := j == len(uids)-1; code != 200 || last && !strings.Contains(answer, string(uid)) {
				t.Fatalf("%d: %d %s, which does not tell of %s", i, code, answer, uid)
			}
		}
		p.await("the end", func() bool { return len(p.machine.present()) == 0 })
		if n := len(p.fake.Sandboxes()); n != 0 {
			t.Fatalf("%d: %d sandboxes are left", i, n)
		}
	}
}

// TestDeleteOfWhatIsLeft tells of a pod that an earlier machine has left, too.
func TestDeleteOfWhatIsLeft(t *testing.T) {
	p := newPlace(t)
	p.boot()
	if code, answer := p.ask("POST", "/objects", podOf("a", "run", "")); code != 200 {
		t.Fatal(answer)
	}
	p.await("the pod", func() bool { return p.phase("a") == "Running" })
	before := p.pods()["a"].UID
	p.stop()
	p.write("applied.pod.default.a.yaml", podOf("a", "run on", ""))
	ends := make(chan struct{})
	p.fake.Hang("stop a/c in 30s", ends)
	p.boot()
	p.await("its end, and another pod", func() bool {
		_, there := p.machine.present()[before]
		return there && len(p.machine.present()) == 2
	})
	if code, answer := p.ask("DELETE", "/objects/Pod/a?namespace=default", ""); code != 200 || !strings.Contains(answer, string(before)) {
		t.Errorf("%d %s, which does not tell of %s", code, answer, before)
	}
	close(ends)
	p.await("the end", func() bool { return len(p.machine.present()) == 0 })
}

// TestEvents follows what happens, from the beginning.
func TestEvents(t *testing.T) {
	p := newPlace(t)
	p.fake.Fail("create a/c", errors.New("no space left"))
	p.boot()
	resp, err := p.client().Get("http://m/events?follow=1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	p.write("a.yaml", podOf("a", "run", ""))
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		var e corev1.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.Reason == "Failed" && e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, "no space left") && e.InvolvedObject.Name == "a" {
			return
		}
	}
	t.Errorf("the failure is not told: %v", lines.Err())
}

// TestClaim gives a claim a folder, which stays when the claim goes.
func TestClaim(t *testing.T) {
	p := newPlace(t)
	const claim = "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n"
	text := strings.Replace(podOf("a", "run", "  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]\n"), "image: 'i:1'", "image: 'i:1', volumeMounts: [{name: v, mountPath: /v}]", 1)
	p.write("a.yaml", text+claim)
	p.boot()
	p.await("the pod", func() bool { return p.phase("a") == "Running" })
	folder := p.dir + "/lib/claims/default/data"
	if at := p.fake.Config("a/c")[0].Mounts[0].HostPath; at != folder {
		t.Errorf("it is mounted from %s", at)
	}
	if err := os.WriteFile(folder+"/precious", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.remove("a.yaml")
	p.await("the end", func() bool { return len(p.fake.Sandboxes()) == 0 && len(p.pods()) == 0 })
	if _, err := os.Stat(folder + "/precious"); err != nil {
		t.Error(err)
	}
}

// TestClaimTemplates gives each pod of a StatefulSet a claim of its own, which it has again
// after it went. One that somebody has written under that name is taken.
func TestClaimTemplates(t *testing.T) {
	p := newPlace(t)
	text := strings.NewReplacer("replicas: 3", "replicas: 2", "  serviceName: db\n", "  volumeClaimTemplates: [{metadata: {name: v}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}]\n",
		"image: 'i:1'", "image: 'i:1', volumeMounts: [{name: v, mountPath: /v}]").Replace(set)
	const own = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: v-db-1, labels: {by: me}}\nspec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Mi}}}\n"
	p.write("db.yaml", text)
	p.write("own.yaml", own)
	p.boot()
	p.await("the pods", func() bool { return p.phase("db-0") == "Running" && p.phase("db-1") == "Running" })
	for _, name := range []string{"db-0", "db-1"} {
		if at := p.fake.Config(name + "/c")[0].Mounts[0].HostPath; at != p.dir+"/lib/claims/default/v-"+name {
			t.Errorf("it is mounted from %s", at)
		}
	}
	if _, all := p.ask("GET", "/objects/PersistentVolumeClaim", ""); strings.Count(all, `"phase":"Bound"`) != 2 || !strings.Contains(all, `"by":"me"`) {
		t.Error(all)
	}
	if code, why := p.ask("DELETE", "/objects/PersistentVolumeClaim/v-db-0?namespace=default", ""); code != http.StatusPreconditionFailed || !strings.Contains(why, "belongs to StatefulSet default/db") {
		t.Errorf("%d %s", code, why)
	}
	if problems := p.machine.Problems(); len(problems) > 0 {
		t.Errorf("%v", problems)
	}
}

// TestClaimGroup gives what is in a claim to the group of its pod, which does not run as root.
func TestClaimGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	p := newPlace(t)
	const claim = "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n"
	p.write("a.yaml", podOf("a", "run", "  securityContext: {runAsUser: 1000, fsGroup: 2000}\n  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]\n")+claim)
	p.boot()
	p.await("the pod", func() bool { return p.phase("a") == "Running" })
	var st unix.Stat_t
	if err := unix.Stat(p.dir+"/lib/claims/default/data", &st); err != nil || st.Gid != 2000 || st.Mode&0o2070 != 0o2070 {
		t.Errorf("group %d, mode %o, %v", st.Gid, st.Mode, err)
	}
}

// TestEventsAreKept tells after a restart what happened before, and goes on counting.
func TestEventsAreKept(t *testing.T) {
	p := newPlace(t)
	p.write("a.yaml", podOf("a", "run", ""))
	count := func(reason string) (n int32) {
		events, _, _ := p.machine.events.since(0)
		for _, e := range events {
			if e.Reason == reason && (e.InvolvedObject.Name == "a" || e.InvolvedObject.Kind == "Node") {
				n += e.Count
			}
		}
		return n
	}
	p.boot()
	p.await("its start", func() bool { return count("Started") == 1 })
	_, last, _ := p.machine.events.since(0)
	p.stop()
	p.boot()
	if _, number, _ := p.machine.events.since(0); count("Started") != 1 || number < last {
		t.Errorf("%d starts are known, and %d events; there were %d", count("Started"), number, last)
	}
	p.stop()
	if err := os.WriteFile(p.dir+"/lib/events.json", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.boot()
	if count("EventsLost") != 1 || count("Started") != 0 {
		t.Errorf("%d tell of what is lost", count("EventsLost"))
	}
	p.stop()
	if err := errors.Join(os.Remove(p.dir+"/lib/events.json"), os.MkdirAll(p.dir+"/lib/events.json/x", 0o700)); err != nil {
		t.Fatal(err)
	}
	p.boot()
	p.await("what is wrong", func() bool { return count("EventsNotKept") == 1 })
}

// TestJournal counts what is said again, and forgets what is oldest.
func TestJournal(t *testing.T) {
	var j journal
	a := corev1.ObjectReference{Kind: "Pod", Name: "a", UID: "1"}
	for range 3 {
		j.add(a, "Warning", "BackOff", "again")
	}
	events, last, more := j.since(0)
	if len(events) != 1 || events[0].Count != 3 || last != 3 {
		t.Errorf("%+v, %d", events, last)
	}
	j.add(a, "Normal", "Started", "it runs")
	select {
	case <-more:
	default:
		t.Error("nobody is told that there is more")
	}
	if events, _, _ = j.since(last); len(events) != 1 || events[0].Reason != "Started" {
		t.Errorf("%+v", events)
	}
	for i := range maxEvents {
		j.add(a, "Normal", "Started", fmt.Sprint(i))
	}
	if events, _, _ = j.since(0); len(events) != maxEvents || events[0].Message != "0" {
		t.Errorf("%d events from %s on", len(events), events[0].Message)
	}
}
