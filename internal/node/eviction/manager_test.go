package eviction

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fake is a node with 1000 of everything, in one goroutine with its Manager. It
// writes down what is done to it, and when.
type fake struct {
	start    time.Time
	left     Observations
	later    Observations // from the third second on
	blind    error
	pods     []Pod
	refuse   string           // the pod that cannot be evicted
	hangs    string           // the pod that does not end
	frees    func(*fake)      // what removing images does
	freesPod func(*fake, Pod) // what the end of a pod does
	log      []string
}

func (f *fake) note(format string, args ...any) {
	f.log = append(f.log, fmt.Sprintf("%d ", int(time.Since(f.start).Seconds()))+fmt.Sprintf(format, args...))
}

func (f *fake) Observe(context.Context) (Observations, error) {
	if f.later != nil && time.Since(f.start) >= 3*time.Second {
		return f.later, nil
	}
	return f.left, f.blind
}

func (f *fake) Pods(context.Context, bool) ([]Pod, error) { return f.pods, nil }

func (f *fake) Evict(ctx context.Context, e Eviction) error {
	if e.Pod.Name == f.refuse {
		return ErrGone
	}
	if e.Pod.Name == f.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	why, _, _ := strings.Cut(e.Message, ".")
	f.note("evict %s in %s: %s", e.Pod.Name, e.Grace, why)
	for i, p := range f.pods {
		if p.Pod.UID == e.Pod.UID {
			f.pods = append(f.pods[:i:i], f.pods[i+1:]...)
			if f.freesPod != nil {
				f.freesPod(f, p)
			}
			break
		}
	}
	return nil
}

func (f *fake) RemoveContainers(context.Context) error {
	f.note("remove containers")
	return nil
}

func (f *fake) RemoveImages(context.Context) error {
	f.note("remove images")
	if f.frees != nil {
		f.frees(f)
	}
	return nil
}

func (f *fake) SetConditions(has []corev1.NodeConditionType) { f.note("%v", has) }

// Event notes one. What is done about a signal is a matter of TestReclaiming.
func (f *fake) Event(reason, message string) {
	if reason == "EvictionThresholdMet" {
		message, _, _ = strings.Cut(message, ":")
	}
	f.note("%s: %s", reason, message)
}

// runs is what a Manager does within a time.
func runs(t *testing.T, f *fake, cfg Config, d time.Duration) {
	t.Helper()
	f.start = time.Now()
	cfg.Log = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := New(cfg, f).Run(ctx); err != nil {
		t.Error(err)
	}
}

func expect(t *testing.T, name string, f *fake, want ...string) {
	t.Helper()
	if got := strings.Join(f.log, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("%s: this was done:\n%s\nand not:\n%s", name, got, strings.Join(want, "\n"))
	}
}

func TestManager(t *testing.T) {
	const late = "EvictionNotDone: Pod default/a was told to end for what it uses, and has not ended within 30s beyond its grace period, so that the next one is looked for; its own events say what holds it, and kubectl delete --force gives it up"
	freesMemory := func(f *fake, p Pod) {
		o := f.left[MemoryAvailable]
		o.Available += p.Memory
		f.left = Observations{MemoryAvailable: o}
	}
	hard := Threshold{Signal: MemoryAvailable, Value: amount(100), Reclaim: amount(50)}
	soft := Threshold{Signal: MemoryAvailable, Value: amount(300), Grace: 25 * time.Second}
	disk := Threshold{Signal: NodefsAvailable, Value: amount(100)}
	grace := func(n int64) edit { return func(p *Pod) { p.Pod.Spec.TerminationGracePeriodSeconds = &n } }
	for _, tt := range []struct {
		name string
		fake fake
		cfg  Config
		want []string
	}{
		{
			"nothing to do",
			fake{left: Observations{MemoryAvailable: {100, 1000}}, pods: []Pod{pod("a", memory(500))}},
			Config{Thresholds: []Threshold{hard}},
			[]string{"0 []"},
		},
		{
			"one at a time, until enough is back",
			fake{
				left: Observations{MemoryAvailable: {50, 1000}}, freesPod: freesMemory,
				pods: []Pod{pod("a", memory(70)), pod("b", memory(80)), pod("c", memory(60)), pod("critical", static, memory(600))},
			},
			Config{Thresholds: []Threshold{hard}, Transition: 20 * time.Second},
			[]string{
				"0 []", "0 [MemoryPressure]", "0 EvictionThresholdMet: Attempting to reclaim memory", "0 evict b in 1s: The node was low on resource: memory",
				"1 EvictionThresholdMet: Attempting to reclaim memory", "1 evict a in 1s: The node was low on resource: memory",
				"22 []",
			},
		},
		{
			"a soft threshold waits, and gives pods time",
			fake{left: Observations{MemoryAvailable: {200, 1000}}, freesPod: freesMemory, pods: []Pod{pod("a", memory(120), grace(5)), pod("b", memory(100))}},
			Config{Thresholds: []Threshold{soft}, MaxGrace: 60 * time.Second, Transition: time.Hour},
			[]string{
				"0 []", "0 [MemoryPressure]", "30 EvictionThresholdMet: Attempting to reclaim memory", "30 evict a in 5s: The node was low on resource: memory",
			},
		},
		{
			"and no more than the limit",
			fake{left: Observations{MemoryAvailable: {200, 1000}}, freesPod: freesMemory, pods: []Pod{pod("a", memory(120), grace(500))}},
			Config{Thresholds: []Threshold{soft}, MaxGrace: 60 * time.Second, Transition: time.Hour},
			[]string{
				"0 []", "0 [MemoryPressure]", "30 EvictionThresholdMet: Attempting to reclaim memory", "30 evict a in 1m0s: The node was low on resource: memory",
			},
		},
		{
			"images go before pods",
			fake{left: Observations{NodefsAvailable: {50, 1000}}, pods: []Pod{pod("a")}, frees: func(f *fake) { f.left = Observations{NodefsAvailable: {500, 1000}} }},
			Config{Thresholds: []Threshold{disk}, Transition: time.Hour},
			[]string{"0 []", "0 [DiskPressure]", "0 EvictionThresholdMet: Attempting to reclaim ephemeral-storage", "0 remove containers", "0 remove images"},
		},
		{
			"and pods after them",
			fake{
				left: Observations{NodefsAvailable: {50, 1000}}, pods: []Pod{pod("a", layer(10)), pod("b", layer(20))},
				freesPod: func(f *fake, _ Pod) { f.left = Observations{NodefsAvailable: {500, 1000}} },
			},
			Config{Thresholds: []Threshold{disk}, Transition: time.Hour},
			[]string{
				"0 []", "0 [DiskPressure]", "0 EvictionThresholdMet: Attempting to reclaim ephemeral-storage", "0 remove containers", "0 remove images",
				"0 evict b in 1s: The node was low on resource: ephemeral-storage",
			},
		},
		{
			"images elsewhere free nothing here",
			fake{
				left: Observations{NodefsAvailable: {50, 1000}}, pods: []Pod{pod("a", layer(90)), pod("b", logs(20))},
				freesPod: func(f *fake, _ Pod) { f.left = Observations{NodefsAvailable: {500, 1000}} },
			},
			Config{Thresholds: []Threshold{disk}, Transition: time.Hour, Layout: ImagesApart},
			[]string{
				"0 []", "0 [DiskPressure]", "0 EvictionThresholdMet: Attempting to reclaim ephemeral-storage",
				"0 evict b in 1s: The node was low on resource: ephemeral-storage",
			},
		},
		{
			"the next one if one is gone",
			fake{left: Observations{MemoryAvailable: {50, 1000}}, freesPod: freesMemory, refuse: "a", pods: []Pod{pod("a", memory(500)), pod("b", memory(400))}},
			Config{Thresholds: []Threshold{hard}, Transition: time.Hour},
			[]string{
				"0 []", "0 [MemoryPressure]", "0 EvictionThresholdMet: Attempting to reclaim memory",
				"1 EvictionThresholdMet: Attempting to reclaim memory", "1 evict b in 1s: The node was low on resource: memory",
			},
		},
		{
			"nobody else if what hangs has given back enough meanwhile",
			fake{
				left: Observations{MemoryAvailable: {50, 1000}}, later: Observations{MemoryAvailable: {900, 1000}}, hangs: "a",
				pods: []Pod{pod("a", memory(500)), pod("b", memory(400))},
			},
			Config{Thresholds: []Threshold{hard}, Transition: time.Hour},
			[]string{"0 []", "0 [MemoryPressure]", "0 EvictionThresholdMet: Attempting to reclaim memory", "31 " + late},
		},
		{
			"and if one hangs",
			fake{left: Observations{MemoryAvailable: {50, 1000}}, freesPod: freesMemory, hangs: "a", pods: []Pod{pod("a", memory(500)), pod("b", memory(400))}},
			Config{Thresholds: []Threshold{hard}, Transition: time.Hour},
			[]string{"0 []", "0 [MemoryPressure]", "0 EvictionThresholdMet: Attempting to reclaim memory", "31 " + late, "32 EvictionThresholdMet: Attempting to reclaim memory", "32 evict b in 1s: The node was low on resource: memory"},
		},
		{
			"a pod beyond its own limit, though nothing is short",
			fake{left: Observations{NodefsAvailable: {900, 1000}}, pods: []Pod{
				pod("a", limited("ephemeral-storage", "10"), layer(20)), pod("critical", static, limited("ephemeral-storage", "10"), layer(20)),
			}},
			Config{Thresholds: []Threshold{disk}},
			[]string{"0 []", "0 evict a in 1s: Pod ephemeral local storage usage exceeds the total limit of containers 10"},
		},
		{
			"what cannot be observed evicts nobody",
			fake{left: Observations{}, blind: errors.New("no such file"), pods: []Pod{pod("a", memory(500))}},
			Config{Thresholds: []Threshold{hard, disk}},
			[]string{"0 []", "0 EvictionBlind: No pod is evicted for what cannot be measured; see to it before the node runs short: no such file"},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := tt.fake
			runs(t, &f, tt.cfg, 38*time.Second)
			expect(t, tt.name, &f, tt.want...)
		})
	}
}

// TestReclaiming tells what is done about each signal, and what somebody can do.
func TestReclaiming(t *testing.T) {
	for _, tt := range []struct {
		signal Signal
		layout Layout
		want   string
	}{
		{MemoryAvailable, OneDisk, "Attempting to reclaim memory: pods are evicted, until memory.available is above its threshold again. See what uses it"},
		{NodefsAvailable, OneDisk, "Attempting to reclaim ephemeral-storage: ended containers and unused images go first, and if that is not enough pods are evicted"},
		{NodefsInodesFree, OnlyImagesApart, "Attempting to reclaim inodes: ended containers go first, and if"},
		{ImagefsAvailable, OnlyImagesApart, "Attempting to reclaim ephemeral-storage: unused images go first, and if"},
		{PIDAvailable, OneDisk, "Attempting to reclaim pids: pods are evicted, until pid.available is"},
	} {
		if got := reclaiming(tt.signal, tt.layout); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// The next look does not wait for its time if somebody wakes it.
func TestWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{left: Observations{PIDAvailable: {500, 1000}}, later: Observations{PIDAvailable: {5, 1000}}}
		wake := make(chan struct{})
		go func() {
			time.Sleep(3 * time.Second)
			wake <- struct{}{}
		}()
		runs(t, f, Config{Thresholds: []Threshold{{Signal: PIDAvailable, Value: amount(10)}}, Wake: wake, Transition: time.Hour}, 8*time.Second)
		expect(t, "woken", f, "0 []", "3 [PIDPressure]", "3 EvictionThresholdMet: Attempting to reclaim pids",
			"3 NoPodToEvict: The node is low on pids, and no pod is left that may be evicted: critical ones stay, and others are ending already. See what else of the node uses it, or lower the threshold pid.available")
	})
}

func TestAdmit(t *testing.T) {
	tolerant := func(p *Pod) {
		p.Pod.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/memory-pressure", Operator: corev1.TolerationOpExists}}
	}
	memoryOnly := []corev1.NodeConditionType{corev1.NodeMemoryPressure}
	both := []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure}
	for _, tt := range []struct {
		name string
		has  []corev1.NodeConditionType
		pod  Pod
		want string
	}{
		{"no pressure", nil, pod("p"), ""},
		{"best effort", memoryOnly, pod("p"), "Evicted: The node had condition: [MemoryPressure]. "},
		{"best effort that tolerates it", memoryOnly, pod("p", tolerant), ""},
		{"burstable", memoryOnly, pod("p", asks("memory", "1Mi")), ""},
		{"critical", both, pod("p", static), ""},
		{"burstable without disk", both, pod("p", asks("memory", "1Mi")), "Evicted: The node had condition: [MemoryPressure DiskPressure]. "},
	} {
		m := New(Config{Log: slog.New(slog.DiscardHandler)}, &fake{start: time.Now()})
		m.set(tt.has)
		err := m.Admit(tt.pod.Pod)
		if (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A pod that takes the place of one that was evicted has its UID on one machine, and is told
// to end all the same.
func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{pods: []Pod{pod("a", limited("ephemeral-storage", "10"), layer(20))}}
		f.freesPod = func(f *fake, p Pod) {
			p.Pod = p.Pod.DeepCopy()
			p.Pod.Status.StartTime = &metav1.Time{Time: time.Now()}
			f.pods = append(f.pods, p)
		}
		runs(t, f, Config{}, 1500*time.Millisecond)
		expect(t, "replaced", f, "0 []", "0 evict a in 1s: Pod ephemeral local storage usage exceeds the total limit of containers 10",
			"1 evict a in 1s: Pod ephemeral local storage usage exceeds the total limit of containers 10")
	})
}

// What cannot be measured for long is told again before the event is forgotten.
func TestBlindForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake{left: Observations{}, blind: errors.New("no such file")}
		runs(t, &f, Config{Transition: time.Hour}, 59*time.Minute)
		const said = "EvictionBlind: No pod is evicted for what cannot be measured; see to it before the node runs short: no such file"
		expect(t, "blind", &f, "0 []", "0 "+said, "1800 "+said)
	})
}
