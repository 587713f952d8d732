package workload

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/manifest"
)

// workload decodes an object, whose spec is given with two spaces in front.
func workload(t *testing.T, version, kind, spec string) *manifest.Workload {
	t.Helper()
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: w}\nspec:\n%s", version, kind, spec)
	f, err := manifest.DecodeFile(manifest.Source{Name: "w.yaml", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	o, _ := manifest.Merge([]*manifest.File{f})
	return o.Workloads[0]
}

func jobOf(t *testing.T, spec string) *manifest.Workload {
	t.Helper()
	return workload(t, "batch/v1", "Job", spec+"  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}\n")
}

func cronOf(t *testing.T, spec string) *manifest.Workload {
	t.Helper()
	return workload(t, "batch/v1", "CronJob", spec+"  jobTemplate: {spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}\n")
}

var start = time.Date(2026, 5, 5, 12, 0, 0, 0, time.UTC)

// world is a machine whose clock goes from one thing that happens to the next.
type world struct {
	t      *testing.T
	w      *manifest.Workload
	now    time.Time
	record Record
	pods   map[string]*simulated
	runs   func(pod string, n int) (time.Duration, corev1.PodPhase) // of the nth pod made
	made   []string                                                 // when, and which
	most   int                                                      // pods at once
	last   Decision
	told   []Event
}

type simulated struct {
	Seen
	until time.Time
	then  corev1.PodPhase
}

func newWorld(t *testing.T, w *manifest.Workload, runs func(string, int) (time.Duration, corev1.PodPhase)) *world {
	return &world{t: t, w: w, now: start, pods: map[string]*simulated{}, runs: runs}
}

// forever is longer than any test.
const forever = 1000 * time.Hour

func always(d time.Duration, phase corev1.PodPhase) func(string, int) (time.Duration, corev1.PodPhase) {
	return func(string, int) (time.Duration, corev1.PodPhase) { return d, phase }
}

// decide asks what is wanted, twice, with a record that was stored and read, and
// does it.
func (w *world) decide() {
	w.t.Helper()
	var seen []Seen
	for _, p := range w.pods {
		seen = append(seen, p.Seen)
	}
	before, _ := json.Marshal(w.record)
	d := Next(w.w, w.record, Known(seen), w.now)
	if after, _ := json.Marshal(w.record); string(after) != string(before) {
		w.t.Errorf("the record was changed in place: %s, %s", before, after)
	}
	text, err := json.Marshal(d.Record)
	if err != nil {
		w.t.Fatal(err)
	}
	var stored Record
	if err := json.Unmarshal(text, &stored); err != nil {
		w.t.Fatal(err)
	}
	again := Next(w.w, stored, Known(seen), w.now)
	if names(again.Want) != names(d.Want) || names(again.Keep) != names(d.Keep) || again.Status != d.Status {
		w.t.Errorf("asked again: %s, %s, %+v, and before %s, %s, %+v", names(again.Want), names(again.Keep), again.Status, names(d.Want), names(d.Keep), d.Status)
	}
	w.told = append(w.told, News(w.w, w.record, stored)...)
	w.record, w.last = stored, d
	w.act()
}

func (w *world) act() {
	w.t.Helper()
	there := map[string]bool{}
	active := 0
	for _, p := range w.last.Want {
		there[p.Name] = true
		active++
		if old := w.pods[p.Name]; old != nil {
			if old.ended() {
				w.t.Errorf("%s has ended and is wanted", p.Name)
			}
			continue
		}
		run, phase := w.runs(p.Name, len(w.made))
		w.made = append(w.made, fmt.Sprintf("%s+%s", p.Name, w.now.Sub(start)))
		w.pods[p.Name] = &simulated{Seen: Seen{Namespace: p.Namespace, Name: p.Name, Phase: corev1.PodRunning, Ready: true}, until: w.now.Add(run), then: phase}
	}
	for _, p := range w.last.Keep {
		there[p.Name] = true
		if old := w.pods[p.Name]; old == nil || !old.ended() {
			w.t.Errorf("%s is to be kept, and has not ended", p.Name)
		}
	}
	for name := range w.pods {
		if !there[name] {
			delete(w.pods, name)
		}
	}
	w.most = max(w.most, active)
}

// until lets time go by.
func (w *world) until(end time.Time) {
	w.t.Helper()
	w.decide()
	for range 10_000 {
		next := end
		if a := w.last.Again; !a.IsZero() {
			if !a.After(w.now) {
				w.t.Fatalf("at %s it asks to be asked again at %s", w.now, a)
			}
			next = earlier(next, a)
		}
		for _, p := range w.pods {
			if !p.ended() {
				next = earlier(next, p.until)
			}
		}
		if !next.Before(end) {
			w.now = end
			w.decide()
			return
		}
		w.now = next
		for _, p := range w.pods {
			if !p.ended() && !p.until.After(w.now) {
				p.Phase, p.Ready, p.Ended = p.then, false, w.now
			}
		}
		w.decide()
	}
	w.t.Fatal("it does not come to an end")
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// reboot forgets all pods.
func (w *world) reboot() { clear(w.pods) }

func names(pods []*manifest.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

// slots are the slots of pods by when they were made: "0+0s".
func (w *world) slots() string {
	var out []string
	for _, m := range w.made {
		rest := strings.TrimPrefix(m, "w-")
		slot, _, _ := strings.Cut(rest, "-")
		_, at, _ := strings.Cut(rest, "+")
		out = append(out, slot+"+"+at)
	}
	return strings.Join(out, " ")
}

func TestStatefulSet(t *testing.T) {
	const spec = "  replicas: 3\n  selector: {matchLabels: {a: b}}\n  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}\n"
	ordered, parallel := workload(t, "apps/v1", "StatefulSet", spec), workload(t, "apps/v1", "StatefulSet", "  podManagementPolicy: Parallel\n"+spec)
	seen := func(name string, ready bool) Seen { return Seen{Namespace: "default", Name: name, Ready: ready} }
	for _, tt := range []struct {
		w    *manifest.Workload
		pods []Seen
		want string
	}{
		{ordered, nil, "w-0"},
		{ordered, []Seen{seen("w-0", false)}, "w-0"},
		{ordered, []Seen{seen("w-0", true)}, "w-0 w-1"},
		{ordered, []Seen{seen("w-0", true), seen("w-1", true)}, "w-0 w-1 w-2"},
		{ordered, []Seen{seen("w-0", false), seen("w-1", true), seen("w-2", true), seen("w-3", true)}, "w-0 w-1 w-2"}, // what is there stays
		{ordered, []Seen{seen("w-1", true)}, "w-0 w-1"},
		{parallel, nil, "w-0 w-1 w-2"},
	} {
		if d := Next(tt.w, Record{}, Known(tt.pods), start); names(d.Want) != tt.want || !d.Again.IsZero() || d.Status.Wanted != 3 {
			t.Errorf("%v: %s, want %s; %+v", tt.pods, names(d.Want), tt.want, d)
		}
	}
}

// TestPlan has several workloads, and one that is gone.
func TestPlan(t *testing.T) {
	job, cron := jobOf(t, ""), cronOf(t, "  schedule: '@hourly'\n  timeZone: UTC\n")
	job.From, cron.From = "file", "http"
	all := Plan(Input{Workloads: []*manifest.Workload{job, cron}, Now: start})
	if len(all.Want) != 1 || all.Want[0].Owner != "w" || all.Want[0].OwnerKind != "Job" || all.Want[0].Origin != job.Origin || all.Want[0].From != "file" {
		t.Errorf("%+v", all.Want)
	}
	if !all.Again.Equal(start.Add(time.Hour)) || len(all.Records) != 2 || all.Statuses["CronJob default/w"].Next.IsZero() {
		t.Errorf("%+v", all)
	}
	unread := Plan(Input{Workloads: []*manifest.Workload{job}, Unread: []string{"http"}, Records: all.Records, Now: start})
	if unread.Records["CronJob default/w"].Cron == nil {
		t.Error("a record is lost because its source was not read yet")
	}
	if gone := Plan(Input{Workloads: []*manifest.Workload{job}, Records: all.Records, Now: start}); len(gone.Records) != 1 {
		t.Errorf("%+v", gone.Records)
	}
}

func TestNumbers(t *testing.T) {
	for text, in := range map[string][]int{
		"": nil, "0": {0}, "0-2": {2, 0, 1}, "0-1,3": {0, 3, 1, 3}, "1,3,5": {5, 1, 3}, "0-9": {0, 2, 4, 6, 8, 9, 7, 5, 3, 1},
	} {
		var s Numbers
		for _, n := range in {
			s = s.With(n)
		}
		got, _ := s.MarshalText()
		if string(got) != text {
			t.Errorf("%v: %s, want %s", in, got, text)
		}
		var back Numbers
		if err := back.UnmarshalText(got); err != nil || !slices.Equal(back.spans, s.spans) {
			t.Errorf("%s: %v, %v", got, back, err)
		}
		for n := range 11 {
			if s.Has(n) != slices.Contains(in, n) {
				t.Errorf("%s has %d: %t", text, n, s.Has(n))
			}
		}
	}
	for _, text := range []string{"a", "3-1", "1,1", "1-2,3", "-1", "1,", "5,1", "99999999999"} {
		var s Numbers
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was taken for %v", text, s)
		}
	}
}
