package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/node/admission"
	"fairlead.run/internal/node/cluster/nodestatus"
	"fairlead.run/internal/node/removal"
)

// few has room for so many pods; those of class "critical" displace the others. Each may
// have that much CPU.
type few struct {
	most  int
	again bool
	cpu   string
}

func (f few) Admit(p *corev1.Pod, running, leaving []*corev1.Pod) (admission.Displaced, error) {
	switch {
	case len(running) < f.most && len(running)+len(leaving) >= f.most:
		return admission.Displaced{Behind: leaving}, nil
	case len(running) < f.most:
		return admission.Displaced{}, nil
	case p.Spec.PriorityClassName == "critical":
		return admission.Displaced{Pods: running[:1], Why: Refusal{Reason: "Preempting", Message: "made room", Disrupts: "for a critical one"}}, nil
	}
	return admission.Displaced{}, &Refusal{Reason: "OutOfpods", Message: fmt.Sprintf("there are %d", len(running)), Rejected: true, Again: f.again}
}

func (f few) Resize(p *corev1.Pod, _ []*corev1.Pod) (reason, message string) {
	asks := p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]
	if most := resource.MustParse(f.cpu); asks.Cmp(most) > 0 {
		return corev1.PodReasonDeferred, "too much"
	}
	return "", ""
}

func condition(s corev1.PodStatus, kind corev1.PodConditionType) string {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason + ": " + c.Message
		}
	}
	return ""
}

// TestRoom lets pods in, in their order, once: a later agent finds out by the ledger, and
// nothing that runs is refused when there is less room.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.room = few{most: 3}
		var pods []*corev1.Pod
		for i := range 5 {
			pods = append(pods, pod(i, corev1.RestartPolicyAlways, "x"))
		}
		n.boot(t, pods...)
		for i, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodRunning, corev1.PodRunning, corev1.PodFailed, corev1.PodFailed} {
			n.expect(t, pods[i].Name, phase, phase == corev1.PodRunning)
		}
		if s := n.of("p3"); s.Reason != "OutOfpods" || s.Message != "Pod was rejected: there are 3" || len(s.ContainerStatuses) > 0 || !n.saw("p3 OutOfpods: there are 3") {
			t.Errorf("%+v %q", s, n.events)
		}
		n.kill()
		n.room = few{most: 1}
		n.boot(t, pods...)
		for i := range 3 {
			n.expect(t, pods[i].Name, corev1.PodRunning, true)
		}
		n.room = nil
		n.Set(pods[1:])
		n.Reconsider()
		synctest.Wait()
		n.expect(t, "p3", corev1.PodFailed, false) // for good
		if len(n.Calls("run")) != 3 {
			t.Errorf("%q", n.Calls(""))
		}
		n.stop()
	})
}

// TestRoomAgain tries a pod once more when another one has ended, in the order of pods.
func TestRoomAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		room := &few{most: 1, again: true}
		n.room = room
		n.boot(t, pod(1, corev1.RestartPolicyNever, "x"), pod(2, corev1.RestartPolicyAlways, "x"), pod(3, corev1.RestartPolicyAlways, "x"))
		n.expect(t, "p2", corev1.PodFailed, false)
		n.Reconsider()
		synctest.Wait()
		n.expect(t, "p2", corev1.PodFailed, false)
		n.Exit("p1/x", 0)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodSucceeded, false)
		n.expect(t, "p2", corev1.PodRunning, true)
		n.expect(t, "p3", corev1.PodFailed, false)
		room.most = 2
		n.RoomChanged()
		synctest.Wait()
		n.expect(t, "p3", corev1.PodRunning, true)
		n.stop()
	})
}

// TestRoomOfDeleted is there for another pod as soon as the one that had it has ended: who
// has sent that counts it as free from when the pod was deleted with force.
func TestRoomOfDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.room = few{most: 1}
		first, next := pod(1, corev1.RestartPolicyAlways, "x"), pod(2, corev1.RestartPolicyAlways, "x")
		n.boot(t, first)
		n.Stubborn()
		leaves := func(p *corev1.Pod, want bool) {
			t.Helper()
			if n.Leaves(p.UID) != want || n.Rests(p.UID) == want {
				t.Errorf("%s: want that it leaves: %v", p.Name, want)
			}
		}
		n.Set([]*corev1.Pod{next})
		time.Sleep(20 * time.Second)
		synctest.Wait()
		n.expect(t, "p2", corev1.PodPending, false)
		leaves(first, true)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		n.expect(t, "p2", corev1.PodRunning, true)
		if n.saw("OutOfpods") {
			t.Errorf("%q", n.events)
		}
		leaves(first, false)
		n.kill()
		n.boot(t) // which finds one that nobody wants
		leaves(next, true)
		time.Sleep(40 * time.Second)
		synctest.Wait()
		leaves(next, false)
		n.stop()
	})
}

// TestRoomOfEnded is there for a pod that is sent as soon as the status of another one says that
// it has ended.
func TestRoomOfEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.room = few{most: 1}
		first, next := pod(1, corev1.RestartPolicyNever, "x"), pod(2, corev1.RestartPolicyAlways, "x")
		n.boot(t, first)
		n.ended = func() {
			n.Set([]*corev1.Pod{first, next})
			time.Sleep(time.Second)
		}
		n.Exit("p1/x", 0)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodSucceeded, false)
		n.expect(t, "p2", corev1.PodRunning, true)
		if n.saw("p2 OutOfpods") {
			t.Errorf("%q", n.events)
		}
		n.stop()
	})
}

// TestRoomOfOverruled is there only once nothing of a pod runs any more of which somebody has
// written into the API server that it has failed.
func TestRoomOfOverruled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.room = few{most: 1}
		first, next := pod(1, corev1.RestartPolicyAlways, "x"), pod(2, corev1.RestartPolicyAlways, "x")
		n.boot(t, first)
		n.Stubborn()
		failed := first.DeepCopy()
		failed.Status.Phase = corev1.PodFailed
		n.Set([]*corev1.Pod{failed})
		time.Sleep(time.Second)
		synctest.Wait()
		if n.Rests(first.UID) {
			t.Error("its devices are free while it runs")
		}
		n.Set([]*corev1.Pod{failed, next})
		time.Sleep(20 * time.Second)
		synctest.Wait()
		n.expect(t, "p2", corev1.PodPending, false)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		n.expect(t, "p2", corev1.PodRunning, true)
		if n.saw("OutOfpods") || !n.Rests(first.UID) {
			t.Errorf("%q", n.events)
		}
		n.stop()
	})
}

// TestRoomBesideStuck is there for a pod as soon as nothing runs of one that cannot be removed.
func TestRoomBesideStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.room = few{most: 1}
		n.boot(t, pod(1, corev1.RestartPolicyAlways, "x"))
		n.Stubborn()
		n.Set([]*corev1.Pod{pod(2, corev1.RestartPolicyAlways, "x")})
		n.Fail("remove sandbox p1", errors.New("it is stuck"))
		time.Sleep(40 * time.Second)
		synctest.Wait()
		n.expect(t, "p2", corev1.PodRunning, true)
		if slices.Contains(n.gone, "p1") {
			t.Error("it was not stuck")
		}
		n.Fail("remove sandbox p1", nil)
		n.stop()
	})
}

// TestDisplaced ends a pod for a critical one, which starts when that has ended.
func TestDisplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.room = few{most: 1}
		lesser, critical := pod(1, corev1.RestartPolicyAlways, "x"), pod(2, corev1.RestartPolicyAlways, "x")
		critical.Spec.PriorityClassName = "critical"
		n.boot(t, lesser)
		n.Stubborn()
		n.Set([]*corev1.Pod{lesser, critical})
		time.Sleep(29 * time.Second)
		synctest.Wait()
		n.expect(t, "p2", corev1.PodPending, false)
		time.Sleep(time.Second)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodFailed, false)
		n.expect(t, "p2", corev1.PodRunning, true)
		if s := n.of("p1"); s.Reason != "Preempting" || condition(s, corev1.DisruptionTarget) != "True TerminationByKubelet: for a critical one" {
			t.Errorf("%+v", s)
		}
		n.stop()
	})
}

// TestAwait returns when a pod has ended, and not before.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyAlways, "x")
		n.boot(t, p)
		n.Stubborn()
		began := time.Now()
		n.Evict(p.UID, 7, Refusal{Reason: "Evicted", Message: "low", Disrupts: "low"})
		if err := n.Await(t.Context(), p.UID); err != nil || time.Since(began) != 7*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if err := n.Await(t.Context(), uid(99)); err != nil {
			t.Error(err)
		}
		n.kill()
		n.boot(t, p)
		if err := n.Await(t.Context(), p.UID); err != nil {
			t.Error(err)
		}
		if s := n.of("p1"); s.Reason != "" && condition(s, corev1.DisruptionTarget) == "" {
			t.Errorf("%+v", s)
		}
		n.stop()
	})
}

func asking(cpu string) *corev1.Pod {
	p := pod(1, corev1.RestartPolicyAlways, "x")
	r := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: r, Limits: r}
	return p
}

// TestResize gives a pod what it asks for by now: what the node has not is pending, what
// it has is given to cgroup, container and sandbox, and told. It outlives the agent.
func TestResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.room = few{most: 9, cpu: "2"}
		n.boot(t, asking("1"))
		n.Set([]*corev1.Pod{asking("3")})
		synctest.Wait()
		s := n.of("p1")
		if got := condition(s, corev1.PodResizePending); got != "True Deferred: too much" || !n.saw("p1 ResizeDeferred: too much") {
			t.Errorf("%q %q", got, n.events)
		}
		if got := s.ContainerStatuses[0].AllocatedResources.Cpu().String(); got != "1" || len(n.Calls("resize")) > 0 {
			t.Errorf("allocated %s, %q", got, n.Calls(""))
		}
		// It stays what it was for the next agent, though the spec asks for more.
		n.kill()
		n.boot(t, asking("3"))
		if got := n.of("p1").ContainerStatuses[0].AllocatedResources.Cpu().String(); got != "1" {
			t.Errorf("allocated %s after a restart", got)
		}
		n.Fail("resize p1/x", errors.New("busy"))
		n.Set([]*corev1.Pod{asking("2")})
		synctest.Wait()
		s = n.of("p1")
		if got := condition(s, corev1.PodResizeInProgress); got != "True Error: busy" || condition(s, corev1.PodResizePending) != "" {
			t.Errorf("%q %+v", got, s.Conditions)
		}
		n.Fail("resize p1/x", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		s = n.of("p1")
		if got := s.ContainerStatuses[0]; got.AllocatedResources.Cpu().String() != "2" || got.Resources.Limits.Cpu().String() != "2" || got.RestartCount != 0 {
			t.Errorf("%+v", got)
		}
		if condition(s, corev1.PodResizeInProgress) != "" || !n.saw("p1 ResizeCompleted") {
			t.Errorf("%+v %q", s.Conditions, n.events)
		}
		if got := n.tree.has[uid(1)].Spec.Containers[0].Resources.Limits.Cpu().String(); got != "2" {
			t.Errorf("its cgroup has %s", got)
		}
		if calls := n.Calls("resize sandbox"); !slices.Equal(calls, []string{"resize sandbox p1"}) {
			t.Errorf("%q", calls)
		}
		before := n.Asked()
		time.Sleep(10 * time.Minute)
		if asked := n.Asked() - before; asked > 22 {
			t.Errorf("%d calls for a pod to which nothing happens", asked)
		}
		n.stop()
	})
}

// TestResizeLater gives a pod what it waits for once another one has ended.
func TestResizeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		room := &few{most: 9, cpu: "1"}
		n.room = room
		other := pod(2, corev1.RestartPolicyNever, "x")
		n.boot(t, asking("1"), other)
		n.Set([]*corev1.Pod{asking("2"), other})
		synctest.Wait()
		room.cpu = "2"
		n.Exit("p2/x", 0)
		synctest.Wait()
		if s := n.of("p1"); condition(s, corev1.PodResizePending) != "" || s.ContainerStatuses[0].AllocatedResources.Cpu().String() != "2" {
			t.Errorf("%+v", s)
		}
		n.stop()
	})
}

// total has that many CPUs for all pods together.
type total struct{ cpus int64 }

func (total) Admit(_ *corev1.Pod, _, _ []*corev1.Pod) (admission.Displaced, error) {
	return admission.Displaced{}, nil
}

func (r *total) Resize(p *corev1.Pod, others []*corev1.Pod) (reason, message string) {
	sum := int64(0)
	for _, p := range append(others, p) {
		sum += p.Spec.Containers[0].Resources.Requests.Cpu().Value()
	}
	if sum > r.cpus {
		return corev1.PodReasonDeferred, "too much"
	}
	return "", ""
}

// TestResizeOfDeclaredFeatures has what the node declares of resizes: those of a pod as a whole,
// which its containers without limits follow, and those of an init container that runs.
func TestResizeOfDeclaredFeatures(t *testing.T) {
	cpu := func(n string) *corev1.ResourceRequirements {
		r := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}
		return &corev1.ResourceRequirements{Requests: r, Limits: r}
	}
	for feature, with := range map[string]func(n string) *corev1.Pod{
		"InPlacePodLevelResourcesVerticalScaling": func(n string) *corev1.Pod {
			p := pod(1, corev1.RestartPolicyAlways, "x")
			p.Spec.Resources = cpu(n)
			return p
		},
		"InPlacePodVerticalScalingInitContainers": func(n string) *corev1.Pod {
			p := pod(1, corev1.RestartPolicyAlways, "y")
			p.Spec.InitContainers = []corev1.Container{{Name: "x", Image: "x", Resources: *cpu(n)}}
			return p
		},
	} {
		t.Run(feature, func(t *testing.T) {
			if !slices.Contains(nodestatus.Declared, feature) {
				t.Fatal("it is not declared")
			}
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.boot(t, with("1"))
				n.Set([]*corev1.Pod{with("2")})
				time.Sleep(time.Second)
				synctest.Wait()
				if calls := n.Calls("resize p1/x"); len(calls) != 1 || !n.saw("p1 ResizeCompleted") {
					t.Errorf("%q, events %q", calls, n.events)
				}
				n.stop()
			})
		})
	}
}

// TestResizeOrder gives room to those that wait for it by their priority, then by their class of
// service, then by how long they wait, and to what asks anew after them.
func TestResizeOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		room := &total{6}
		n.room = room
		sized := func(i int, cpu string, priority int32, guaranteed bool) *corev1.Pod {
			p := pod(i, corev1.RestartPolicyAlways, "x")
			p.Spec.Priority = &priority
			r := &p.Spec.Containers[0].Resources
			r.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
			if guaranteed {
				r.Requests[corev1.ResourceMemory] = resource.MustParse("1Mi")
				r.Limits = r.Requests.DeepCopy()
			}
			return p
		}
		all := func(cpus ...string) []*corev1.Pod {
			return []*corev1.Pod{
				sized(1, cpus[0], 0, false), sized(2, cpus[1], 0, false), sized(3, cpus[2], 0, true), sized(4, cpus[3], 10, false), sized(5, cpus[4], 0, false), sized(6, cpus[5], 0, false),
			}
		}
		cpus, has := []string{"1", "1", "1", "1", "1", "1"}, map[string]bool{}
		n.boot(t, all(cpus...)...)
		for _, i := range []int{4, 1, 0, 2, 3} { // that is how long they wait
			cpus[i] = "3"
			n.Set(all(cpus...))
			time.Sleep(2 * time.Second)
			synctest.Wait()
		}
		for step, want := range [][]string{{"p4"}, {"p3"}, {"p5"}, {"p2"}, {"p1"}} {
			room.cpus += 2
			if cpus[5] = "1"; step == 2 { // nobody comes before those who wait
				cpus[5] = "2"
			}
			n.Set(all(cpus...))
			n.RoomChanged()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			var got []string
			for _, p := range all(cpus...) {
				if s := n.of(p.Name); s.ContainerStatuses[0].AllocatedResources.Cpu().String() == "3" && !has[p.Name] {
					has[p.Name], got = true, append(got, p.Name)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("step %d: %q, want %q", step, got, want)
			}
		}
		n.stop()
	})
}

// TestEndedNeedsNoRoom counts nothing that has ended, or is being deleted and was never
// let in.
func TestEndedNeedsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.room = few{most: 1}
		ended, deleted, next := pod(1, corev1.RestartPolicyNever, "x"), pod(2, corev1.RestartPolicyAlways, "x"), pod(3, corev1.RestartPolicyAlways, "x")
		ended.Status.Phase = corev1.PodSucceeded
		deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		n.boot(t, ended, deleted, next)
		n.expect(t, "p3", corev1.PodRunning, true)
		n.stop()
	})
}

// TestResizeWhileAway gives a pod what it began to ask for while no agent ran. Whoever
// asks for the pods before anything was told of it gets an answer.
func TestResizeWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.room = few{most: 9, cpu: "2"}
		n.boot(t, asking("1"))
		n.kill()
		looked := 0
		n.tree.look = func() {
			n.Pods()
			if _, err := n.Running(t.Context()); err != nil {
				t.Error(err)
			}
			looked++
		}
		n.boot(t, asking("2"))
		if got := n.of("p1").ContainerStatuses[0].AllocatedResources.Cpu().String(); got != "2" || looked == 0 {
			t.Errorf("allocated %s, looked %d times", got, looked)
		}
		n.stop()
	})
}

// TestRoomUnwritten takes no pod for let in of which the ledger does not have that: a later
// agent would ask again whether there is room, under a pod that runs.
func TestRoomUnwritten(t *testing.T) {
	n := newNode(t)
	folder := filepath.Join(n.root, "agent")
	if err := os.WriteFile(folder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorker(New(Config{Name: "test", Runtime: n.Runtime, Root: n.root, State: n.state}), pod(1, corev1.RestartPolicyAlways, "x"))
	w.guest.Ask()
	for range 2 {
		if err := w.enter(); err == nil || w.record.Allocated != nil {
			t.Errorf("%v, %v", err, w.record.Allocated)
		}
	}
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	if err := w.enter(); err != nil {
		t.Fatal(err)
	}
	if r, _, err := w.a.ledger.Read(w.uid); err != nil || r.Allocated == nil {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestResume runs pods again that were to end with the machine, when that goes on: in new
// sandboxes, with the volumes that they had. One that is still at its end ends first, and
// one that nobody wants any more goes.
func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		quick, slow, goes, evicted := pod(1, corev1.RestartPolicyNever, "x"), pod(2, corev1.RestartPolicyAlways, "x"), pod(3, corev1.RestartPolicyAlways, "x"), pod(4, corev1.RestartPolicyAlways, "x")
		quick.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		all := []*corev1.Pod{quick, slow, goes, evicted}
		n.boot(t, all...)
		kept := filepath.Join(removal.Dirs(n.root, n.state, string(quick.UID)).Disk, "volumes", "v", "kept")
		if err := os.WriteFile(kept, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		ends := make(chan struct{})
		n.Hang("stop p2/x in 30s", ends)
		for _, p := range all {
			n.Evict(p.UID, 30, Refusal{Reason: "Terminated", Message: "the node ends", Disrupts: "it ends", Again: p != evicted})
		}
		synctest.Wait()
		n.expect(t, "p1", corev1.PodFailed, false)
		n.Reconsider() // which is not the same
		synctest.Wait()
		n.expect(t, "p1", corev1.PodFailed, false)
		n.Resume()
		n.Set(slices.DeleteFunc(slices.Clone(all), func(p *corev1.Pod) bool { return p == goes }))
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		n.expect(t, "p4", corev1.PodFailed, false)
		if !exists(t, kept) || len(n.Calls("run p1")) != 2 || len(n.Calls("run p2")) != 1 || !slices.Equal(n.gone, []string{"p3"}) {
			t.Errorf("%q, gone %q", n.Calls(""), n.gone)
		}
		close(ends)
		synctest.Wait()
		n.expect(t, "p2", corev1.PodRunning, true)
		if len(n.Calls("run p2")) != 2 || len(n.Sandboxes()) != 3 {
			t.Errorf("%q", n.Calls(""))
		}
		n.stop()
	})
}
