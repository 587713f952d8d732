package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/admission"
	"fairlead.run/internal/node/fakeruntime"
	"fairlead.run/internal/node/holds"
	"fairlead.run/internal/node/images"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/volume"
)

// reports keeps what an agent tells.
type reports struct {
	mu     sync.Mutex
	last   map[string]corev1.PodStatus
	events []string
	gone   []string
	writes int              // of statuses
	waits  corev1.PodStatus // the last of a pod that nobody has accepted yet
	ended  func()           // called with the end of a pod; nil for nothing
}

func (r *reports) Changed(p *corev1.Pod, s corev1.PodStatus) {
	if r.ended != nil && (s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed) {
		r.ended()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[p.Name] = s
	r.writes++
	if s.StartTime == nil {
		r.waits = s
	}
}

// times is how often an event was told.
func (r *reports) times(event string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e == event {
			n++
		}
	}
	return n
}

func (r *reports) Event(p *corev1.Pod, _, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, p.Name+" "+reason+": "+message)
}

func (r *reports) Warn(reason, message string) { r.Event(&corev1.Pod{}, "", reason, message) }

func (r *reports) Gone(p *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = append(r.gone, p.Name)
}

func (r *reports) wentAway(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.gone, name)
}

func (r *reports) of(name string) corev1.PodStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[name]
}

func (r *reports) saw(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.events, func(e string) bool { return strings.Contains(e, text) })
}

// pictures are images that are there, but for those with an error, or a channel that
// is waited for.
type pictures struct{ sync.Map }

func (p *pictures) Ensure(ctx context.Context, r images.Request) (images.Image, error) {
	what, _ := p.Load(r.Image)
	if c, ok := what.(chan struct{}); ok {
		if r.Pulling != nil {
			r.Pulling()
		}
		select {
		case <-c:
		case <-ctx.Done():
		}
	}
	failed, _ := what.(error)
	if pulled, ok := what.(images.Image); ok {
		return pulled, nil
	}
	return images.Image{Ref: "ref-of-" + r.Image}, failed
}

type nothing struct{}

func (nothing) ConfigMap(context.Context, string, string) (*corev1.ConfigMap, error) { return nil, nil }

func (nothing) Secret(context.Context, string, string) (*corev1.Secret, error) { return nil, nil }

// node is a machine on which one agent after the other may run.
type node struct {
	*fakeruntime.Runtime
	*reports
	*Agent
	pictures    *pictures
	objects     podspec.Lookup
	tree        *tree
	root, state string
	place       Place
	machine     podspec.Node
	room        admission.Room
	around      volume.Around
	client      runtimeapi.RuntimeServiceClient // in the place of Runtime; nil for that
	unread      []string                        // sources, at the boot
	links       string
	stop        func()
}

func newNode(t *testing.T) *node {
	return &node{
		Runtime: fakeruntime.New(), reports: &reports{last: map[string]corev1.PodStatus{}}, pictures: &pictures{}, objects: nothing{}, tree: &tree{has: map[types.UID]*corev1.Pod{}}, root: t.TempDir(), state: t.TempDir(),
		machine: podspec.Node{Name: "n", IPs: podspec.Fixed([]string{"192.0.2.7"}), DNS: podspec.Fixed(podspec.DNS{})},
		place:   func(context.Context, *corev1.Pod) (Placement, error) { return Placement{}, nil },
	}
}

// boot starts an agent. Within a bubble, everything has come to rest when it returns.
func (n *node) boot(t *testing.T, pods ...*corev1.Pod) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	n.Agent = New(Config{
		Name: "test", Runtime: cmp.Or(n.client, runtimeapi.RuntimeServiceClient(n.Runtime)), Scheme: "fake", Images: n.pictures, Objects: n.objects, Node: n.machine,
		Place: n.place, Cgroups: n.tree, Room: n.room, Around: n.around, Reporter: n.reports, Root: n.root, State: n.state, Logs: Logs{Links: n.links}, Log: slog.New(slog.DiscardHandler),
	})
	n.Set(pods, n.unread...)
	go func() { ended <- n.Run(ctx) }()
	n.stop = func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	synctest.Wait()
}

// kill ends the agent, and nothing else.
func (n *node) kill() { n.stop() }

func uid(n int) types.UID { return types.UID(fmt.Sprintf("0d6f7a0c-2c2f-4a8e-9d0a-%012d", n)) }

// pod is one of containers that are called like their images.
func pod(number int, policy corev1.RestartPolicy, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("p%d", number), UID: uid(number)}}
	p.Spec.RestartPolicy = policy
	for _, name := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: name})
	}
	return p
}

func (n *node) expect(t *testing.T, name string, phase corev1.PodPhase, ready bool) {
	t.Helper()
	s := n.of(name)
	got := false
	for _, c := range s.Conditions {
		got = got || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}
	if s.Phase != phase || got != ready {
		t.Errorf("pod %s: %s, ready %v: %+v\nevents %q\ncalls %q", name, s.Phase, got, s.ContainerStatuses, n.events, n.Calls(""))
	}
}

// TestRuns starts pods, restarts what ends, and takes them down when nobody wants them.
func TestRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		a, b := pod(1, corev1.RestartPolicyAlways, "x", "y"), pod(2, corev1.RestartPolicyNever, "job")
		n.boot(t, a, b)
		n.expect(t, "p1", corev1.PodRunning, true)
		n.expect(t, "p2", corev1.PodRunning, true)
		n.Exit("p1/x", 3)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true) // the first restart comes at once
		n.Exit("p1/x", 3)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, false)
		if !n.saw("p1 BackOff: Container x ended with exit code 3; it is started again after a pause of 10s") {
			t.Errorf("%q", n.events)
		}
		if w := n.of("p1").ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "CrashLoopBackOff" {
			t.Errorf("%+v", n.of("p1").ContainerStatuses[0])
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		if c := n.of("p1").ContainerStatuses[0]; c.RestartCount != 2 || c.LastTerminationState.Terminated.ExitCode != 3 {
			t.Errorf("%+v", c)
		}
		n.Exit("p2/job", 0)
		synctest.Wait()
		n.expect(t, "p2", corev1.PodSucceeded, false)
		n.Set(nil)
		synctest.Wait()
		if len(n.Sandboxes()) > 0 || len(n.Runtime.Containers()) > 0 || len(n.gone) != 2 || len(n.Pods()) > 0 {
			t.Errorf("left: %v %v, gone %q", n.Sandboxes(), n.Runtime.Containers(), n.gone)
		}
		n.stop()
	})
}

// TestIdle asks nothing of a runtime for pods to which nothing happens, but for the
// audit: two lists a minute, however many pods there are.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		var pods []*corev1.Pod
		for i := range 30 {
			pods = append(pods, pod(i, corev1.RestartPolicyAlways, "x"))
		}
		n.boot(t, pods...)
		// Here all begins at one instant, so that the first audit finds what it knows of no event.
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		before := n.Asked()
		n.Set(slices.Clone(pods))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if asked := n.Asked() - before; asked > 22 {
			t.Errorf("%d calls in 10 minutes", asked)
		}
		n.stop()
	})
}

// TestKilledAgent is followed by one that finds what runs, restarts nothing, and knows
// what has happened meanwhile.
func TestKilledAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		a, b, c := pod(1, corev1.RestartPolicyAlways, "x"), pod(2, corev1.RestartPolicyNever, "job"), pod(3, corev1.RestartPolicyAlways, "z")
		n.boot(t, a, b, c)
		began := n.of("p1").StartTime
		n.Exit("p1/x", 1)
		synctest.Wait()
		n.kill()
		before := len(n.Calls("start")) + len(n.Calls("run"))
		n.Exit("p2/job", 4)
		time.Sleep(time.Hour)
		n.boot(t, a, b) // and nobody wants p3 any more
		n.expect(t, "p1", corev1.PodRunning, true)
		n.expect(t, "p2", corev1.PodFailed, false)
		if s := n.of("p1"); !s.StartTime.Equal(began) || s.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("%v, %+v", began, s)
		}
		if after := len(n.Calls("start")) + len(n.Calls("run")); after != before {
			t.Errorf("something was started: %q", n.Calls(""))
		}
		if stops := n.Calls("stop p3/z"); !slices.Equal(n.gone, []string{"p3"}) || !slices.Equal(stops, []string{"stop p3/z in 30s"}) {
			t.Errorf("gone %q, %q", n.gone, stops)
		}
		n.kill()
		// After a reboot nothing of any pod is left. What has ended does not run again.
		n.Reboot()
		n.boot(t, a, b)
		n.expect(t, "p1", corev1.PodRunning, true)
		n.expect(t, "p2", corev1.PodFailed, false)
		if runs := n.Calls("run"); len(runs) != 4 || runs[3] != "run p1" {
			t.Errorf("%q", runs)
		}
		n.stop()
	})
}

// TestRuntimeAway has the runtime away for ten minutes and the clock go on: nothing is
// started anew that runs, and what has ended meanwhile runs again once it is back.
func TestRuntimeAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.boot(t, pod(1, corev1.RestartPolicyAlways, "x"), pod(2, corev1.RestartPolicyAlways, "y"))
		n.Fail("list", status.Error(codes.Unavailable, "connection refused"))
		n.Exit("p1/x", 1)
		time.Sleep(10 * time.Minute)
		n.expect(t, "p2", corev1.PodRunning, true)
		n.Fail("list", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		n.expect(t, "p2", corev1.PodRunning, true)
		if x, y := len(n.Calls("create p1/x")), len(n.Calls("create p2/y")); x != 2 || y != 1 || len(n.Calls("run")) != 2 {
			t.Errorf("%q", n.Calls(""))
		}
		n.stop()
	})
}

// TestOneAgent lets no second agent near the pods of the first.
func TestOneAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.boot(t, pod(1, corev1.RestartPolicyAlways, "x"))
		other := New(n.cfg)
		other.Set(nil)
		if err := other.Run(t.Context()); !errors.Is(err, errdefs.ErrAlreadyExists) {
			t.Errorf("%v", err)
		}
		n.expect(t, "p1", corev1.PodRunning, true)
		n.stop()
	})
}

// TestOthers never touches what is not the agent's own.
func TestOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.boot(t, pod(1, corev1.RestartPolicyAlways, "x"))
		n.kill()
		n.Annotate("p1", AnnotationAgent, "another")
		n.boot(t)
		if len(n.Sandboxes()) != 1 || len(n.gone) > 0 {
			t.Errorf("%v", n.gone)
		}
		n.stop()
	})
}

// TestDeleted has a pod end in the time that it was given, and in less when that is
// cut, while its runtime is at it.
func TestDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyAlways, "x")
		n.boot(t, p)
		n.Hang("stop p1/x in 600s", nil)
		deleted := p.DeepCopy()
		deleted.DeletionTimestamp, deleted.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, new(int64(600))
		n.Set([]*corev1.Pod{deleted})
		time.Sleep(time.Minute)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		sooner := deleted.DeepCopy()
		sooner.DeletionGracePeriodSeconds = new(int64(5))
		n.Set([]*corev1.Pod{sooner})
		synctest.Wait()
		if stops := n.Calls("stop p1/x"); !slices.Equal(stops, []string{"stop p1/x in 600s", "stop p1/x in 5s"}) {
			t.Errorf("%q", stops)
		}
		if !slices.Equal(n.gone, []string{"p1"}) || len(n.Sandboxes()) > 0 {
			t.Errorf("gone %q", n.gone)
		}
		// It is asked to go until somebody has seen that it is gone.
		n.Set([]*corev1.Pod{sooner.DeepCopy()})
		synctest.Wait()
		if len(n.gone) != 1 || len(n.Calls("run")) != 1 {
			t.Errorf("%q %q", n.gone, n.Calls(""))
		}
		n.stop()
	})
}

// TestReadyWhileEnding tells while a container takes its time to end that it is not
// ready any more, and does not hasten its end because it is not alive either.
func TestReadyWhileEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyAlways, "x")
		asks := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ask"}}}, PeriodSeconds: 1, FailureThreshold: 1}
		p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].LivenessProbe = asks, asks
		n.boot(t, p)
		n.expect(t, "p1", corev1.PodRunning, true)
		ends := make(chan struct{})
		n.Hang("stop p1/x in 30s", ends)
		deleted := p.DeepCopy()
		deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		n.Set([]*corev1.Pod{deleted})
		time.Sleep(3 * time.Second)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		n.OnExec(func(context.Context, string, []string) (int32, error) { return 1, nil })
		time.Sleep(3 * time.Second)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, false)
		close(ends)
		synctest.Wait()
		if stops := n.Calls("stop p1/x"); len(stops) != 1 || !slices.Equal(n.gone, []string{"p1"}) {
			t.Errorf("%q, gone %q", stops, n.gone)
		}
		n.stop()
	})
}

// TestSameName has a pod that takes the name of another wait until that is gone.
func TestSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		old, next := pod(1, corev1.RestartPolicyAlways, "x"), pod(2, corev1.RestartPolicyAlways, "x")
		next.Name = "p1"
		n.boot(t, old)
		until := make(chan struct{})
		n.Hang("stop p1/x in 30s", until)
		n.Set([]*corev1.Pod{next})
		time.Sleep(20 * time.Second)
		if runs := n.Calls("run"); len(runs) != 1 {
			t.Errorf("%q", runs)
		}
		why := "the pod of this name with the UID " + string(old.UID) + " has not ended; this one starts when nothing is left of it"
		if told := n.times("p1 WaitingForPredecessor: " + why); told != 1 {
			t.Errorf("it was told %d times why it waits: %q", told, n.events)
		}
		w := n.waits.ContainerStatuses
		if n.waits.Phase != corev1.PodPending || len(w) != 1 || w[0].State.Waiting == nil || w[0].State.Waiting.Reason != "ContainerCreating" || w[0].State.Waiting.Message != why {
			t.Errorf("%+v", n.waits)
		}
		close(until)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		if pods := n.Pods(); len(pods) != 1 || pods[0].UID != next.UID {
			t.Errorf("%v", pods)
		}
		n.stop()
	})
}

// stuck are objects of which one never comes: what reads it hangs, as at a mount
// whose server is gone.
type stuck struct {
	nothing
	until chan struct{}
}

func (s stuck) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	if name == "stuck" {
		<-s.until
	}
	return &corev1.ConfigMap{}, nil
}

// hangs are the places where a pod may hang: each makes the pod with that number do so.
var hangs = map[string]func(n *node, p *corev1.Pod, until chan struct{}){
	"its handler": func(n *node, p *corev1.Pod, until chan struct{}) {
		before := n.place
		n.place = func(ctx context.Context, asked *corev1.Pod) (Placement, error) {
			if asked.UID == p.UID {
				<-until
			}
			return before(ctx, asked)
		}
	},
	"its volumes": func(n *node, p *corev1.Pod, until chan struct{}) {
		n.objects = stuck{until: until}
		from := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "stuck"}}
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: from}}}
	},
	"its image":     func(n *node, p *corev1.Pod, until chan struct{}) { n.pictures.Store(p.Spec.Containers[0].Image, until) },
	"RunPodSandbox": func(n *node, p *corev1.Pod, until chan struct{}) { n.Hang("run "+p.Name, until) },
	"CreateContainer": func(n *node, p *corev1.Pod, until chan struct{}) {
		n.Hang("create "+p.Name+"/"+p.Spec.Containers[0].Name, until)
	},
	"ListContainers": func(n *node, p *corev1.Pod, until chan struct{}) { n.Hang("look at "+string(p.UID), until) },
}

// TestHungPod holds that what never comes back delays no other pod, wherever it is:
// by no moment of this clock, as long as fewer hang than may begin at a time. When more
// do, they give their slots back, and then a restart is not delayed either.
func TestHungPod(t *testing.T) {
	for name, hang := range hangs {
		for _, hung := range []int{1, parallelStarts - 1, 20} {
			t.Run(fmt.Sprintf("%d at %s", hung, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testHungPod(t, hung, hang) })
			})
		}
	}
}

func testHungPod(t *testing.T, hung int, hang func(*node, *corev1.Pod, chan struct{})) {
	n, until := newNode(t), make(chan struct{})
	var pods []*corev1.Pod
	for i := range 40 {
		p := pod(i, corev1.RestartPolicyAlways, fmt.Sprintf("x%d", i))
		if i < hung {
			hang(n, p, until)
		}
		pods = append(pods, p)
	}
	began := time.Now()
	n.boot(t, pods...)
	if hung >= parallelStarts {
		time.Sleep(time.Duration(hung/parallelStarts) * heldOnce)
		synctest.Wait()
	} else if took := time.Since(began); took > 0 {
		t.Errorf("the others were looked at after %s", took)
	}
	for _, p := range pods[hung:] {
		n.expect(t, p.Name, corev1.PodRunning, true)
	}
	began = time.Now()
	n.Exit("p30/x30", 1)
	synctest.Wait()
	n.expect(t, "p30", corev1.PodRunning, true)
	if took := time.Since(began); took > 0 || len(n.Calls("create p30/x30")) != 2 {
		t.Errorf("a restart took %s: %q", took, n.Calls("create p30/"))
	}
	for _, p := range pods[:hung] {
		n.expect(t, p.Name, n.of(p.Name).Phase, false)
	}
	close(until)
	time.Sleep(time.Minute)
	synctest.Wait()
	for _, p := range pods {
		n.expect(t, p.Name, corev1.PodRunning, true)
	}
	n.stop()
}

// TestHungAgain has more pods hang than may begin at a time, and again whenever they are
// tried again: others wait for them the first time only.
func TestHungAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, until := newNode(t), make(chan struct{})
		defer close(until)
		var pods []*corev1.Pod
		for i := range 2 * parallelStarts {
			p := pod(i, corev1.RestartPolicyAlways, "x")
			n.Hang("run "+p.Name, until)
			pods = append(pods, p)
		}
		n.boot(t, pods...)
		time.Sleep(2 * heldOnce)
		for began := time.Now(); time.Since(began) < 30*time.Minute; time.Sleep(50 * time.Millisecond) {
			asked := time.Now()
			release, err := n.starts.Take(t.Context(), time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			release()
			if took := time.Since(asked); took > 50*time.Millisecond {
				t.Fatalf("%s later another pod waits %s until it may start", time.Since(began), took)
			}
		}
		if tries := len(n.Calls("run p1")); tries < 3 {
			t.Errorf("a pod that hangs was tried %d times", tries)
		}
		n.stop()
	})
}

// TestCannotStart tells why, and goes on trying.
func TestCannotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.pictures.Store("broken", &images.Error{Reason: "ImagePullBackOff", Message: "no such image", Until: time.Now().Add(time.Minute)})
		n.Fail("create p2/x", errors.New("no space left"))
		n.Fail("run p3", errors.New("no address left"))
		n.boot(t, pod(1, corev1.RestartPolicyAlways, "fine", "broken"), pod(2, corev1.RestartPolicyAlways, "x"), pod(3, corev1.RestartPolicyAlways, "x"))
		reason := func(name string, i int) string {
			if w := n.of(name).ContainerStatuses[i].State.Waiting; w != nil {
				return w.Reason + ": " + w.Message
			}
			return ""
		}
		if got := reason("p1", 0); got != "ImagePullBackOff: no such image" || n.of("p1").ContainerStatuses[1].State.Running == nil {
			t.Errorf("%q %+v", got, n.of("p1"))
		}
		if got := reason("p2", 0); got != "CreateContainerError: no space left" {
			t.Errorf("%q", got)
		}
		if !n.saw("p3 FailedCreatePodSandBox: no address left") {
			t.Errorf("%q", n.events)
		}
		n.Fail("create p2/x", nil)
		n.Fail("run p3", nil)
		n.pictures.Delete("broken")
		time.Sleep(61 * time.Second)
		synctest.Wait()
		for _, name := range []string{"p1", "p2", "p3"} {
			n.expect(t, name, corev1.PodRunning, true)
		}
		// A change is tried at once, whatever the pause.
		n.pictures.Store("broken", &images.Error{Reason: "ImagePullBackOff", Message: "no such image", Until: time.Now().Add(time.Hour)})
		late := pod(4, corev1.RestartPolicyAlways, "broken")
		n.Set([]*corev1.Pod{late})
		time.Sleep(time.Minute)
		mended := late.DeepCopy()
		mended.Spec.Containers[0].Image = "fine"
		n.Set([]*corev1.Pod{mended})
		synctest.Wait()
		n.expect(t, "p4", corev1.PodRunning, true)
		if creates := n.Calls("create p1/fine"); len(creates) != 1 {
			t.Errorf("%q", n.Calls(""))
		}
		n.stop()
	})
}

// TestCannotStartAgain has a container that no runtime can start wait as one that crashes: it
// has not run for all the time since 1970.
func TestCannotStartAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.Fail("start p1/x", errors.New("no such program"))
		n.boot(t, pod(1, corev1.RestartPolicyAlways, "x"), pod(2, corev1.RestartPolicyAlways, "y"))
		for after, want := range map[time.Duration]int{5 * time.Second: 2, 20 * time.Second: 3, 35 * time.Second: 4} {
			go func() {
				time.Sleep(after)
				if got := len(n.Calls("start p1/x")); got != want {
					t.Errorf("%d attempts after %s, want %d", got, after, want)
				}
			}()
		}
		time.Sleep(40 * time.Second)
		synctest.Wait()
		w := n.of("p1").ContainerStatuses[0].State.Waiting
		if w == nil || w.Reason != holds.RunError || w.Message != "no such program" {
			t.Errorf("%+v", n.of("p1").ContainerStatuses[0].State)
		}
		n.Fail("start p1/x", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		n.stop()
	})
}

// TestComplains has an event say what keeps a pod from beginning, and what to do about
// it, and none for each pod when it is the runtime that is away.
func TestComplains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		if err := os.WriteFile(n.root+"/agent", nil, 0o600); err != nil { // where the ledger is to be a folder
			t.Fatal(err)
		}
		n.boot(t, pod(1, corev1.RestartPolicyAlways, "x"))
		if !n.saw("p1 FailedSync: ") || !n.saw(n.root+"/agent") {
			t.Errorf("%q", n.events)
		}
		if err := os.Remove(n.root + "/agent"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		n.events = nil
		n.Fail("list", status.Error(codes.Unavailable, "connection refused"))
		n.Exit("p1/x", 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(n.events) > 0 {
			t.Errorf("%q", n.events)
		}
		n.Fail("list", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		n.stop()
	})
	for err, want := range map[error]string{
		fmt.Errorf("write x: %w", syscall.ENOSPC): "make room", errors.New("mount: no space left on device"): "df -i",
		syscall.EROFS: "mount it for writing", errors.New("some other thing"): "",
	} {
		if got := hostpath.Advice(err); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// TestRefused fails a pod that cannot run here, until it can.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		var known atomic.Bool
		n.place = func(context.Context, *corev1.Pod) (Placement, error) {
			if known.Load() {
				return Placement{}, nil
			}
			return Placement{}, &Refusal{Reason: "RuntimeClassNotFound", Message: "there is no RuntimeClass x", Again: true}
		}
		n.boot(t, pod(1, corev1.RestartPolicyAlways, "x"))
		n.expect(t, "p1", corev1.PodFailed, false)
		if s := n.of("p1"); s.Reason != "RuntimeClassNotFound" || len(n.Calls("")) > 0 {
			t.Errorf("%+v %q", s, n.Calls(""))
		}
		n.Reconsider()
		synctest.Wait()
		n.expect(t, "p1", corev1.PodFailed, false)
		known.Store(true)
		n.Reconsider()
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		n.stop()
	})
}

// TestReconsider leaves what could not be started waiting, whatever has changed elsewhere, and
// tries at once those pods that it has to do with.
func TestReconsider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.Fail("create p1/x", errors.New("no"))
		n.boot(t, pod(1, corev1.RestartPolicyAlways, "x"))
		time.Sleep(10*time.Minute + time.Second) // the pause is a minute by now
		synctest.Wait()
		const event = "p1 Failed: container x: no"
		tries := n.times(event)
		n.Reconsider()
		synctest.Wait()
		if more := n.times(event) - tries; more != 0 {
			t.Errorf("it was tried %d times more", more)
		}
		n.Touch(uid(1))
		synctest.Wait()
		if more := n.times(event) - tries; more != 1 {
			t.Errorf("it was tried %d times more, want once", more)
		}
		n.stop()
	})
}

// TestRefusedForGood fails a pod that is never asked about again, whatever becomes of
// what it refers to.
func TestRefusedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		asked := 0
		n.place = func(context.Context, *corev1.Pod) (Placement, error) {
			asked++
			return Placement{}, &Refusal{Reason: "SysctlForbidden", Message: "vm.swappiness"}
		}
		p := pod(1, corev1.RestartPolicyAlways, "x")
		n.boot(t, p)
		n.Reconsider()
		synctest.Wait()
		n.kill()
		n.boot(t, p)
		n.expect(t, "p1", corev1.PodFailed, false)
		if s := n.of("p1"); s.Reason != "SysctlForbidden" || asked != 1 || !n.saw("p1 SysctlForbidden: vm.swappiness") {
			t.Errorf("%+v, asked %d times, %q", s, asked, n.Calls(""))
		}
		n.stop()
	})
}

// TestEvicted ends a pod that stays wanted, once and for all.
func TestEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyAlways, "x")
		n.boot(t, p)
		if !n.Evict(p.UID, 3, Refusal{Reason: "Evicted", Message: "the node was low on memory"}) || n.Evict(uid(7), 0, Refusal{}) {
			t.Error("the wrong pods are known")
		}
		synctest.Wait()
		n.expect(t, "p1", corev1.PodFailed, false)
		if s := n.of("p1"); s.Reason != "Evicted" || !slices.Equal(n.Calls("stop p1/x"), []string{"stop p1/x in 3s"}) {
			t.Errorf("%+v %q", s, n.Calls(""))
		}
		n.kill()
		n.boot(t, p)
		n.expect(t, "p1", corev1.PodFailed, false)
		if s := n.of("p1"); s.Reason != "Evicted" {
			t.Errorf("%+v", s)
		}
		n.Set(nil)
		synctest.Wait()
		if !slices.Equal(n.gone, []string{"p1"}) {
			t.Errorf("%q", n.gone)
		}
		n.stop()
	})
}

// TestLostSandbox makes a new one, and starts the containers in it.
func TestLostSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.boot(t, pod(1, corev1.RestartPolicyAlways, "x"))
		n.LoseSandbox("p1")
		synctest.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		if len(n.Sandboxes()) != 1 || len(n.Calls("run")) != 2 || !n.saw("SandboxChanged") {
			t.Errorf("%d sandboxes, %q", len(n.Sandboxes()), n.Calls(""))
		}
		n.stop()
	})
}

// TestLostSandboxAlone ends what still runs as with the end of its pod, with its preStop
// hook and its grace period, before there is a new sandbox, and tells how it has ended.
func TestLostSandboxAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyAlways, "x")
		p.Spec.TerminationGracePeriodSeconds = new(int64(20))
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"pre"}}}}
		n.boot(t, p)
		n.LoseSandboxAlone("p1")
		synctest.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		if got := n.Of("p1/x"); got != "create, start, exec pre, stop in 20s, create, start" {
			t.Errorf("%q", got)
		}
		calls := n.Calls("")
		if stop, again := slices.Index(calls, "stop p1/x in 20s"), slices.Index(calls, "stop sandbox p1"); stop < 0 || again < stop {
			t.Errorf("%q", calls)
		}
		c := n.of("p1").ContainerStatuses[0]
		if end := c.LastTerminationState.Terminated; c.RestartCount != 1 || end == nil || end.FinishedAt.IsZero() {
			t.Errorf("%+v", c)
		}
		n.stop()
	})
}

// TestChanged restarts a container whose image is changed, and no other.
func TestChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyAlways, "x", "y")
		n.boot(t, p)
		changed := p.DeepCopy()
		changed.Spec.Containers[0].Image = "newer"
		n.Set([]*corev1.Pod{changed})
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		if len(n.Calls("create p1/x")) != 2 || len(n.Calls("create p1/y")) != 1 || len(n.Calls("stop p1/y")) > 0 {
			t.Errorf("%q", n.Calls(""))
		}
		n.stop()
	})
}

// TestChangedWhileItCrashes starts a container at once that gets another image, and
// forgets how often the one before it had ended.
func TestChangedWhileItCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyAlways, "x")
		n.boot(t, p)
		for range 4 {
			n.Exit("p1/x", 1)
			time.Sleep(plan.Backoff(4, 0))
			synctest.Wait()
		}
		n.Exit("p1/x", 1)
		synctest.Wait()
		before := len(n.Calls("create p1/x"))
		changed := p.DeepCopy()
		changed.Spec.Containers[0].Image = "newer"
		n.Set([]*corev1.Pod{changed})
		synctest.Wait()
		n.Exit("p1/x", 1)
		synctest.Wait()
		if now := len(n.Calls("create p1/x")); before != 5 || now != before+2 {
			t.Errorf("made %d times, and %d times with another image; want 5 and 2", before, now-before)
		}
		n.stop()
	})
}

// TestDeletedInTheMaking waits for the sandbox that is being made, and removes it: the
// runtime would go on with it, and nobody would know of it.
func TestDeletedInTheMaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		until := make(chan struct{})
		n.Hang("run p1", until)
		n.boot(t, pod(1, corev1.RestartPolicyAlways, "x"))
		n.Set(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(n.gone) > 0 {
			t.Error("the pod is gone, and its sandbox comes")
		}
		close(until)
		synctest.Wait()
		if !slices.Equal(n.gone, []string{"p1"}) || len(n.Sandboxes()) > 0 || len(n.Calls("create")) > 0 {
			t.Errorf("gone %q, %q", n.gone, n.Calls(""))
		}
		// An agent that ends waits for nothing.
		n.Hang("run p2", nil)
		n.Set([]*corev1.Pod{pod(2, corev1.RestartPolicyAlways, "x")})
		synctest.Wait()
		n.stop()
	})
}
