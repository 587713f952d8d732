package agent

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/fakeruntime"
)

// mortal is a runtime whose agent dies at one of its calls: before that is made, or after it was
// and before its answer has come. From then on none of this agent's calls does anything.
type mortal struct {
	*fakeruntime.Runtime
	at    int // the number of the call; negative for none
	after bool
	alone bool // it is the runtime that dies, and not the agent
	once  bool // nobody dies, and the call has failed

	mu    sync.Mutex
	calls int
	dead  bool
	of    string // the call that it died at
}

// begin counts a call that changes something.
func (m *mortal) begin(name string) (number int, dead bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.dead && name != "" {
		m.calls++
	}
	if m.die(m.calls-1, false, name) {
		return 0, true
	}
	return m.calls - 1, m.dead
}

// die has the agent die at its call. The caller holds mu.
func (m *mortal) die(number int, after bool, name string) bool {
	if m.dead || name == "" || number != m.at || after != m.after {
		return false
	}
	m.dead, m.of = true, fmt.Sprintf("call %d, %s, made %t", number, name, after)
	return true
}

func (m *mortal) isDead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead
}

// revive is that another agent has begun, which lives.
func (m *mortal) revive() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead, m.at = false, -1
}

// lives makes a call if its agent lives; name is empty for one that only asks.
func lives[R any](ctx context.Context, m *mortal, name string, do func() (R, error)) (R, error) {
	number, dead := m.begin(name)
	var r R
	var err error
	if !dead {
		r, err = do()
		m.mu.Lock()
		dead = m.die(number, true, name)
		m.mu.Unlock()
	}
	if dead {
		var none R
		if m.once {
			m.revive()
			return none, status.Error(codes.Internal, "it failed")
		}
		if m.alone {
			return none, status.Error(codes.Unavailable, "connection refused")
		}
		<-ctx.Done()
		return none, ctx.Err()
	}
	return r, err
}

func (m *mortal) RunPodSandbox(ctx context.Context, r *runtimeapi.RunPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	return lives(ctx, m, "run", func() (*runtimeapi.RunPodSandboxResponse, error) { return m.Runtime.RunPodSandbox(ctx, r) })
}

func (m *mortal) StopPodSandbox(ctx context.Context, r *runtimeapi.StopPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.StopPodSandboxResponse, error) {
	return lives(ctx, m, "stop sandbox", func() (*runtimeapi.StopPodSandboxResponse, error) { return m.Runtime.StopPodSandbox(ctx, r) })
}

func (m *mortal) RemovePodSandbox(ctx context.Context, r *runtimeapi.RemovePodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RemovePodSandboxResponse, error) {
	return lives(ctx, m, "remove sandbox", func() (*runtimeapi.RemovePodSandboxResponse, error) { return m.Runtime.RemovePodSandbox(ctx, r) })
}

func (m *mortal) CreateContainer(ctx context.Context, r *runtimeapi.CreateContainerRequest, _ ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	return lives(ctx, m, "create "+r.GetConfig().GetMetadata().GetName(), func() (*runtimeapi.CreateContainerResponse, error) { return m.Runtime.CreateContainer(ctx, r) })
}

func (m *mortal) StartContainer(ctx context.Context, r *runtimeapi.StartContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StartContainerResponse, error) {
	return lives(ctx, m, "start "+r.GetContainerId(), func() (*runtimeapi.StartContainerResponse, error) { return m.Runtime.StartContainer(ctx, r) })
}

func (m *mortal) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	return lives(ctx, m, "stop "+r.GetContainerId(), func() (*runtimeapi.StopContainerResponse, error) { return m.Runtime.StopContainer(ctx, r) })
}

func (m *mortal) RemoveContainer(ctx context.Context, r *runtimeapi.RemoveContainerRequest, _ ...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error) {
	return lives(ctx, m, "remove "+r.GetContainerId(), func() (*runtimeapi.RemoveContainerResponse, error) { return m.Runtime.RemoveContainer(ctx, r) })
}

func (m *mortal) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest, _ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	return lives(ctx, m, "exec "+strings.Join(r.GetCmd(), " "), func() (*runtimeapi.ExecSyncResponse, error) { return m.Runtime.ExecSync(ctx, r) })
}

func (m *mortal) Version(ctx context.Context, r *runtimeapi.VersionRequest, _ ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	return lives(ctx, m, "", func() (*runtimeapi.VersionResponse, error) { return m.Runtime.Version(ctx, r) })
}

func (m *mortal) ListPodSandbox(ctx context.Context, r *runtimeapi.ListPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	return lives(ctx, m, "", func() (*runtimeapi.ListPodSandboxResponse, error) { return m.Runtime.ListPodSandbox(ctx, r) })
}

func (m *mortal) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest, _ ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	return lives(ctx, m, "", func() (*runtimeapi.PodSandboxStatusResponse, error) { return m.Runtime.PodSandboxStatus(ctx, r) })
}

func (m *mortal) ListContainers(ctx context.Context, r *runtimeapi.ListContainersRequest, _ ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	return lives(ctx, m, "", func() (*runtimeapi.ListContainersResponse, error) { return m.Runtime.ListContainers(ctx, r) })
}

func (m *mortal) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	return lives(ctx, m, "", func() (*runtimeapi.ContainerStatusResponse, error) { return m.Runtime.ContainerStatus(ctx, r) })
}

// tale is a pod from its first to its last moment, whose agent dies once.
type tale struct {
	*testing.T
	*node
	mortal *mortal
	pods   []*corev1.Pod
	reboot bool // the machine dies with the agent
	loose  bool // more may be restarted than what ends
}

// until has time pass until something is so. An agent that has died is followed by another one, on
// the files as they were then.
func (s *tale) until(what string, ok func() bool) {
	s.Helper()
	for range 600 {
		synctest.Wait()
		if s.mortal.isDead() && s.mortal.alone {
			time.Sleep(30 * time.Second)
			s.mortal.revive()
			synctest.Wait()
		}
		if s.mortal.isDead() {
			root, state := s.TempDir(), s.TempDir()
			for to, from := range map[string]string{root: s.root, state: s.state} {
				if err := os.CopyFS(to, os.DirFS(from)); err != nil {
					s.Fatal(err)
				}
			}
			s.kill()
			if s.root, s.state = root, state; s.reboot {
				s.Reboot()
				s.state = s.TempDir()
			}
			s.mortal.revive()
			s.pods = slices.DeleteFunc(s.pods, func(p *corev1.Pod) bool { return s.wentAway(p.Name) })
			for i, p := range s.pods { // the API server has what was told
				s.pods[i] = p.DeepCopy()
				s.pods[i].Status = s.of(p.Name)
			}
			s.boot(s.T, s.pods...)
		}
		for _, c := range s.Runtime.Containers() {
			if c.GetMetadata().GetName() == "first" && c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
				s.Exit("p1/first", 0)
			}
		}
		if ok() {
			return
		}
		time.Sleep(time.Second)
	}
	s.Fatalf("died at %s; %s: it is not so: %+v\nevents %q\ncalls %q", s.mortal.of, what, s.of("p1").ContainerStatuses, s.events, s.Calls(""))
}

// tell gives the agent's death, or nothing if it has lived through all.
func (s *tale) tell() string {
	hook := func(command string) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{command}}}
	}
	p := pod(1, corev1.RestartPolicyAlways, "x", "y")
	p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "first"}, {Name: "side", Image: "side", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: hook("post"), PreStop: hook("pre")}
	job := pod(2, corev1.RestartPolicyNever, "job")
	s.pods = []*corev1.Pod{p, job}
	restarted := func(x, y int32) func() bool {
		return func() bool {
			st := s.of("p1")
			return len(st.ContainerStatuses) == 2 && st.ContainerStatuses[0].Ready && st.ContainerStatuses[1].Ready &&
				(s.loose || st.ContainerStatuses[0].RestartCount == x && st.ContainerStatuses[1].RestartCount == y)
		}
	}
	s.boot(s.T, s.pods...)
	lost := func() bool { return s.reboot && s.of("p2").Phase == corev1.PodFailed } // it does not run twice
	s.until("the pods run", func() bool {
		return restarted(0, 0)() && (lost() || s.of("p2").ContainerStatuses[0].State.Running != nil)
	})
	s.Exit("p1/y", 3)
	s.until("what has ended is restarted", restarted(0, 1))
	s.until("the job has failed", func() bool {
		if s.of("p2").Phase == corev1.PodRunning {
			s.Exit("p2/job", 4)
		}
		return lost() || s.of("p2").Phase == corev1.PodFailed && s.of("p2").ContainerStatuses[0].State.Terminated.ExitCode == 4
	})
	jobs := len(s.Calls("start p2/job"))
	for i, p := range s.pods {
		s.pods[i] = p.DeepCopy()
		s.pods[i].DeletionTimestamp, s.pods[i].DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, new(int64(120)) // longer than a runtime is away
		s.pods[i].Status = s.of(p.Name)
	}
	s.Set(s.pods)
	s.until("the pods are gone", func() bool { return s.wentAway("p1") && s.wentAway("p2") })
	s.pods = nil
	s.Set(nil)
	s.until("nothing is left", func() bool { return len(s.Sandboxes()) == 0 && len(s.Runtime.Containers()) == 0 && len(s.Pods()) == 0 })
	s.stop()
	if n := len(s.Calls("start p2/job")); len(s.gone) != 2 || n != jobs || n > 1 {
		s.Errorf("died at %s: gone %q, and the job ran %d times, %d of them after its end", s.mortal.of, s.gone, n, n-jobs)
	}
	// What could not be stopped at once needs no complaint if it has been since.
	quiet := s.mortal.of == "" || strings.Contains(s.mortal.of, " stop ") || strings.Contains(s.mortal.of, " remove ")
	if s.mortal.once && !quiet && !s.saw("it failed") {
		s.Errorf("nobody is told that %s has failed: %q", s.mortal.of, s.events)
	}
	if s.loose {
		return s.mortal.of
	}
	for call, want := range map[string]int{"start p1/first": 1, "start p1/side": 1, "start p1/x": 1, "start p1/y": 2, "run p1": 1, "run p2": 1, "start p2/job": 1} {
		if got := s.Calls(call); len(got) != want {
			s.Errorf("died at %s: %d of %q, want %d: %q", s.mortal.of, len(got), call, want, s.Calls(""))
		}
	}
	stops := s.Calls("stop p1/")
	if len(stops) < 3 || !strings.HasPrefix(stops[len(stops)-1], "stop p1/side") {
		s.Errorf("died at %s: the sidecar is not the last to end: %q", s.mortal.of, stops)
	}
	for _, call := range []string{"exec p1/x post", "exec p1/x pre"} {
		if len(s.Calls(call)) == 0 {
			s.Errorf("died at %s: no %s: %q\nevents %q", s.mortal.of, call, s.Calls(""), s.events)
		}
	}
	return s.mortal.of
}

// TestKilledAtEveryCall kills the agent before and after each of its calls: the next one restarts
// nothing that runs or has done its work, runs hooks that are due, and leaves nothing.
func TestKilledAtEveryCall(t *testing.T) { atEveryCall(t, func(*tale) {}) }

// TestRuntimeKilledAtEveryCall is the same for the runtime, which is away for a while.
func TestRuntimeKilledAtEveryCall(t *testing.T) {
	atEveryCall(t, func(s *tale) { s.mortal.alone = true })
}

// TestRebootAtEveryCall has nothing left of any pod but what is on the disk: the pod runs again, and
// goes.
func TestRebootAtEveryCall(t *testing.T) {
	atEveryCall(t, func(s *tale) { s.reboot, s.loose = true, true })
}

// TestFailureAtEveryCall has a call fail, also one that has done what it was to do. A container may
// end for that, as when its hook fails.
func TestFailureAtEveryCall(t *testing.T) {
	atEveryCall(t, func(s *tale) { s.mortal.once, s.loose = true, true })
}

func atEveryCall(t *testing.T, how func(*tale)) {
	t.Helper()
	atEvery(t, how, (*tale).tell)
}

func atEvery(t *testing.T, how func(*tale), tell func(*tale) string) {
	t.Helper()
	for _, after := range []bool{false, true} {
		for at, lived := 0, false; !lived; at++ {
			synctest.Test(t, func(t *testing.T) {
				s := &tale{T: t, node: newNode(t)}
				s.mortal = &mortal{Runtime: s.Runtime, at: at, after: after}
				how(s)
				s.client = s.mortal
				lived = tell(s) == ""
			})
		}
	}
}

// TestKilledWhileItEvicts kills the agent, or with it the machine, before and after each call while
// a pod is evicted: the next agent ends it, too, for the reason that was told, and starts nothing of
// it again.
func TestKilledWhileItEvicts(t *testing.T) {
	for _, reboot := range []bool{false, true} {
		atEvery(t, func(s *tale) { s.reboot = reboot }, (*tale).evict)
	}
}

// evict has a pod evicted that would otherwise be restarted.
func (s *tale) evict() string {
	p := pod(1, corev1.RestartPolicyAlways, "x", "y")
	s.pods = []*corev1.Pod{p}
	s.boot(s.T, s.pods...)
	s.until("the pod runs", func() bool { return s.of("p1").Phase == corev1.PodRunning })
	started := len(s.Calls("start "))
	s.Evict(p.UID, 3, Refusal{Reason: "Evicted", Message: "the node was low on memory", Disrupts: "the node was low on memory"})
	s.until("the pod has failed", func() bool { return s.of("p1").Phase == corev1.PodFailed })
	st := s.of("p1")
	if st.Reason != "Evicted" || st.Message != "the node was low on memory" || !slices.ContainsFunc(st.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }) {
		s.Errorf("died at %s: %+v", s.mortal.of, st)
	}
	if n := len(s.Calls("start ")); n != started {
		s.Errorf("died at %s: it was started again: %q", s.mortal.of, s.Calls(""))
	}
	for _, c := range s.Runtime.Containers() {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			s.Errorf("died at %s: %s runs", s.mortal.of, c.GetMetadata().GetName())
		}
	}
	s.stop()
	return s.mortal.of
}

// deaf is a runtime that starts nothing while it has an error.
type deaf struct {
	*fakeruntime.Runtime
	err atomic.Pointer[error]
}

func (d *deaf) StartContainer(ctx context.Context, r *runtimeapi.StartContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StartContainerResponse, error) {
	if err := d.err.Load(); err != nil {
		return nil, *err
	}
	return d.Runtime.StartContainer(ctx, r)
}

// TestStartsWhatWasMade has a container started that is there already, where the runtime did not
// hear of it; one that it has refused to start is made anew.
func TestStartsWhatWasMade(t *testing.T) {
	for code, restarts := range map[codes.Code]int32{codes.Unavailable: 0, codes.DeadlineExceeded: 0, codes.Internal: 1} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			d, no := &deaf{Runtime: n.Runtime}, status.Error(code, "no")
			n.client = d
			d.err.Store(&no)
			n.boot(t, pod(1, corev1.RestartPolicyAlways, "x"))
			d.err.Store(nil)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			n.expect(t, "p1", corev1.PodRunning, true)
			st := n.of("p1").ContainerStatuses[0]
			if made := len(n.Calls("create p1/x")); st.RestartCount != restarts || made != int(restarts)+1 || st.LastTerminationState.Terminated != nil {
				t.Errorf("%s: %d restarts, want %d, made %d times: %+v", code, st.RestartCount, restarts, made, st)
			}
			n.stop()
		})
	}
}
