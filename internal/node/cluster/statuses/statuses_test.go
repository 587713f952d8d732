package statuses

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/cluster"
	"fairlead.run/test/apiserver"
)

var podKind = apiserver.Resource{Path: "api/v1/pods", Kind: "Pod", Namespaced: true}

type rig struct {
	*apiserver.Server
	w *Writer
	t *testing.T

	refusals atomic.Int32
}

// newRig has a writer that runs. It is for bubbles.
func newRig(t *testing.T, pods ...*corev1.Pod) *rig {
	t.Helper()
	server := apiserver.InMemory(t, podKind)
	for _, p := range pods {
		server.Put(podKind, p)
	}
	client, err := cluster.NewClient(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Server: server, t: t}
	r.w = New(client, slog.New(slog.DiscardHandler), func(p *corev1.Pod, err error) {
		if p.Name == "" || p.UID == "" || err == nil {
			t.Errorf("told of %+v: %v", p.ObjectMeta, err)
		}
		r.refusals.Add(1)
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return r
}

func (r *rig) pod(name string) *corev1.Pod {
	r.t.Helper()
	had := r.Get(podKind, "default/"+name)
	if had == nil {
		return nil
	}
	text, err := json.Marshal(had)
	if err != nil {
		r.t.Fatal(err)
	}
	out := &corev1.Pod{}
	if err := json.Unmarshal(text, out); err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) patches(name string) int {
	return r.Count(func(c apiserver.Call) bool {
		return c.Verb == "patch" && c.Subresource == "status" && c.Name == name
	})
}

// known is how many pods the writer remembers.
func (r *rig) known() int {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	return len(r.w.pods)
}

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
}

func running(ip string) *corev1.PodStatus {
	return &corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Ready: true}},
	}
}

func TestMerged(t *testing.T) {
	early, late := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	condition := func(of corev1.PodConditionType, is corev1.ConditionStatus, at metav1.Time) corev1.PodCondition {
		return corev1.PodCondition{Type: of, Status: is, LastTransitionTime: at}
	}
	has := &corev1.PodStatus{
		Phase: corev1.PodPending, NominatedNodeName: "n", QOSClass: "Burstable", StartTime: &early,
		Conditions: []corev1.PodCondition{
			condition("PodScheduled", "True", early), condition("example.com/gate", "True", early), condition("Ready", "False", early),
			condition("PodResizePending", "True", early), condition("DisruptionTarget", "True", early), condition("Initialized", "True", early),
		},
	}
	wants := &corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &late,
		Conditions: []corev1.PodCondition{
			condition("PodScheduled", "False", late), condition("example.com/gate", "False", late), condition("Ready", "True", late),
			condition("ContainersReady", "True", late), condition("Initialized", "True", late),
		},
	}
	got := merged(has, wants)
	var lines []string
	for _, c := range got.Conditions {
		lines = append(lines, fmt.Sprintf("%s=%s@%d", c.Type, c.Status, c.LastTransitionTime.Unix()))
	}
	want := "PodScheduled=True@1000 example.com/gate=True@1000 Ready=True@2000 DisruptionTarget=True@1000 Initialized=True@1000 ContainersReady=True@2000"
	if text := strings.Join(lines, " "); text != want {
		t.Errorf("the conditions are %s\nwant %s", text, want)
	}
	if got.Phase != corev1.PodRunning || got.NominatedNodeName != "n" || got.QOSClass != "Burstable" || !got.StartTime.Equal(&early) {
		t.Errorf("got %+v", got)
	}
	has.Phase = corev1.PodFailed
	if got := merged(has, wants); got.Phase != corev1.PodFailed {
		t.Errorf("a pod that has failed is %s", got.Phase)
	}
}

func TestOnlyTheLatestIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newPod("a")
		a.Status.Conditions = []corev1.PodCondition{{Type: "example.com/gate", Status: "True"}}
		r := newRig(t, a)
		r.Intercept(func(apiserver.Call, http.ResponseWriter, *http.Request) bool {
			time.Sleep(time.Second)
			return false
		})
		for i := range 100 {
			r.w.Set(r.pod("a"), running(fmt.Sprintf("10.0.0.%d", i)))
		}
		time.Sleep(time.Minute)
		r.Intercept(nil)
		p := r.pod("a")
		if p.Status.PodIP != "10.0.0.99" || len(p.Status.PodIPs) != 1 || p.Status.Conditions[0].Type != "example.com/gate" || len(p.Status.Conditions) != 2 {
			t.Errorf("the status is %+v", p.Status)
		}
		if n := r.patches("a"); n > 2 {
			t.Errorf("it was written %d times", n)
		}
		// The same again, later and by the watch, is nothing to write.
		before := r.patches("a")
		time.Sleep(time.Minute)
		r.w.Set(p, running("10.0.0.99"))
		r.w.Observe([]*corev1.Pod{p})
		synctest.Wait()
		if n := r.patches("a") - before; n != 0 {
			t.Errorf("an equal status was written %d times", n)
		}
	})
}

// A new agent says what the old one has said.
func TestNothingIsWrittenAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newPod("a")
		a.Status = *running("10.0.0.1")
		r := newRig(t, a)
		time.Sleep(time.Hour)
		r.w.Set(r.pod("a"), running("10.0.0.1"))
		synctest.Wait()
		if n := r.patches("a"); n != 0 {
			t.Errorf("it was written %d times", n)
		}
	})
}

func TestWhatOthersChangeIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newPod("a"))
		r.w.Set(r.pod("a"), running("10.0.0.1"))
		synctest.Wait()
		p := r.pod("a")
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: "True"})
		r.Put(podKind, p)
		r.w.Observe([]*corev1.Pod{r.pod("a")})
		synctest.Wait()
		if n := r.patches("a"); n != 1 {
			t.Errorf("others' condition is answered with %d patches", n-1)
		}
		p = r.pod("a")
		p.Status.Conditions[0].Status, p.Status.Phase = corev1.ConditionFalse, corev1.PodPending
		r.Put(podKind, p)
		r.w.Observe([]*corev1.Pod{r.pod("a")})
		synctest.Wait()
		if p := r.pod("a"); p.Status.Phase != corev1.PodRunning || p.Status.Conditions[0].Status != corev1.ConditionTrue || len(p.Status.Conditions) != 2 {
			t.Errorf("the status stays %+v", p.Status)
		}
	})
}

// An API server that leaves out what it does not know is not asked forever.
func TestAServerThatDropsFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newPod("a"))
		r.Intercept(func(c apiserver.Call, _ http.ResponseWriter, req *http.Request) bool {
			if c.Verb == "patch" {
				text, _ := io.ReadAll(req.Body)
				req.Body = io.NopCloser(strings.NewReader(strings.Replace(string(text), `"podIP":"10.0.0.1"`, `"podIP":null`, 1)))
			}
			return false
		})
		r.w.Set(r.pod("a"), running("10.0.0.1"))
		for range 10 {
			synctest.Wait()
			r.w.Observe([]*corev1.Pod{r.pod("a")})
			time.Sleep(time.Minute)
		}
		if n := r.patches("a"); n != 1 {
			t.Errorf("it was written %d times", n)
		}
	})
}

func TestWritesSurvive(t *testing.T) {
	for _, code := range []int{409, 429, 500, 503, 0} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, newPod("a"), newPod("b"))
				var failing atomic.Bool
				failing.Store(true)
				r.Intercept(func(c apiserver.Call, w http.ResponseWriter, req *http.Request) bool {
					if !failing.Load() || c.Name != "a" || c.Verb != "patch" {
						return false
					}
					if code == 0 {
						<-req.Context().Done()
						return true
					}
					w.WriteHeader(code)
					return true
				})
				r.w.Set(r.pod("a"), running("10.0.0.1"))
				r.w.Set(r.pod("b"), running("10.0.0.2"))
				synctest.Wait()
				if p := r.pod("b"); p.Status.Phase != corev1.PodRunning {
					t.Error("a pod waits for another")
				}
				time.Sleep(10 * time.Minute)
				if n := r.patches("a"); n > 100 {
					t.Errorf("there were %d tries in 10 minutes", n)
				}
				failing.Store(false)
				time.Sleep(30 * time.Second)
				if p := r.pod("a"); p.Status.PodIP != "10.0.0.1" {
					t.Errorf("the status is %+v", p.Status)
				}
			})
		})
	}
}

func TestARefusedStatusIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newPod("a"))
		r.FailWith(func(c apiserver.Call) int {
			if c.Verb == "patch" {
				return http.StatusUnprocessableEntity
			}
			return 0
		})
		r.w.Set(r.pod("a"), running("10.0.0.1"))
		time.Sleep(time.Hour)
		if n := r.patches("a"); n != 1 {
			t.Errorf("it was tried %d times", n)
		}
		if n := r.refusals.Load(); n != 1 {
			t.Errorf("it was told %d times", n)
		}
		r.FailWith(nil)
		r.w.Set(r.pod("a"), running("10.0.0.2"))
		synctest.Wait()
		if p := r.pod("a"); p.Status.PodIP != "10.0.0.2" {
			t.Errorf("the status is %+v", p.Status)
		}
	})
}

// A status that the node may not write, as a policy says no, is told once and tried again.
func TestABarredStatusIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newPod("a"))
		r.FailWith(func(c apiserver.Call) int {
			if c.Verb == "patch" {
				return http.StatusForbidden
			}
			return 0
		})
		r.w.Set(r.pod("a"), running("10.0.0.1"))
		time.Sleep(time.Hour)
		if n := r.refusals.Load(); n != 1 || r.patches("a") < 2 {
			t.Errorf("it was told %d times, and tried %d times", n, r.patches("a"))
		}
		r.FailWith(nil)
		time.Sleep(10 * time.Minute)
		if p := r.pod("a"); p.Status.PodIP != "10.0.0.1" {
			t.Errorf("the status is %+v", p.Status)
		}
	})
}

// Another pod has taken the name: it does not get the status of the first.
func TestAnotherPodOfThatName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newPod("a"))
		old := r.pod("a")
		r.Delete(podKind, "default/a")
		fresh := newPod("a")
		fresh.UID = "another"
		r.Put(podKind, fresh)
		r.w.Set(old, running("10.0.0.1"))
		r.w.Gone(old)
		time.Sleep(time.Minute)
		if p := r.pod("a"); p == nil || p.Status.PodIP != "" {
			t.Errorf("the other pod is %+v", p)
		}
		// Where the first was forgotten between Set and Gone, the next list ends it.
		r.w.Observe([]*corev1.Pod{r.pod("a")})
		if r.known() != 0 {
			t.Error("the pod is not forgotten")
		}
	})
}

func TestThePodGoesAfterItsLastStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newPod("a"), newPod("b"))
		var mu sync.Mutex
		var changed sync.Once
		var order []string
		r.Intercept(func(c apiserver.Call, _ http.ResponseWriter, req *http.Request) bool {
			if c.Verb == "patch" || c.Verb == "delete" {
				text, _ := io.ReadAll(req.Body)
				req.Body = io.NopCloser(strings.NewReader(string(text)))
				mu.Lock()
				order = append(order, c.Verb+" "+c.Name)
				mu.Unlock()
				if c.Verb == "delete" && c.Name == "a" {
					// Somebody has changed the object meanwhile.
					changed.Do(func() {
						p := r.pod("a")
						p.Labels = map[string]string{"new": "label"}
						r.Put(podKind, p)
					})
				}
				if c.Verb == "delete" && !strings.Contains(string(text), `"gracePeriodSeconds":0`) {
					t.Errorf("deleted with %s", text)
				}
			}
			return false
		})
		for _, name := range []string{"a", "b"} {
			r.w.Set(r.pod(name), running("10.0.0.1"))
		}
		synctest.Wait()
		order = nil
		p := r.pod("a")
		now := metav1.Now()
		p.DeletionTimestamp = &now
		r.Put(podKind, p)
		r.w.Observe([]*corev1.Pod{r.pod("a"), r.pod("b")})
		ended := running("10.0.0.1")
		ended.Phase = corev1.PodSucceeded
		r.w.Set(p, ended)
		r.w.Set(r.pod("b"), ended)
		r.w.Gone(p)
		r.w.Gone(r.pod("b")) // has ended by itself, and nobody has deleted it
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if text := strings.Join(order, ", "); strings.Count(text, "delete a") != 2 || strings.Index(text, "delete a") < strings.Index(text, "patch a") || strings.Contains(text, "delete b") {
			t.Errorf("the order was %s", text)
		}
		if r.pod("a") != nil || r.pod("b") == nil {
			t.Errorf("a is %v and b is %v", r.pod("a"), r.pod("b"))
		}
		mu.Unlock()
		defer mu.Lock()
		b := r.pod("b")
		b.DeletionTimestamp = &now
		r.Put(podKind, b)
		r.w.Observe([]*corev1.Pod{r.pod("b")})
		synctest.Wait()
		if r.pod("b") != nil {
			t.Error("a pod that is deleted after its end stays")
		}
		r.w.Observe(nil)
		if r.known() != 0 {
			t.Error("pods that are gone are not forgotten")
		}
	})
}

// Somebody has deleted it without waiting for the node.
func TestAPodThatIsGoneThereFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newPod("a"))
		p := r.pod("a")
		r.w.Observe([]*corev1.Pod{p})
		r.Delete(podKind, "default/a")
		r.w.Observe(nil)
		r.w.Set(p, running("10.0.0.1"))
		synctest.Wait()
		r.w.Gone(p)
		r.w.Observe(nil)
		if r.known() != 0 {
			t.Error("the pod is not forgotten")
		}
	})
}

// A finalizer keeps the object; it is not deleted over and over.
func TestAFinalizer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPod("a")
		now := metav1.Now()
		p.DeletionTimestamp, p.Finalizers = &now, []string{"example.com/wait"}
		r := newRig(t, p)
		r.Intercept(func(c apiserver.Call, w http.ResponseWriter, _ *http.Request) bool {
			if c.Verb != "delete" {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(r.Get(podKind, "default/a"))
			return true
		})
		r.w.Gone(r.pod("a"))
		for range 10 {
			time.Sleep(time.Minute)
			r.Put(podKind, r.pod("a"))
			r.w.Observe([]*corev1.Pod{r.pod("a")})
		}
		if n := r.Count(func(c apiserver.Call) bool { return c.Verb == "delete" }); n != 1 {
			t.Errorf("it was deleted %d times", n)
		}
	})
}

// TestBeginnings has one write for a pod that runs soon, and as many as it takes for one
// that is Pending for longer. What has gone wrong by then is told as well.
func TestBeginnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fresh := newPod("quick")
		fresh.Status.Phase = corev1.PodPending
		slow := newPod("slow")
		slow.Status.Phase = corev1.PodPending
		r := newRig(t, fresh, slow)
		pending := func(reason string) *corev1.PodStatus {
			return &corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
			}}}
		}
		quick := r.pod("quick")
		r.w.Set(quick, pending("ContainerCreating"))
		time.Sleep(gatherTime / 2)
		began := time.Now()
		r.w.Set(quick, running("192.0.2.1"))
		synctest.Wait()
		if n := r.patches("quick"); n != 1 || r.pod("quick").Status.Phase != corev1.PodRunning || time.Since(began) > 0 {
			t.Errorf("%d writes, and after %s the pod is %s", n, time.Since(began), r.pod("quick").Status.Phase)
		}
		for i, reason := range []string{"ContainerCreating", "ErrImagePull"} {
			r.w.Set(r.pod("slow"), pending(reason))
			time.Sleep(gatherTime)
			synctest.Wait()
			if c := r.pod("slow").Status.ContainerStatuses; r.patches("slow") != i+1 || len(c) != 1 || c[0].State.Waiting.Reason != reason {
				t.Errorf("%s: %d writes, %+v", reason, r.patches("slow"), c)
			}
		}
		// A pod that is deleted meanwhile waits for nothing.
		gone := newPod("gone")
		gone.Status.Phase, gone.DeletionTimestamp = corev1.PodPending, &metav1.Time{Time: time.Now()}
		r.Put(podKind, gone)
		r.w.Observe([]*corev1.Pod{r.pod("quick"), r.pod("slow"), r.pod("gone")})
		began = time.Now()
		r.w.Set(r.pod("gone"), pending("ContainerCreating"))
		synctest.Wait()
		if n := r.patches("gone"); n != 1 || time.Since(began) > 0 {
			t.Errorf("%d writes after %s", n, time.Since(began))
		}
	})
}

// TestALostAnswer has the API server do what was asked for after the writer has given up
// on it. What the next status has in common with the one before that is written again.
func TestALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, newPod("a"))
		r.w.Set(r.pod("a"), running("192.0.2.1"))
		synctest.Wait()
		var held atomic.Bool
		late := make(chan struct{})
		r.Intercept(func(c apiserver.Call, _ http.ResponseWriter, _ *http.Request) bool {
			if c.Verb == "patch" && held.CompareAndSwap(false, true) {
				<-late
			}
			return false
		})
		broken := running("192.0.2.1")
		broken.Conditions[0].Status, broken.ContainerStatuses[0].Ready = corev1.ConditionFalse, false
		r.w.Set(r.pod("a"), broken)
		synctest.Wait()
		time.Sleep(requestPatience)
		close(late)
		again := running("192.0.2.1")
		again.ContainerStatuses[0].RestartCount = 1
		r.w.Set(r.pod("a"), again)
		time.Sleep(time.Minute)
		synctest.Wait()
		s := r.pod("a").Status
		if s.Conditions[0].Status != corev1.ConditionTrue || !s.ContainerStatuses[0].Ready || s.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("%+v", s)
		}
	})
}
