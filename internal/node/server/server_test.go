package server

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"fairlead.run/internal/node/logs"
	"fairlead.run/internal/node/server/zpages"
	"fairlead.run/internal/telemetry"
)

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"n1"}}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

const stamp = "2026-01-02T03:04:05.6Z "

// appendLog adds to a log file.
func appendLog(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// withLogs gives the containers of webPod logs in a folder.
func withLogs(t *testing.T) (dir string, change func(*Config, *fakeRuntime)) {
	dir = t.TempDir()
	return dir, func(_ *Config, f *fakeRuntime) {
		for _, id := range []string{"up-0", "up-1", "new-0", "done-0", "crashing-3", "init-0", "debugger-0"} {
			f.logs[id] = filepath.Join(dir, id)
			appendLog(t, f.logs[id], stamp+"stdout F "+id+"\n")
		}
		f.logs["silent-0"] = ""
	}
}

func TestLogsOfContainers(t *testing.T) {
	_, change := withLogs(t)
	n := serveNode(t, change)
	for _, tt := range []struct {
		path string
		code int
		want string
	}{
		{"up", 200, "up-1\n"},
		{"up?previous=true", 200, "up-0\n"},
		{"init", 200, "init-0\n"},
		{"debugger", 200, "debugger-0\n"},
		{"done", 200, "done-0\n"},
		{"crashing", 200, "crashing-3\n"},
		{"crashing?previous=1", 200, "crashing-3\n"},
		{"new?previous=true", 400, "previous terminated container \"new\" in pod \"web\" not found\n"},
		{"never", 400, "container \"never\" in pod \"web\" is terminated\n"},
		{"pulling", 400, "container \"pulling\" in pod \"web\" is waiting to start: trying and failing to pull image\n"},
		{"unpullable", 400, "container \"unpullable\" in pod \"web\" is waiting to start: image can't be pulled\n"},
		{"creating", 400, "container \"creating\" in pod \"web\" is waiting to start: ContainerCreating\n"},
		{"unseen", 400, "container \"unseen\" in pod \"web\" is not available\n"},
		{"nobody", 404, "container \"nobody\" not found in pod \"web\"\n"},
		{"removed", 404, "the log of container \"removed\" in pod \"web\" is gone: the runtime has removed container removed-0\n"},
		{"silent", 400, "container \"silent\" in pod \"web\" keeps no log\n"},
		{"up?tailLines=x", 400, "tailLines is \"x\", which is no whole number\n"},
		{"up?tail=x&tailLines=1", 400, "tail is \"x\", which is no whole number\n"},
		{"up?tailLines=-1", 422, "tailLines is -1; it must be 0 or more\n"},
		{"up?limitBytes=0", 422, "limitBytes is 0; it must be 1 or more\n"},
		{"up?sinceTime=yesterday", 400, "sinceTime is \"yesterday\", which is no time in the form of RFC 3339\n"},
		{"up?sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", 422, "at most one of sinceTime or sinceSeconds may be specified\n"},
		{"up?stream=stdout", 422, "stream is \"stdout\"; it must be All, Stdout or Stderr\n"},
	} {
		if code, got := n.get(t, "GET", "/containerLogs/default/web/"+tt.path); code != tt.code || got != tt.want {
			t.Errorf("%s: %d %q, want %d %q", tt.path, code, got, tt.code, tt.want)
		}
	}
	if code, got := n.get(t, "GET", "/containerLogs/default/gone/up"); code != 404 || !strings.Contains(got, "pod does not exist") {
		t.Errorf("%d %q", code, got)
	}
}

func TestLogOptions(t *testing.T) {
	dir, change := withLogs(t)
	n := serveNode(t, change)
	path := filepath.Join(dir, "up-1")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Format(time.RFC3339Nano)
	appendLog(t, path, stamp+"stdout F one\n"+stamp+"stderr F two\n"+stamp+"stdout P thr\n"+stamp+"stdout F ee\n"+now+" stdout F four\n")
	const at = "2026-01-02T03:04:05.600000000Z "
	for query, want := range map[string]string{
		"":                                 "one\ntwo\nthree\nfour\n",
		"tailLines=2":                      "three\nfour\n",
		"tailLines=0":                      "",
		"tail=1&tailLines=2":               "four\n",
		"tail=all&tailLines=2":             "one\ntwo\nthree\nfour\n",
		"limitBytes=6":                     "one\ntw",
		"limitBytes=4":                     "one\n",
		"limitBytes=1000":                  "one\ntwo\nthree\nfour\n",
		"timestamps=true&limitBytes=34":    at + "one",
		"stream=Stderr&timestamps=1":       at + "two\n",
		"stream=Stdout":                    "one\nthree\nfour\n",
		"stream=All":                       "one\ntwo\nthree\nfour\n",
		"stream=Stdout&tailLines=3":        "one\nthree\nfour\n",
		"stream=Stderr&tailLines=1":        "two\n",
		"sinceSeconds=3600":                "four\n",
		"sinceTime=2026-01-02T03:04:05.5Z": "one\ntwo\nthree\nfour\n",
		"sinceTime=2026-01-02T03:04:06Z":   "four\n",
		"follow=false":                     "one\ntwo\nthree\nfour\n",
	} {
		if code, got := n.get(t, "GET", "/containerLogs/default/web/up?"+query); code != 200 || got != want {
			t.Errorf("%s: %d %q, want %q", query, code, got, want)
		}
	}
}

// What was rotated away is in the log as long as it is kept.
func TestLogsThatWereRotated(t *testing.T) {
	dir, change := withLogs(t)
	n := serveNode(t, change)
	appendLog(t, filepath.Join(dir, "up-1.20260102-030405"), stamp+"stdout F before\n"+stamp+"stdout F last before\n")
	for query, want := range map[string]string{"": "before\nlast before\nup-1\n", "tailLines=2": "last before\nup-1\n", "tailLines=1": "up-1\n", "limitBytes=3": "bef"} {
		if code, got := n.get(t, "GET", "/containerLogs/default/web/up?"+query); code != 200 || got != want {
			t.Errorf("%s: %d %q, want %q", query, code, got, want)
		}
	}
}

// A line so long that it comes in two has one time and one end.
func TestTimeOfLongLines(t *testing.T) {
	var b strings.Builder
	l := &logWriter{to: bufio.NewWriter(&b), options: logOptions{timestamps: true, limit: -1}, cut: map[string]bool{}}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, line := range []logs.Line{
		{Time: at, Stream: "stdout", Text: []byte("a"), Partial: true},
		{Time: at, Stream: "stdout", Text: []byte("b")},
		{Stream: "stderr", Text: []byte("broken")},
	} {
		if err := l.line(line); err != nil {
			t.Fatal(err)
		}
	}
	_ = l.to.Flush()
	if want := "2026-01-02T03:04:05.000000000Z ab\nbroken\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

// ender tells of ends at once.
type ender struct {
	fakeNode
	end chan struct{}
}

func (e ender) Ended(context.Context, string) <-chan struct{} { return e.end }

// TestFollow reads a log while it grows, is rotated and ends.
func TestFollow(t *testing.T) {
	for _, told := range []bool{true, false} {
		t.Run(fmt.Sprint("told ", told), func(t *testing.T) {
			dir, change := withLogs(t)
			end := make(chan struct{})
			n := serveNode(t, func(c *Config, f *fakeRuntime) {
				change(c, f)
				if told {
					c.Node = ender{fakeNode{webPod()}, end}
				}
			})
			resp, err := http.Get(n.url + "/containerLogs/default/web/up?follow=true")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			lines := bufio.NewScanner(resp.Body)
			expect := func(want string) {
				t.Helper()
				if !lines.Scan() || lines.Text() != want {
					t.Fatalf("got %q, %v, want %q", lines.Text(), lines.Err(), want)
				}
			}
			path := filepath.Join(dir, "up-1")
			expect("up-1")
			appendLog(t, path, stamp+"stdout F second\n")
			expect("second")
			if err := os.Rename(path, path+".old"); err != nil {
				t.Fatal(err)
			}
			appendLog(t, path+".old", stamp+"stdout F last of the old file\n")
			appendLog(t, path, stamp+"stdout F first of the new file\n")
			expect("last of the old file")
			expect("first of the new file")
			appendLog(t, path, stamp+"stderr F bye\n")
			n.runtime.end("up-1")
			close(end)
			expect("bye")
			if lines.Scan() {
				t.Errorf("and then %q", lines.Text())
			}
		})
	}
}

// What has ended is not followed, whatever the request says.
func TestFollowOfWhatHasEnded(t *testing.T) {
	_, change := withLogs(t)
	n := serveNode(t, change)
	n.runtime.end("done-0")
	if code, got := n.get(t, "GET", "/containerLogs/default/web/done?follow=true"); code != 200 || got != "done-0\n" {
		t.Errorf("%d %q", code, got)
	}
}

func TestPods(t *testing.T) {
	n := serveNode(t, nil)
	code, text := n.get(t, "GET", "/pods")
	var all corev1.PodList
	if err := json.Unmarshal([]byte(text), &all); err != nil || code != 200 || all.Kind != "PodList" || all.APIVersion != "v1" || len(all.Items) != 1 || all.Items[0].UID != "u1" {
		t.Errorf("%d %v %.200s", code, err, text)
	}
	code, text = n.get(t, "GET", "/runningpods/")
	all = corev1.PodList{}
	if err := json.Unmarshal([]byte(text), &all); err != nil || code != 200 || len(all.Items) != 3 {
		t.Fatalf("%d %v %s", code, err, text)
	}
	if p := all.Items[0]; p.Name != "other" || p.UID != "u2" || len(p.Spec.Containers) != 0 {
		t.Errorf("%+v", p)
	}
	if c := append(all.Items[1].Spec.Containers, all.Items[2].Spec.Containers...); len(c) != 1 || c[0].Name != "up" || c[0].Image != "web:1" {
		t.Errorf("%+v", c)
	}
}

func TestNoPodsIsAnEmptyList(t *testing.T) {
	n := serveNode(t, func(c *Config, _ *fakeRuntime) { c.Node = fakeNode{} })
	if _, text := n.get(t, "GET", "/pods"); !strings.Contains(text, `"items":[]`) {
		t.Error(text)
	}
}

func TestHealth(t *testing.T) {
	var fault error
	n := serveNode(t, func(c *Config, _ *fakeRuntime) {
		c.Health = []Check{{Name: "syncloop", Check: func(context.Context) error { return fault }}}
	})
	check := func(path string, code int, want string) {
		t.Helper()
		if c, got := n.get(t, "GET", path); c != code || got != want {
			t.Errorf("%s: %d %q, want %d %q", path, c, got, code, want)
		}
		w := httptest.NewRecorder()
		n.Healthz().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != code || w.Body.String() != want {
			t.Errorf("apart, %s: %d %q", path, w.Code, w.Body)
		}
	}
	check("/healthz", 200, "ok")
	check("/healthz/ping", 200, "ok")
	check("/healthz?verbose", 200, "[+]ping ok\n[+]syncloop ok\nhealthz check passed\n")
	check("/healthz/nothing", 404, "there is no check of health \"nothing\"\n")
	fault = errors.New("a secret reason")
	check("/healthz", 500, "[+]ping ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n")
	check("/healthz/syncloop", 500, "[-]syncloop failed: reason withheld\nhealthz check failed\n")
	check("/healthz/ping", 200, "ok")
	check("/healthz?exclude=syncloop", 200, "ok")
	var slis strings.Builder
	if err := n.slis.write(nil, &slis); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`kubernetes_healthcheck{name="ping",type="healthz"} 1`, `kubernetes_healthcheck{name="syncloop",type="healthz"} 0`,
		`kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 12`, `kubernetes_healthchecks_total{name="syncloop",status="success",type="healthz"} 4`,
		`kubernetes_healthchecks_total{name="syncloop",status="error",type="healthz"} 4`,
	} {
		if !strings.Contains(slis.String(), line+"\n") {
			t.Errorf("no %s in\n%s", line, slis.String())
		}
	}
	w := httptest.NewRecorder()
	if n.Healthz().ServeHTTP(w, httptest.NewRequest("GET", "/pods", nil)); w.Code != 404 {
		t.Errorf("the port of health tells of pods: %d", w.Code)
	}
}

// TestHealthzOfLog answers while the log is stuck, and so logs nothing of what has failed.
func TestHealthzOfLog(t *testing.T) {
	var text bytes.Buffer
	var fault, other error
	s, err := New(Config{
		Node: fakeNode{}, Runtime: &fakeRuntime{}, Log: slog.New(slog.NewTextHandler(&text, nil)),
		Health: []Check{
			{Name: "log", Check: func(context.Context) error { return fault }, Log: true},
			{Name: "syncloop", Check: func(context.Context) error { return other }},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	check := func(want string) {
		t.Helper()
		w := httptest.NewRecorder()
		s.Healthz().ServeHTTP(w, httptest.NewRequest("GET", "/healthz?verbose", nil))
		if w.Body.String() != want {
			t.Errorf("%q, want %q", w.Body, want)
		}
	}
	fault, other = errors.New("a pipe is full"), errors.New("it is held up")
	check("[+]ping ok\n[-]log failed: reason withheld\n[-]syncloop failed: reason withheld\nhealthz check failed\n")
	if text.Len() > 0 {
		t.Errorf("a log that is stuck was written to: %s", &text)
	}
	fault = nil
	check("[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n")
	if !strings.Contains(text.String(), "it is held up") {
		t.Errorf("the reason is nowhere: %q", &text)
	}
}

// usage answers with what it was asked for.
type usage struct{}

func (usage) Summary(_ context.Context, brief bool) (*statsv1.Summary, error) {
	return &statsv1.Summary{Node: statsv1.NodeStats{NodeName: fmt.Sprint("brief ", brief)}}, nil
}

func (usage) Resource(_ context.Context, w io.Writer) error {
	_, err := io.WriteString(w, "resource 1\n")
	return err
}

func (usage) Cadvisor(_ context.Context, w io.Writer) error {
	_, err := io.WriteString(w, strings.Repeat("cadvisor 1\n", 100))
	return err
}

func TestStatsAndMetrics(t *testing.T) {
	probes, agent := &telemetry.Registry{}, &telemetry.Registry{}
	probes.Counter("prober_probe_total", "Probes.", "result").Add(1, "successful")
	agent.Counter("kubelet_started_pods_total", "Pods.").Add(3)
	n := serveNode(t, func(c *Config, _ *fakeRuntime) {
		c.About = &zpages.About{Component: "kubelet", Flags: map[string]string{"port": "10250"}}
		c.Usage, c.Probes, c.Metrics = usage{}, probes.Write, []func(io.Writer) error{agent.Write}
	})
	for path, want := range map[string]string{
		"/stats/summary": "brief false",
		"/stats/summary?only_cpu_and_memory=true": "brief true",
		"/metrics/resource":                       "resource 1\n",
		"/metrics/cadvisor":                       "cadvisor 1\n",
		"/statusz":                                "kubelet statusz",
		"/flagz":                                  "port: 10250",
		"/metrics/slis":                           `# TYPE kubernetes_healthcheck gauge`,
		"/metrics/probes":                         `prober_probe_total{result="successful"} 1`,
		"/metrics":                                `kubelet_http_requests_total{long_running="false",method="GET",path="metrics",server_type="readwrite"} 1`,
	} {
		if code, got := n.get(t, "GET", path); code != 200 || !strings.Contains(got, want) {
			t.Errorf("%s: %d %q, want %q", path, code, got, want)
		}
	}
	if _, got := n.get(t, "GET", "/metrics"); !strings.Contains(got, `kubelet_http_inflight_requests{long_running="false",method="GET",path="metrics",server_type="readwrite"} 1`) {
		t.Errorf("the request itself is not told of in %s", got)
	}
	if _, got := n.get(t, "GET", "/metrics"); !strings.Contains(got, "kubelet_started_pods_total 3\n") {
		t.Errorf("nothing of the agent in %s", got)
	}
	for accept, zipped := range map[string]bool{"gzip": true, "deflate, gzip;q=0.5": true, "gzip;q=0": false, "gzip; q=0.0": false, "identity": false, "": false} {
		r := httptest.NewRequest("GET", "/metrics/cadvisor", nil)
		r.Header.Set("Accept-Encoding", accept)
		w := httptest.NewRecorder()
		n.ServeHTTP(w, r)
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != zipped {
			t.Errorf("%q: zipped %t", accept, got)
			continue
		}
		if !zipped {
			continue
		}
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(z); err != nil || string(text) != strings.Repeat("cadvisor 1\n", 100) {
			t.Errorf("%q %v", text, err)
		}
	}
}

// What is not configured is not there.
func TestOffByDefault(t *testing.T) {
	n := serveNode(t, nil)
	for _, path := range []string{"/stats/summary", "/metrics/resource", "/metrics/probes", "/configz", "/statusz", "/flagz", "/spec/", "/x", "/"} {
		if code, _ := n.get(t, "GET", path); code != 404 {
			t.Errorf("%s: %d", path, code)
		}
	}
	if code, _ := n.get(t, "PUT", "/checkpoint/default/web/up"); code != 404 {
		t.Errorf("checkpoint: %d", code)
	}
	for path, want := range map[string]string{
		"GET /logs/messages": "--enable-system-log-handler", "GET /debug/pprof/heap": "--enable-profiling", "PUT /debug/flags/v": "--enable-profiling",
	} {
		method, path, _ := strings.Cut(path, " ")
		if code, got := n.get(t, method, path); code != 405 || !strings.Contains(got, "endpoint is disabled: "+want) {
			t.Errorf("%s: %d %q, want 405 and %s", path, code, got, want)
		}
	}
}

// TestBare has what monitors need, and nothing that acts in a container or tells what it has written.
func TestBare(t *testing.T) {
	n := serveNode(t, func(c *Config, _ *fakeRuntime) {
		c.Bare, c.Profiling, c.Level, c.CheckpointDir, c.Configz, c.Usage = true, true, &slog.LevelVar{}, t.TempDir(), func() any { return nil }, usage{}
		c.About = &zpages.About{}
	})
	for _, tt := range []struct {
		method, path string
		code         int
	}{
		{"GET", "/pods", 200},
		{"GET", "/metrics", 200},
		{"GET", "/healthz", 200},
		{"GET", "/stats/summary", 200},
		{"GET", "/containerLogs/default/web/up", 405},
		{"POST", "/exec/default/web/up?command=date&output=1", 405},
		{"GET", "/exec/default/web/u1/up?command=date&output=1", 405},
		{"POST", "/attach/default/web/up?output=1", 405},
		{"POST", "/portForward/default/web", 405},
		{"POST", "/run/default/web/up?cmd=date", 405},
		{"GET", "/runningpods/", 405},
		{"GET", "/logs/", 405},
		{"GET", "/debug/pprof/heap", 405},
		{"PUT", "/debug/flags/v", 405},
		{"GET", "/configz", 404},
		{"GET", "/flagz", 404},
		{"POST", "/checkpoint/default/web/up", 404},
	} {
		if code, got := n.get(t, tt.method, tt.path); code != tt.code {
			t.Errorf("%s %s: %d %q, want %d", tt.method, tt.path, code, got, tt.code)
		}
	}
	if len(n.runtime.requests) > 0 {
		t.Errorf("the runtime was asked for %v", n.runtime.requests)
	}
}

func TestConfigz(t *testing.T) {
	n := serveNode(t, func(c *Config, _ *fakeRuntime) { c.Configz = func() any { return map[string]int{"maxPods": 110} } })
	if code, got := n.get(t, "GET", "/configz"); code != 200 || got != `{"kubeletconfig":{"maxPods":110}}` {
		t.Errorf("%d %s", code, got)
	}
}

func TestCheckpoint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	n := serveNode(t, func(c *Config, _ *fakeRuntime) { c.CheckpointDir = dir })
	code, got := n.get(t, "POST", "/checkpoint/default/web/up?timeout=7")
	r, ok := n.runtime.last(t).(*runtimeapi.CheckpointContainerRequest)
	if code != 200 || !ok || r.Timeout != 7 || r.ContainerId != "up-1" || got != `{"items":["`+r.Location+`"]}` || !strings.HasPrefix(r.Location, dir+"/checkpoint-web_default-up-") {
		t.Errorf("%d %s %v", code, got, r)
	}
	n.runtime.err = status.Error(codes.Unimplemented, "this handler makes no checkpoints")
	for path, want := range map[string]int{"web/up": 500, "web/nobody": 404, "gone/up": 404, "web/up?timeout=x": 400} {
		if code, got := n.get(t, "POST", "/checkpoint/default/"+path); code != want || strings.Contains(got, "rpc error") {
			t.Errorf("%s: %d %q, want %d", path, code, got, want)
		}
	}
	if code, _ := n.get(t, "GET", "/checkpoint/default/web/up"); code != 405 {
		t.Errorf("made by GET: %d", code)
	}
}

func TestRun(t *testing.T) {
	n := serveNode(t, nil)
	if code, got := n.get(t, "POST", "/run/default/web/u1/up?cmd=echo+hello"); code != 200 || got != "out\nerr\n" {
		t.Errorf("%d %q", code, got)
	}
	if r, ok := n.runtime.last(t).(*runtimeapi.ExecSyncRequest); !ok || strings.Join(r.Cmd, "|") != "echo|hello" || r.Timeout == 0 {
		t.Errorf("%v", r)
	}
	for path, want := range map[string]int{"web/up?cmd=false": 500, "web/up": 400, "web/nobody?cmd=x": 404} {
		if code, got := n.get(t, "POST", "/run/default/"+path); code != want {
			t.Errorf("%s: %d %q, want %d", path, code, got, want)
		}
	}
}

// The folder of logs is one that pods may write to.
func TestNodeLogs(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "log")
	if err := os.MkdirAll(filepath.Join(dir, "pods"), 0o755); err != nil {
		t.Fatal(err)
	}
	appendLog(t, filepath.Join(top, "secret"), "secret")
	appendLog(t, filepath.Join(dir, "syslog"), "line\n")
	appendLog(t, filepath.Join(dir, "page.html"), "<script>")
	for link, to := range map[string]string{"out": "../secret", "absolute": filepath.Join(top, "secret"), "in": "syslog"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := serveNode(t, func(c *Config, _ *fakeRuntime) { c.NodeLogs.Folder = dir })
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/logs/":            {200, "syslog"},
		"/logs/syslog":      {200, "line\n"},
		"/logs/in":          {200, "line\n"},
		"/logs/pods/":       {200, "<pre>"},
		"/logs/nothing":     {404, ""},
		"/logs/fifo":        {403, ""},
		"/logs/out":         {500, ""},
		"/logs/absolute":    {500, ""},
		"/logs/../secret":   {400, "not clean"},
		"/logs/..%2fsecret": {400, "not clean"},
	} {
		if code, got := n.get(t, "GET", path); code != want.code || !strings.Contains(got, want.text) || strings.Contains(got, "secret") && code == 200 && path != "/logs/" {
			t.Errorf("%s: %d %q, want %d", path, code, got, want.code)
		}
	}
	w := httptest.NewRecorder()
	n.ServeHTTP(w, httptest.NewRequest("GET", "/logs/page.html", nil))
	if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "text/plain") {
		t.Errorf("a page of somebody's is shown as %s", got)
	}
	if _, err := New(Config{Node: fakeNode{}, Runtime: n.runtime, Log: quietLog(t), NodeLogs: NodeLogs{Folder: filepath.Join(top, "nowhere")}}); err == nil {
		t.Error("a folder that is not there was taken")
	}
}

// Queries are about that folder and the journal. Without being allowed they are passed over.
func TestLogQuery(t *testing.T) {
	top := t.TempDir()
	dir, bin := filepath.Join(top, "log"), filepath.Join(top, "bin")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "web"), 0o755), os.Mkdir(bin, 0o755)); err != nil {
		t.Fatal(err)
	}
	appendLog(t, filepath.Join(top, "secret"), "secret")
	appendLog(t, filepath.Join(dir, "web", "web.log"), "line\n")
	if err := os.Symlink("../secret", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	script := "#!/bin/sh\nif [ \"$1\" = --field ]; then echo kubelet.service; exit; fi\necho the journal says: $@\n"
	if err := os.WriteFile(filepath.Join(bin, "journalctl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	n := serveNode(t, func(c *Config, _ *fakeRuntime) { c.NodeLogs = NodeLogs{dir, true} })
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/logs/?query=kubelet&tailLines=2":    {200, "the journal says: --lines=2"},
		"/logs/?query=web":                    {200, "line\n"},
		"/logs/?query=/web/web.log":           {200, "line\n"},
		"/logs/web/web.log":                   {200, "line\n"},
		"/logs/?query=none":                   {404, "there is no log of none"},
		"/logs/?query=/none":                  {404, ""},
		"/logs/?query=out":                    {500, ""},
		"/logs/?query=/out":                   {500, ""},
		"/logs/?query=/../secret":             {404, ""},
		"/logs/?query=":                       {400, "want the name of a service"},
		"/logs/?tailLines=2":                  {406, "name it"},
		"/logs/?query=kubelet;reboot":         {406, ""},
		"/logs/web/?query=kubelet":            {406, "/logs/ alone"},
		"/logs/web/web.log?unknown=something": {200, "line\n"},
	} {
		path = strings.ReplaceAll(path, ";", "%3B")
		if code, got := n.get(t, "GET", path); code != want.code || !strings.Contains(got, want.text) || strings.Contains(got, "secret") {
			t.Errorf("%s: %d %q, want %d", path, code, got, want.code)
		}
	}
	n = serveNode(t, func(c *Config, _ *fakeRuntime) { c.NodeLogs.Folder = dir })
	if code, got := n.get(t, "GET", "/logs/?query=kubelet"); code != 200 || !strings.Contains(got, "<pre>") {
		t.Errorf("it is not asked for: %d %q", code, got)
	}
}

func TestDebug(t *testing.T) {
	level := &slog.LevelVar{}
	n := serveNode(t, func(c *Config, _ *fakeRuntime) { c.Level, c.Profiling = level, true })
	put := func(body string) int {
		w := httptest.NewRecorder()
		n.ServeHTTP(w, httptest.NewRequest("PUT", "/debug/flags/v", strings.NewReader(body)))
		return w.Code
	}
	if code := put("5"); code != 200 || level.Level() != slog.LevelDebug {
		t.Errorf("%d %v", code, level)
	}
	if code := put("2"); code != 200 || level.Level() != slog.LevelInfo {
		t.Errorf("%d %v", code, level)
	}
	if code := put("x"); code != 400 {
		t.Error(code)
	}
	for path, want := range map[string]int{"/debug/pprof/": 200, "/debug/pprof/heap": 200, "/debug/pprof/cmdline": 404, "/debug/pprof/nothing": 404} {
		if code, _ := n.get(t, "GET", path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
}

// A gate and a router must not see two different requests.
func TestPathsAreClean(t *testing.T) {
	seen := 0
	n := serveNode(t, func(c *Config, _ *fakeRuntime) {
		c.Gate = gateFunc(func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seen++
				next.ServeHTTP(w, r)
			})
		})
	})
	for _, path := range []string{"/metrics/../exec/default/web/up", "//exec/default/web/up", "/metrics/./x", "/metrics%2f..%2fexec/a/b/c", "/metrics/..", "/a//b", "//"} {
		r := httptest.NewRequest("GET", "/", nil)
		u, err := url.ParseRequestURI(path)
		if err != nil {
			t.Fatal(err)
		}
		r.URL = u
		w := httptest.NewRecorder()
		n.ServeHTTP(w, r)
		if w.Code != 400 || seen != 0 {
			t.Errorf("%s: %d, the gate saw it %d times", path, w.Code, seen)
		}
	}
	if code, _ := n.get(t, "GET", "/healthz/"); code != 404 || seen != 1 {
		t.Errorf("a slash at the end: %d %d", code, seen)
	}
	if code, _ := n.get(t, "GET", "/runningpods/"); code != 200 || seen != 2 {
		t.Errorf("a slash at the end: %d %d", code, seen)
	}
}

type gateFunc func(http.Handler) http.Handler

func (g gateFunc) Wrap(next http.Handler) http.Handler { return g(next) }

// record keeps what is logged.
type record struct {
	slog.Handler
	mu    sync.Mutex
	lines []string
}

func (r *record) Handle(_ context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, rec.Message)
	return nil
}

func (r *record) Enabled(context.Context, slog.Level) bool { return true }

// A handler that panics costs its own request, and is logged once.
func TestPanics(t *testing.T) {
	log := &record{}
	begin := false
	n := serveNode(t, func(c *Config, _ *fakeRuntime) {
		c.Log = slog.New(log)
		c.Gate = gateFunc(func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if begin {
					fmt.Fprint(w, "half")
					_ = http.NewResponseController(w).Flush()
				}
				panic("oops")
			})
		})
	})
	resp, err := http.Get(n.url + "/pods")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != 500 || string(body) != "internal error\n" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
	begin = true
	resp, err = http.Get(n.url + "/pods")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("half of an answer looks like a whole one")
	}
	_ = resp.Body.Close()
	log.mu.Lock()
	defer log.mu.Unlock()
	if len(log.lines) != 2 {
		t.Errorf("logged %q for two panics", log.lines)
	}
}

// slowUsage waits for the end of the request.
type slowUsage struct {
	usage
	begun chan struct{}
}

func (s slowUsage) Summary(ctx context.Context, _ bool) (*statsv1.Summary, error) {
	s.begun <- struct{}{}
	<-ctx.Done()
	return nil, fmt.Errorf("ask the runtime: %w", ctx.Err())
}

func TestRequestsAreBounded(t *testing.T) {
	u := slowUsage{begun: make(chan struct{})}
	n := serveNode(t, func(c *Config, _ *fakeRuntime) {
		c.Usage, c.Limits = u, Limits{Requests: 1, RequestTime: 300 * time.Millisecond}
	})
	got := make(chan int, 1)
	go func() {
		code, _ := n.get(t, "GET", "/stats/summary")
		got <- code
	}()
	<-u.begun
	if code, _ := n.get(t, "GET", "/pods"); code != 429 {
		t.Errorf("one too many: %d", code)
	}
	if code := <-got; code != 504 {
		t.Errorf("one that takes too long: %d", code)
	}
	if code, _ := n.get(t, "GET", "/pods"); code != 200 {
		t.Errorf("after it: %d", code)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, c := range map[string]Config{
		"nothing":        {},
		"negative limit": {Node: fakeNode{}, Runtime: &fakeRuntime{}, Log: quietLog(t), Limits: Limits{Streams: -1}},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
