package runtime

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// lab is a kind of handler whose trials the test decides.
type lab struct {
	mu     sync.Mutex
	broken map[string]string // by handler: why it does not work
	print  map[string]string
	unsure bool         // trials leave features untried
	time   atomic.Int64 // that the last trial had, in ns
	trials atomic.Int32
	block  chan struct{} // trials wait for it
}

type driver struct {
	name string
	info func() pod.HandlerInfo
	def  Definition
}

func newLab() *lab { return &lab{broken: map[string]string{}, print: map[string]string{}} }

// change makes the next trial of a handler end differently.
func (l *lab) change(name, broken, print string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken[name], l.print[name] = broken, print
}

func (l *lab) kinds() map[string]Kind[driver] {
	return map[string]Kind[driver]{KindOCI: {
		Probe: func(ctx context.Context, d Definition) pod.HandlerInfo {
			l.trials.Add(1)
			if end, ok := ctx.Deadline(); ok {
				l.time.Store(int64(time.Until(end)))
			}
			if l.block != nil {
				select {
				case <-l.block:
				case <-ctx.Done():
					return pod.HandlerInfo{Reason: "it hangs"}
				}
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			why := l.broken[d.Name]
			return pod.HandlerInfo{Ready: why == "", Reason: why, Features: pod.HandlerFeatures{Checkpoints: !l.unsure, Unsure: l.unsure}}
		},
		Fingerprint: func(d Definition) string {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.print[d.Name]
		},
		Open: func(d Definition, info func() pod.HandlerInfo) driver { return driver{d.Name, info, d} },
	}}
}

func (l *lab) registry(t *testing.T, cfg Config) *Registry[driver] {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	if cfg.Search == nil {
		cfg.Search = []string{t.TempDir()}
	}
	r, err := New(cfg, l.kinds())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func configured(names ...string) map[string]v1alpha1.Handler {
	m := map[string]v1alpha1.Handler{}
	for _, n := range names {
		m[n] = v1alpha1.Handler{}
	}
	return m
}

// program makes an executable file.
func program(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestDefault(t *testing.T) {
	tests := map[string]struct {
		handlers []string
		standard string
		broken   map[string]string
		want     string // handler, or words of the error
	}{
		"crun before runc":             {handlers: []string{"runc", "crun", "a"}, want: "crun"},
		"runc where crun fails":        {handlers: []string{"runc", "crun", "a"}, broken: map[string]string{"crun": "x"}, want: "runc"},
		"else the first":               {handlers: []string{"b", "a"}, want: "a"},
		"else the first that works":    {handlers: []string{"b", "a"}, broken: map[string]string{"a": "x"}, want: "b"},
		"the configured one":           {handlers: []string{"crun", "a"}, standard: "a", want: "a"},
		"no other than the configured": {handlers: []string{"crun", "a"}, standard: "a", broken: map[string]string{"a": "broken so"}, want: `runtime handler "a" does not work here: broken so, since `},
		"none works":                   {handlers: []string{"crun"}, broken: map[string]string{"crun": "broken so"}, want: "none works here (handlers that work: none; crun does not: broken so)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLab()
			for n, why := range test.broken {
				l.change(n, why, "")
			}
			r := l.registry(t, Config{Wanted: Wanted{Handlers: configured(test.handlers...), Default: test.standard}})
			got, err := r.Get("")
			if err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %s", err, test.want)
			}
			if err == nil && got.name != test.want {
				t.Errorf("default is %s, want %s", got.name, test.want)
			}
			for _, i := range r.List() {
				if i.Default != (i.Name == test.want || i.Name == test.standard) {
					t.Errorf("List says of %s that default is %v", i.Name, i.Default)
				}
			}
		})
	}
}

func TestUnknownNamesWhatExists(t *testing.T) {
	l := newLab()
	l.change("runc", "it is broken", "")
	r := l.registry(t, Config{Wanted: Wanted{Handlers: configured("runc", "crun")}})
	_, err := r.Get("crum")
	since := time.Now().UTC().Format("2006-01-02T15")
	want := regexp.MustCompile(`^there is no runtime handler "crum" here, did you mean "crun"\? \(handlers are as they are since ` + since +
		`:\S+; handlers that work: crun; runc does not: it is broken\): not found$`)
	if !errors.Is(err, errdefs.ErrNotFound) || !want.MatchString(err.Error()) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	_, err = r.Get("runc")
	want = regexp.MustCompile(`it is broken, since ` + since + `:\S+ \(handlers that work: crun\)`)
	if !errors.Is(err, errdefs.ErrPrecondition) || !want.MatchString(err.Error()) {
		t.Errorf("got %v", err)
	}
	if d, err := r.Serving("runc", ""); err != nil || d.name != "runc" {
		t.Errorf("the handler of existing pods: %v", err)
	}
	if _, err := r.Serving("gone", ""); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("got %v", err)
	}
}

func TestDiscovery(t *testing.T) {
	dir := t.TempDir()
	l := newLab()
	r := l.registry(t, Config{Wanted: Wanted{Discover: true}, Search: []string{dir}})
	if _, err := r.Get(""); !errors.Is(err, errdefs.ErrNotFound) || !strings.Contains(err.Error(), "neither crun nor runc is in "+dir) {
		t.Errorf("with nothing installed: %v", err)
	}
	if d, err := r.Serving("runc", ""); err != nil || d.name != "runc" {
		t.Errorf("a pod whose runtime was removed: %v", err)
	}
	r = l.registry(t, Config{Wanted: Wanted{Discover: true}, Search: []string{dir}})
	program(t, dir, "runc")
	program(t, dir, "kata")
	if d, err := r.Get(""); err != nil || d.name != "runc" {
		t.Errorf("after runc was installed: %v %v", d.name, err)
	}
	program(t, dir, "crun")
	if d, err := r.Get("crun"); err != nil || d.name != "crun" {
		t.Errorf("after crun was installed: %v", err)
	}
	if n := len(r.List()); n != 2 {
		t.Errorf("there are %d handlers", n)
	}
	if _, err := l.registry(t, Config{Wanted: Wanted{Discover: true, Default: "kata"}, Search: []string{dir}}).Get(""); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("a default that is not discovered: %v", err)
	}
}

func TestTrialsAreRepeatedWhenDue(t *testing.T) {
	l := newLab()
	l.change("crun", "broken", "1")
	r := l.registry(t, Config{Wanted: Wanted{Handlers: configured("crun")}})
	for range 3 {
		if _, err := r.Get("crun"); err == nil {
			t.Fatal("a broken handler was offered")
		}
	}
	if n := l.trials.Load(); n != 1 {
		t.Errorf("%d trials without a cause", n)
	}
	l.change("crun", "", "2") // as if the admin had repaired the host
	d, err := r.Get("crun")
	if err != nil || l.trials.Load() != 2 || !d.info().Ready {
		t.Errorf("after the repair: %v, %d trials", err, l.trials.Load())
	}
	l.change("crun", "broken again", "3")
	if _, err := r.Get("crun"); err == nil || !strings.Contains(err.Error(), "broken again") {
		t.Errorf("after it broke again: %v", err)
	}
	// A cause that the fingerprint does not see.
	l.change("crun", "", "3")
	past := *r.find("crun").last.Load()
	past.at = past.at.Add(-retryFirst)
	r.find("crun").last.Store(&past)
	if _, err := r.Get("crun"); err != nil {
		t.Errorf("after %s: %v", retryFirst, err)
	}
}

// What a busy machine did not let a trial find out is tried again, and pods do not
// wait for it. What worked before still does.
func TestATrialThatIsUnsure(t *testing.T) {
	l := newLab()
	l.unsure = true
	r := l.registry(t, Config{Wanted: Wanted{Handlers: configured("crun")}})
	e := r.find("crun")
	due := func() {
		past := *e.last.Load()
		past.at = past.at.Add(-past.counts)
		e.last.Store(&past)
	}
	info := func() pod.HandlerInfo {
		t.Helper()
		d, err := r.Get("crun")
		if err != nil {
			t.Fatal(err)
		}
		return d.info()
	}
	if i := info(); !i.Features.Unsure || i.Features.Checkpoints || l.trials.Load() != 1 {
		t.Errorf("at first: %+v after %d trials", i, l.trials.Load())
	}
	info()
	if n := l.trials.Load(); n != 1 {
		t.Errorf("%d trials although none is due", n)
	}
	l.change("crun", "it did not end in time", "")
	due()
	e.current(t.Context())
	if got := e.last.Load(); !got.info.Ready || got.counts != 2*retryFirst || l.trials.Load() != 2 {
		t.Errorf("after a trial that took too long: %+v after %d trials", got, l.trials.Load())
	}
	if had := time.Duration(l.time.Load()); had <= r.cfg.ProbeTimeout {
		t.Errorf("it had %s once more", had)
	}
	l.change("crun", "", "")
	l.unsure = false
	due()
	l.block = make(chan struct{})
	if i := info(); !i.Features.Unsure { // and it has not waited
		t.Errorf("while it is tried again: %+v", i)
	}
	close(l.block)
	e.refreshed.await(t.Context())
	if i := info(); i.Features.Unsure || !i.Features.Checkpoints || l.trials.Load() != 3 {
		t.Errorf("at last: %+v after %d trials", i, l.trials.Load())
	}
}

func TestOneTrialForAllWhoWait(t *testing.T) {
	l := newLab()
	l.block = make(chan struct{})
	r := l.registry(t, Config{Wanted: Wanted{Handlers: configured("crun", "runc")}})
	var all, callers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	all.Go(func() { _ = r.Run(ctx) })
	for range 10 {
		callers.Go(func() {
			if _, err := r.Get("crun"); err != nil {
				t.Error(err)
			}
		})
	}
	for l.trials.Load() < 2 { // both at once
		time.Sleep(time.Millisecond)
	}
	begin := time.Now()
	for _, i := range r.List() {
		if i.Ready || !i.Trying || !strings.Contains(i.Reason, "still being tried") {
			t.Errorf("while it is being tried, List says %+v", i)
		}
	}
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("List waited for %s", took)
	}
	close(l.block)
	callers.Wait() // a registry that ends gives its trials up
	cancel()
	all.Wait()
	if n := l.trials.Load(); n != 2 {
		t.Errorf("%d trials of two handlers", n)
	}
}

func TestATrialThatHangs(t *testing.T) {
	l := newLab()
	l.block = make(chan struct{})
	r := l.registry(t, Config{Wanted: Wanted{Handlers: configured("crun")}, ProbeTimeout: 20 * time.Millisecond})
	if _, err := r.Get("crun"); err == nil || !strings.Contains(err.Error(), "it hangs") {
		t.Errorf("got %v", err)
	}
}

func TestConfigurationIsCheckedAndPassedOn(t *testing.T) {
	if _, err := New(Config{Wanted: Wanted{Handlers: map[string]v1alpha1.Handler{"a": {Type: "vm"}}}}, newLab().kinds()); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("an unknown kind: %v", err)
	}
	if _, err := New(Config{Wanted: Wanted{Handlers: configured("a"), Default: "b"}}, newLab().kinds()); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("an unknown default: %v", err)
	}
	h := v1alpha1.Handler{PrivilegedWithoutHostDevices: true, PodAnnotations: []string{"a/*"}, ContainerAnnotations: []string{"b"}}
	r := newLab().registry(t, Config{Wanted: Wanted{Handlers: map[string]v1alpha1.Handler{"a": h}}})
	i := r.List()[0]
	if i.Name != "a" || i.Kind != "oci" || !i.PrivilegedWithoutHostDevices || len(i.PodAnnotations) != 1 || len(i.ContainerAnnotations) != 1 {
		t.Errorf("got %+v", i)
	}
}

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	program(t, dir, "runc")
	if err := os.WriteFile(filepath.Join(dir, "plain"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		d    Definition
		want string
	}{
		"by the handler's name": {Definition{Name: "runc"}, filepath.Join(dir, "runc")},
		"by another name":       {Definition{Name: "native", Handler: v1alpha1.Handler{Path: "runc"}}, filepath.Join(dir, "runc")},
		"by its path":           {Definition{Name: "x", Handler: v1alpha1.Handler{Path: filepath.Join(dir, "runc")}}, filepath.Join(dir, "runc")},
		"absent":                {Definition{Name: "gone"}, "there is no program gone in " + dir},
		"absent path":           {Definition{Name: "x", Handler: v1alpha1.Handler{Path: "/no/x"}}, "there is no program /no/x"},
		"not executable":        {Definition{Name: "x", Handler: v1alpha1.Handler{Path: filepath.Join(dir, "plain")}}, "is not executable"},
		"a directory":           {Definition{Name: "x", Handler: v1alpha1.Handler{Path: dir}}, "is no program"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.d.Search = []string{dir}
			got, err := test.d.Program()
			if err != nil && (!errors.Is(err, errdefs.ErrNotFound) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want %s", err, test.want)
			}
			if err == nil && got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
