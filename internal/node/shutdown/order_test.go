package shutdown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

type edit func(*corev1.Pod)

func pod(name string, edits ...edit) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.UID = name, types.UID(name)
	for _, e := range edits {
		e(p)
	}
	return p
}

func important(n int32) edit { return func(p *corev1.Pod) { p.Spec.Priority = &n } }

func grace(n int64) edit {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &n }
}

func static(p *corev1.Pod) {
	p.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
}

func TestLevels(t *testing.T) {
	for _, tt := range []struct {
		name     string
		settings Settings
		want     string
		err      string
	}{
		{"off", Settings{}, "[]", ""},
		{"two periods", Settings{Period: 30 * time.Second, Critical: 10 * time.Second}, "[{0 20s} {2000000000 10s}]", ""},
		{"only critical pods", Settings{Period: 10 * time.Second, Critical: 10 * time.Second}, "[{0 0s} {2000000000 10s}]", ""},
		{"by priority", Settings{ByPriority: []Level{{1000, 5 * time.Second}, {-1, time.Second}, {0, 10 * time.Second}}}, "[{-1 1s} {0 10s} {1000 5s}]", ""},
		{"by priority, and no time", Settings{ByPriority: []Level{{0, 0}}}, "[]", ""},
		{"more for critical pods than there is", Settings{Period: time.Second, Critical: time.Minute}, "[]", "shutdown period of 1m0s for critical pods is a part of the whole 1s"},
		{"critical pods alone", Settings{Critical: time.Minute}, "[]", "is a part of the whole 0s"},
		{"negative", Settings{Period: -time.Second}, "[]", "a time is not negative"},
		{"both", Settings{Period: time.Minute, ByPriority: []Level{{0, time.Second}}}, "[]", "set one of both"},
		{"twice", Settings{ByPriority: []Level{{5, time.Second}, {0, 1}, {5, 2}}}, "[]", "for priority 5 is set twice"},
		{"negative by priority", Settings{ByPriority: []Level{{5, -time.Second}}}, "[]", "for priority 5: a time is not negative"},
	} {
		got, err := tt.settings.Levels()
		if fmt.Sprint(got) != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
}

func TestOrder(t *testing.T) {
	two := []Level{{0, 20 * time.Second}, {2_000_000_000, 10 * time.Second}}
	three := []Level{{-10, time.Second}, {0, 60 * time.Second}, {100, 5 * time.Second}}
	for _, tt := range []struct {
		name   string
		levels []Level
		pods   []*corev1.Pod
		want   string
	}{
		{"nobody", two, nil, ""},
		{
			"the others, then critical ones", two,
			[]*corev1.Pod{pod("b", grace(5)), pod("system", important(2_000_001_000), grace(60)), pod("a", grace(60)), pod("file", static, grace(1))},
			"0: a 20s, b 5s; 2000000000: file 1s, system 10s",
		},
		{"a level without pods is none", two, []*corev1.Pod{pod("system", important(2_000_000_000))}, "2000000000: system 10s"},
		{
			"by priority", three,
			[]*corev1.Pod{pod("least", important(-50)), pod("low", important(-1)), pod("zero"), pod("middle", important(99)), pod("high", important(100), grace(2))},
			"-10: least 1s, low 1s; 0: middle 30s, zero 30s; 100: high 2s",
		},
		{"a critical pod without a level for it", three, []*corev1.Pod{pod("file", static)}, "100: file 5s"},
		{"a static pod has the priority that was set", three, []*corev1.Pod{pod("file", static, important(0))}, "0: file 30s"},
	} {
		var groups []string
		for _, g := range Order(tt.pods, tt.levels) {
			var pods []string
			for _, e := range g.Pods {
				pods = append(pods, e.Pod.Name+" "+e.Grace.String())
			}
			groups = append(groups, fmt.Sprintf("%d: %s", g.Priority, strings.Join(pods, ", ")))
		}
		if got := strings.Join(groups, "; "); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// fake is a node whose pods take as long as an annotation says.
type fake struct {
	start time.Time
	pods  []*corev1.Pod

	mu   sync.Mutex
	log  []string
	told chan string // of what is in the log; nil if nobody asks
}

func (f *fake) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	f.mu.Lock()
	f.log = append(f.log, fmt.Sprintf("%d %s", int(time.Since(f.start).Seconds()), text))
	f.mu.Unlock()
	if f.told != nil {
		f.told <- text
	}
}

func takes(d time.Duration) edit {
	return func(p *corev1.Pod) { p.Labels = map[string]string{"takes": d.String()} }
}

func (f *fake) Running() []*corev1.Pod { return f.pods }

func (f *fake) ShuttingDown(now bool) { f.note("shutting down: %t", now) }

func (f *fake) Event(reason, message string) { f.note("%s: %s", reason, message) }

func (f *fake) End(ctx context.Context, e Ending) error {
	d, err := time.ParseDuration(e.Pod.Labels["takes"])
	if err != nil {
		return err
	}
	if d == 0 {
		f.note("%s ended", e.Pod.Name)
		return nil
	}
	select {
	case <-ctx.Done():
		f.note("%s given up", e.Pod.Name)
		return errors.New("it hangs")
	case <-time.After(d):
		f.note("%s ended", e.Pod.Name)
		return nil
	}
}

func TestEnd(t *testing.T) {
	levels := []Level{{0, 20 * time.Second}, {100, 10 * time.Second}, {200, 5 * time.Second}}
	for _, tt := range []struct {
		name string
		off  time.Duration // when it is called off
		pods []*corev1.Pod
		want []string
	}{
		{
			"a group waits for the one before, and no longer", time.Hour,
			[]*corev1.Pod{pod("a", takes(3*time.Second)), pod("b", takes(7*time.Second)), pod("c", important(100), takes(2*time.Second)), pod("d", important(200), takes(time.Second))},
			[]string{"3 a ended", "7 b ended", "9 c ended", "10 d ended"},
		},
		{
			"a pod that hangs costs its period, and is given up at the end", time.Hour,
			[]*corev1.Pod{pod("hangs", takes(time.Hour)), pod("c", important(100), takes(2*time.Second)), pod("late", important(200), takes(6*time.Second))},
			[]string{
				"20 ShutdownIncomplete: Not all pods from priority 0 on have ended within 20s; give them longer by --shutdown-grace-period: /hangs", "22 c ended",
				"27 ShutdownIncomplete: Not all pods from priority 200 on have ended within 5s; give them longer by --shutdown-grace-period: /late",
				"27 hangs given up", "27 late given up",
			},
		},
		{
			"called off", 5 * time.Second,
			[]*corev1.Pod{pod("a", takes(3*time.Second)), pod("b", takes(7*time.Second)), pod("c", important(100), takes(2*time.Second))},
			[]string{"3 a ended", "5 b given up"},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{start: time.Now(), pods: tt.pods}
			ctx, cancel := context.WithTimeout(t.Context(), tt.off)
			defer cancel()
			New(Config{Levels: levels, Log: slog.New(slog.DiscardHandler)}, f).end(ctx)
			slices.Sort(f.log) // what is of one moment has no order
			slices.Sort(tt.want)
			if fmt.Sprint(f.log) != fmt.Sprint(tt.want) {
				t.Errorf("%s: %q, want %q", tt.name, f.log, tt.want)
			}
		})
	}
}

// Switched off, it needs no bus.
func TestOff(t *testing.T) {
	f := &fake{}
	m := New(Config{Bus: "unix:path=/nonexistent"}, f)
	if err := m.Run(t.Context()); err != nil || len(f.log) > 0 {
		t.Errorf("%v, %q", err, f.log)
	}
	if err := m.Admit(pod("p")); err != nil {
		t.Error(err)
	}
}

// That nobody announces a shutdown is told again before the event is forgotten.
func TestUnannouncedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{start: time.Now()}
		ctx, cancel := context.WithTimeout(t.Context(), 59*time.Minute)
		defer cancel()
		m := New(Config{Levels: []Level{{0, time.Second}}, Bus: "unix:path=/nonexistent", Log: slog.New(slog.DiscardHandler)}, f)
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
		if len(f.log) != 2 || !strings.HasPrefix(f.log[0], "0 ShutdownUnannounced") || !strings.HasPrefix(f.log[1], "1800 ShutdownUnannounced") {
			t.Errorf("%q", f.log)
		}
	})
}

// An event has no room for all names of a full node.
func TestNamed(t *testing.T) {
	var pods []Ending
	for i := range 14 {
		pods = append(pods, Ending{Pod: pod(fmt.Sprintf("p%02d", i))})
	}
	over := make([]atomic.Bool, len(pods))
	over[0].Store(true)
	if got, want := named(pods, over), "/p01, /p02, /p03, /p04, /p05, /p06, /p07, /p08, /p09, /p10, and 3 more"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What keeps logind from waiting for longer is in the event.
func TestTooShort(t *testing.T) {
	for _, tt := range []struct {
		has  time.Duration
		err  error
		want string
	}{
		{5 * time.Second, nil, "logind waits 5s at a shutdown, and pods may take 30s; set InhibitDelayMaxSec in its configuration"},
		{5 * time.Second, errors.New("it is refused"), "logind waits 5s at a shutdown, and pods may take 30s; set InhibitDelayMaxSec in its configuration, as the node could not: it is refused"},
		{0, errors.New("no answer"), "logind does not say how long it waits at a shutdown, and pods may take 30s; set InhibitDelayMaxSec in its configuration, as the node could not: no answer"},
	} {
		if got := tooShort(tt.has, 30*time.Second, tt.err); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}
