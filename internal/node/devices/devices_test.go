package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/plugins"
	"fairlead.run/test/deviceplugin"
)

const gpu = "example.com/gpu"

// machine is one on which a manager follows the other.
type machine struct {
	*Manager
	sockets, folder string
	changed         chan struct{}
	warned          chan string
	concerned       chan []types.UID
	stop            func()

	mu            sync.Mutex
	ended, leaves map[types.UID]bool
}

func newMachine(t *testing.T) *machine {
	short, err := os.MkdirTemp("", "dev") // a path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	m := &machine{sockets: filepath.Join(short, "s"), folder: filepath.Join(short, "f"), changed: make(chan struct{}, 1), warned: make(chan string, 100), concerned: make(chan []types.UID, 100), ended: map[types.UID]bool{}, leaves: map[types.UID]bool{}}
	m.boot(t)
	return m
}

func (m *machine) boot(t *testing.T) {
	t.Helper()
	m.Manager = New(Config{
		Sockets: m.sockets, Folder: m.folder, Log: slog.New(slog.DiscardHandler),
		Ended: func(uid types.UID) bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.ended[uid]
		},
		Changed: func() {
			select {
			case m.changed <- struct{}{}:
			default:
			}
		},
		Leaves: func(uid types.UID) bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.leaves[uid]
		},
		Concerns: func(pods ...types.UID) { m.concerned <- pods },
		Warn:     func(reason, message string) { m.warned <- reason + ": " + message },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(m.stop)
	if st, err := os.Stat(filepath.Dir(m.sockets)); err == nil && !st.IsDir() {
		return // nothing is served
	}
	for { // before that it would take sockets away
		if _, err := os.Stat(filepath.Join(m.sockets, socketName)); err == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// warns waits for the next event of the node.
func (m *machine) warns(t *testing.T, want ...string) {
	t.Helper()
	select {
	case got := <-m.warned:
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("%q has no %q", got, text)
			}
		}
	case <-time.After(time.Minute):
		t.Fatalf("no event, want %q", want)
	}
}

// calm wants no event so far.
func (m *machine) calm(t *testing.T) {
	t.Helper()
	select {
	case got := <-m.warned:
		t.Errorf("an event: %s", got)
	default:
	}
}

func (m *machine) end(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended[uid] = true
}

// await waits for so many devices, of which so many work.
func (m *machine) await(t *testing.T, all, work int64) {
	t.Helper()
	for {
		has, left := m.Capacity()
		n, k := has[gpu], left[gpu]
		if n.Value() == all && k.Value() == work {
			return
		}
		select {
		case <-m.changed:
		case <-time.After(time.Minute):
			t.Fatalf("there are %s, of which %s work", n.String(), k.String())
		}
	}
}

// serve has a plugin on the machine.
func (m *machine) serve(t *testing.T, p *deviceplugin.Plugin) {
	t.Helper()
	p.Serve(t, m.sockets)
	if err := p.Register(t, m.sockets); err != nil {
		t.Fatal(err)
	}
}

func container(name string, n int64) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpu: *resource.NewQuantity(n, resource.DecimalSI), "cpu": resource.MustParse("1")}}}
}

func pod(n int, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(n), UID: types.UID(fmt.Sprintf("0d6f7a0c-2c2f-4a8e-9d0a-%012d", n))}, Spec: corev1.PodSpec{Containers: containers}}
}

func (m *machine) admit(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if err := m.Admit(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// ids are the devices of a container, by its variable.
func (m *machine) ids(t *testing.T, p *corev1.Pod, ct corev1.Container) string {
	t.Helper()
	g, err := m.Outfit(t.Context(), p, &ct)
	if err != nil {
		t.Fatal(err)
	}
	return g.Env["DEVICES"]
}

func wantRefused(t *testing.T, err error, words string) {
	t.Helper()
	var r *capacity.Refusal
	if !errors.As(err, &r) || r.Reason != "UnexpectedAdmissionError" || !strings.Contains(r.Message, words) {
		t.Errorf("%v, want a refusal with %q", err, words)
	}
}

// TestGives gives devices to containers, each to one, until there are none, and again
// those of a pod that has ended.
func TestGives(t *testing.T) {
	m := newMachine(t)
	plugin := deviceplugin.New(gpu, "a", "b", "c")
	m.serve(t, plugin)
	m.await(t, 3, 3)
	one := pod(1, container("x", 1), container("y", 1), corev1.Container{Name: "z"})
	m.admit(t, one)
	m.admit(t, one) // once more, as after an error of something else
	if x, y, z := m.ids(t, one, one.Spec.Containers[0]), m.ids(t, one, one.Spec.Containers[1]), m.ids(t, one, one.Spec.Containers[2]); x != "a" || y != "b" || z != "" {
		t.Errorf("%q %q %q", x, y, z)
	}
	g, err := m.Outfit(t.Context(), one, &one.Spec.Containers[0])
	if err != nil || len(g.Devices) != 1 || g.Devices[0].GetHostPath() != "/dev/host-a" || g.Devices[0].GetPermissions() != "rw" || g.CDI[0].GetName() != gpu+"=a" ||
		!g.Mounts[0].GetReadonly() || g.Mounts[0].GetHostPath() != "/opt/driver" || g.Annotations["example.com/devices"] != "a" {
		t.Errorf("%+v %v", g, err)
	}
	wantRefused(t, m.Admit(t.Context(), pod(2, container("x", 2))), "requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1")
	m.admit(t, pod(3, container("x", 1)))
	m.end(one.UID)
	two := pod(4, container("x", 2))
	m.admit(t, two)
	if got := m.ids(t, two, two.Spec.Containers[0]); got != "a,b" {
		t.Errorf("%q", got)
	}
	m.Forget(two.UID)
	m.Forget(two.UID)
	m.admit(t, pod(5, container("x", 2)))
	if got := plugin.Calls(); !slices.Equal(got, []string{"Allocate a", "Allocate b", "Allocate c", "Allocate a,b", "Allocate a,b"}) {
		t.Errorf("%q", got)
	}
}

// TestInitContainers hand their devices on. Sidecars keep theirs.
func TestInitContainers(t *testing.T) {
	m := newMachine(t)
	m.serve(t, deviceplugin.New(gpu, "a", "b", "c"))
	m.await(t, 3, 3)
	p := pod(1, container("x", 1), container("y", 1))
	side := container("side", 1)
	side.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	p.Spec.InitContainers = []corev1.Container{container("first", 2), side, container("second", 2)}
	m.admit(t, p)
	var got []string
	for _, ct := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		got = append(got, ct.Name+"="+m.ids(t, p, ct))
	}
	if text := strings.Join(got, " "); text != "first=a,b side=a second=b,c x=b y=c" {
		t.Error(text)
	}
}

// TestTold tells of the devices that containers have and that work, with their NUMA nodes, also
// while the plugin is away and after the agent was started anew.
func TestTold(t *testing.T) {
	m := newMachine(t)
	plugin := deviceplugin.New(gpu, "a", "b", "c")
	plugin.Nodes = map[string][]int64{"a": {1, 0}, "c": {1}}
	m.serve(t, plugin)
	m.await(t, 3, 3)
	a, b, c := Device{gpu, "a", []int64{0, 1}}, Device{gpu, "b", nil}, Device{gpu, "c", []int64{1}}
	same := func(what string, got []Device, want ...Device) {
		t.Helper()
		if !slices.EqualFunc(got, want, func(a, b Device) bool {
			return a.Resource == b.Resource && a.ID == b.ID && slices.Equal(a.Nodes, b.Nodes)
		}) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	p := pod(1, container("x", 2), corev1.Container{Name: "y"})
	m.admit(t, p)
	same("given", m.Given(p.UID, "x"), a, b)
	same("given to who asks for none", m.Given(p.UID, "y"))
	same("given to nobody", m.Given("other", "x"))
	same("that work", m.Working(), a, b, c)
	plugin.Set("c", false)
	m.await(t, 3, 2)
	same("that work", m.Working(), a, b)
	m.stop()
	plugin.Stop()
	m.boot(t)
	same("given by the agent before", m.Given(p.UID, "x"), a, b)
	same("that work without a plugin", m.Working())
	m.end(p.UID)
	same("given to a pod that has ended", m.Given(p.UID, "x"))
}

// TestHealth counts those that work, also when the plugin goes and comes again.
func TestHealth(t *testing.T) {
	m := newMachine(t)
	plugin := deviceplugin.New(gpu, "a", "b")
	m.serve(t, plugin)
	m.await(t, 2, 2)
	plugin.Set("a", false)
	m.await(t, 2, 1)
	p := pod(1, container("x", 1))
	m.admit(t, p)
	if got := m.ids(t, p, p.Spec.Containers[0]); got != "b" {
		t.Error(got)
	}
	plugin.Stop()
	m.await(t, 2, 0)
	if err := m.Admit(t.Context(), pod(2, container("x", 1))); !errors.Is(err, errAway) || !errors.Is(err, errdefs.ErrUnavailable) {
		t.Error(err)
	}
	m.Manager.mu.Lock()
	m.plugins[gpu].lost = time.Now().Add(-awayPatience)
	m.Manager.mu.Unlock()
	wantRefused(t, m.Admit(t.Context(), pod(2, container("x", 1))), "its device plugin is away")
	if got := m.ids(t, p, p.Spec.Containers[0]); got != "b" { // what was given needs no plugin
		t.Error(got)
	}
	m.serve(t, plugin)
	m.await(t, 2, 1)
}

// TestLeaving has a pod wait for devices of one that was deleted with force and is still ending,
// and refuses it where these are not enough.
func TestLeaving(t *testing.T) {
	m := newMachine(t)
	m.serve(t, deviceplugin.New(gpu, "a", "b", "c"))
	m.await(t, 3, 3)
	one, two := pod(1, container("x", 2)), pod(2, container("x", 2))
	m.admit(t, one)
	wantRefused(t, m.Admit(t.Context(), two), "requested number of devices unavailable")
	m.mu.Lock()
	m.leaves[one.UID] = true
	m.mu.Unlock()
	wantRefused(t, m.Admit(t.Context(), pod(3, container("x", 4))), "requested number of devices unavailable")
	if err := m.Admit(t.Context(), two); !errors.Is(err, errLeaving) || !errors.Is(err, errdefs.ErrUnavailable) {
		t.Error(err)
	}
	m.Forget(one.UID)
	select {
	case got := <-m.concerned:
		if !slices.Contains(got, two.UID) {
			t.Errorf("%q", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody is told")
	}
	m.admit(t, two)
}

// TestEndsMeanwhile has pods end, and be forgotten, just after it was looked what is free: who asks
// is not refused.
func TestEndsMeanwhile(t *testing.T) {
	m := newMachine(t)
	m.serve(t, deviceplugin.New(gpu, "a"))
	m.await(t, 1, 1)
	one, two := pod(1, container("x", 1)), pod(2, container("x", 1))
	m.admit(t, one)
	asked := 0
	ended := m.cfg.Ended
	m.cfg.Ended = func(types.UID) bool {
		asked++
		return asked > 1
	}
	if err := m.Admit(t.Context(), two); !errors.Is(err, errLeaving) {
		t.Errorf("it has ended: %v", err)
	}
	m.cfg.Ended = ended
	m.cfg.Leaves = func(types.UID) bool {
		m.Forget(one.UID)
		return false
	}
	if err := m.Admit(t.Context(), two); !errors.Is(err, errLeaving) {
		t.Errorf("it is forgotten: %v", err)
	}
	m.admit(t, two)
}

// TestHealthOfGiven tells the pods that have devices how these work: by the plugin's word,
// as it was for a minute after that has gone, and then that nobody knows.
func TestHealthOfGiven(t *testing.T) {
	m := newMachine(t)
	plugin := deviceplugin.New(gpu, "a", "b")
	m.serve(t, plugin)
	m.await(t, 2, 2)
	p := pod(1, container("x", 2), container("y", 0))
	m.admit(t, p)
	var told []corev1.ResourceStatus
	says := func(want string) {
		t.Helper()
		var got []string
		told = m.Health(p.UID, "x", told)
		for _, s := range told {
			for _, r := range s.Resources {
				got = append(got, fmt.Sprintf("%s %s %s", s.Name, r.ResourceID, r.Health))
			}
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s, want %s", text, want)
		}
	}
	concerns := func() {
		t.Helper()
		select {
		case got := <-m.concerned:
			if !slices.Equal(got, []types.UID{p.UID}) {
				t.Errorf("%q", got)
			}
		case <-time.After(time.Minute):
			t.Fatal("nobody is told")
		}
	}
	says("example.com/gpu a Healthy, example.com/gpu b Healthy")
	if got := m.Health(p.UID, "y", nil); got != nil {
		t.Errorf("%v", got)
	}
	if got := m.Health("another", "x", nil); got != nil {
		t.Errorf("%v", got)
	}
	plugin.Set("b", false)
	concerns()
	says("example.com/gpu a Healthy, example.com/gpu b Unhealthy")
	plugin.Stop()
	m.await(t, 2, 0)
	says("example.com/gpu a Healthy, example.com/gpu b Unhealthy")
	m.stop()
	m.boot(t) // another manager does not know the plugin
	says("example.com/gpu a Healthy, example.com/gpu b Unhealthy")
	m.Manager.mu.Lock()
	m.began = time.Now().Add(-awayPatience)
	m.Manager.mu.Unlock()
	says("example.com/gpu a Unknown, example.com/gpu b Unknown")
	m.serve(t, plugin)
	concerns()
	says("example.com/gpu a Healthy, example.com/gpu b Unhealthy")
	m.Manager.mu.Lock()
	m.plugins[gpu].devices = map[string]unit{"b": {works: true}} // it does not tell of the other any more
	m.Manager.mu.Unlock()
	says("example.com/gpu a Unhealthy, example.com/gpu b Healthy")
}

// TestAnotherManager finds who has what, also where the one before it was killed while it
// asked for it; and the plugin finds the other manager.
func TestAnotherManager(t *testing.T) {
	m := newMachine(t)
	plugin := deviceplugin.New(gpu, "a", "b", "c")
	m.serve(t, plugin)
	m.await(t, 3, 3)
	one, two := pod(1, container("x", 1)), pod(2, container("x", 1))
	m.admit(t, one)
	plugin.Fail(errors.New("not now"))
	wantRefused(t, m.Admit(t.Context(), two), "the device plugin of example.com/gpu says: ")
	plugin.Fail(nil)
	m.stop()
	m.boot(t)
	if _, err := os.Stat(plugin.Socket(m.sockets)); !os.IsNotExist(err) {
		t.Errorf("the plugin cannot see that there is another manager: %v", err)
	}
	m.await(t, 0, 0)
	if !m.Owns(gpu) || m.Owns("example.com/other") {
		t.Error("it does not know what it gives out")
	}
	if got := m.ids(t, one, one.Spec.Containers[0]); got != "a" {
		t.Error(got)
	}
	if _, err := m.Outfit(t.Context(), two, &two.Spec.Containers[0]); !errors.Is(err, errAway) {
		t.Error(err)
	}
	m.serve(t, plugin)
	m.await(t, 3, 3)
	three := pod(3, container("x", 1))
	m.admit(t, three)
	if x, y := m.ids(t, two, two.Spec.Containers[0]), m.ids(t, three, three.Spec.Containers[0]); x != "b" || y != "c" {
		t.Errorf("%q %q", x, y)
	}
}

// TestPrepares tells the plugin each time before a container starts.
func TestPrepares(t *testing.T) {
	m := newMachine(t)
	plugin := deviceplugin.New(gpu, "a", "b", "c")
	plugin.Options = &api.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}
	plugin.Prefers = []string{"c", "none", "b"}
	m.serve(t, plugin)
	m.await(t, 3, 3)
	p := pod(1, container("x", 2))
	m.admit(t, p)
	m.ids(t, p, p.Spec.Containers[0])
	m.ids(t, p, p.Spec.Containers[0])
	if got := plugin.Calls(); !slices.Equal(got, []string{"Prefer a,b,c must  size 2", "Allocate b,c", "PreStart b,c", "PreStart b,c"}) {
		t.Errorf("%q", got)
	}
	plugin.Fail(errors.New("it is hot"))
	if _, err := m.Outfit(t.Context(), p, &p.Spec.Containers[0]); err == nil || !strings.Contains(err.Error(), "it is hot") {
		t.Error(err)
	}
}

// TestRegistration refuses what is no device plugin, and takes those that register as
// other plugins do.
func TestRegistration(t *testing.T) {
	m := newMachine(t)
	if err := os.WriteFile(filepath.Join(m.sockets, "x.sock"), nil, 0o600); err != nil { // it is looked for
		t.Fatal(err)
	}
	for _, q := range []*api.RegisterRequest{
		{Version: "v1beta1", Endpoint: "none.sock", ResourceName: gpu},
		{Version: "v1alpha1", Endpoint: "x.sock", ResourceName: gpu},
		{Version: "v1beta1", Endpoint: "../x.sock", ResourceName: gpu},
		{Version: "v1beta1", Endpoint: "", ResourceName: gpu},
		{Version: "v1beta1", Endpoint: "..", ResourceName: gpu},
		{Version: "v1beta1", Endpoint: "x.sock", ResourceName: "cpu"},
		{Version: "v1beta1", Endpoint: "x.sock", ResourceName: "kubernetes.io/x"},
		{Version: "v1beta1", Endpoint: "x.sock", ResourceName: "a.kubernetes.io/x"},
		{Version: "v1beta1", Endpoint: "x.sock", ResourceName: "example.com/a/b"},
	} {
		if _, err := (registration{m: m.Manager}).Register(t.Context(), q); err == nil {
			t.Errorf("%v is taken", q)
		}
	}
	if m.Owns(gpu) {
		t.Error("it was taken all the same")
	}
	plugin := deviceplugin.New(gpu, "a")
	own := filepath.Join(filepath.Dir(m.sockets), "own")
	plugin.Serve(t, own)
	p := plugins.Plugin{Type: PluginType, Name: gpu, Endpoint: plugin.Socket(own), Versions: []string{"v1beta1"}}
	for _, wrong := range []plugins.Plugin{{Name: gpu, Endpoint: p.Endpoint, Versions: []string{"v2"}}, {Name: gpu, Endpoint: p.Endpoint + "x", Versions: p.Versions}} {
		if err := m.Register(t.Context(), wrong); err == nil {
			t.Errorf("%v is taken", wrong)
		}
	}
	if err := m.Register(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	m.await(t, 1, 1)
	m.Unregister(p)
	m.await(t, 1, 0)
}

// TestNamesAndPagesThatAreBroken are told, and nothing else is lost.
func TestNamesAndPagesThatAreBroken(t *testing.T) {
	m := newMachine(t)
	m.serve(t, deviceplugin.New(gpu, "a", "b"))
	m.await(t, 2, 2)
	p, q := pod(1, container("x", 1)), pod(2, container("x", 1))
	m.admit(t, p)
	m.admit(t, q)
	m.stop()
	if err := os.WriteFile(filepath.Join(m.folder, string(p.UID)+".json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	names, pods, err := load(m.folder)
	if err == nil || !names[gpu] || len(pods) != 2 || len(pods[p.UID].Containers) > 0 || pods[q.UID].Containers["x"][gpu].Devices[0] != "b" {
		t.Errorf("%v %v %v", names, pods, err)
	}
	m.calm(t)
	m.boot(t)
	m.warns(t, reasonUnreadable, string(p.UID)+".json", "delete the pods")
	m.Forget(p.UID)
	m.stop()
	m.boot(t)
	m.calm(t)
}

// TestPluginsThatFail are told of by events, each once.
func TestPluginsThatFail(t *testing.T) {
	m := newMachine(t)
	wrong := deviceplugin.New("gpu", "a")
	wrong.Serve(t, m.sockets)
	for range 3 {
		if err := wrong.Register(t, m.sockets); err == nil {
			t.Error("it is taken")
		}
	}
	m.warns(t, plugins.FailedRegistration, `plugin of "gpu"`, "it is to be like example.com/gpu")
	right := deviceplugin.New(gpu, "a")
	m.serve(t, right)
	m.await(t, 1, 1)
	right.Stop()
	m.await(t, 1, 0)
	m.calm(t) // most come back soon
	m.Manager.mu.Lock()
	m.plugins[gpu].lost = time.Now().Add(-awayPatience)
	m.Manager.mu.Unlock()
	m.warns(t, reasonLost, gpu, "see the log of its pod")
	m.serve(t, right)
	m.await(t, 1, 1)
	m.calm(t)
}

// TestNoRoomForTheSocket has no folder for sockets for a while, as on a full disk.
func TestNoRoomForTheSocket(t *testing.T) {
	m := newMachine(t)
	m.stop()
	full := filepath.Join(filepath.Dir(m.sockets), "full")
	if err := os.WriteFile(full, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m.sockets = filepath.Join(full, "s")
	m.boot(t)
	m.warns(t, plugins.FailedRegistration, "No device plugin can register", "not a directory")
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	for { // by itself
		if _, err := os.Stat(filepath.Join(m.sockets, socketName)); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	m.serve(t, deviceplugin.New(gpu, "a"))
	m.await(t, 1, 1)
	m.calm(t)
}
