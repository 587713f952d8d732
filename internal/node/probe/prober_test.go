package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/fdtest"
	"fairlead.run/internal/node/slots"
)

// portOf is where a server listens.
func portOf(t *testing.T, address string) int32 {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}

// site answers what its paths say.
func site(t *testing.T, secure bool) *httptest.Server {
	t.Helper()
	elsewhere := "http://localhost:1/elsewhere" // another name than the one that is asked
	mux := http.NewServeMux()
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.WriteHeader(code)
		_, _ = w.Write([]byte("the body is a secret"))
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "web.example" || r.Header.Get("X-Two") != "2" || len(r.Header["X-More"]) != 2 || r.Header.Get("Accept-Encoding") != "" || r.URL.RawQuery != "a=b" {
			http.Error(w, fmt.Sprint(r.Host, r.Header, r.URL), http.StatusTeapot)
		}
	})
	mux.HandleFunc("/agent", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("User-Agent") != "kube-probe/1.36" || r.Header.Get("Accept") != "*/*" {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	mux.HandleFunc("/accept", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Header["Accept"]; ok {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/status/200", http.StatusFound) })
	mux.HandleFunc("/broken", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/status/500", http.StatusFound) })
	mux.HandleFunc("/there", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere, http.StatusFound) })
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round", http.StatusFound) })
	mux.HandleFunc("/hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/hangs/later", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write([]byte("x"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/flood", func(w http.ResponseWriter, _ *http.Request) {
		for chunk := make([]byte, 64<<10); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	s := httptest.NewUnstartedServer(mux)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// expect tries a probe, and wants an outcome and a part of the message.
func expect(t *testing.T, target *Target, p *corev1.Probe, want Result) {
	t.Helper()
	got := target.Try(t.Context(), p)
	if got.Outcome != want.Outcome || !strings.Contains(got.Message, want.Message) || want.Message == "" && got.Message != "" {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestHTTP(t *testing.T) {
	// Neither is there, so that a probe that uses them fails.
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	server := site(t, false)
	port := portOf(t, server.Listener.Addr().String())
	target := &Target{Host: "127.0.0.1", Container: &corev1.Container{Name: "c", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: port}}}}
	number := intstr.FromInt32(port)
	header := func(pairs ...string) (out []corev1.HTTPHeader) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, corev1.HTTPHeader{Name: pairs[i], Value: pairs[i+1]})
		}
		return out
	}
	for name, tt := range map[string]struct {
		corev1.HTTPGetAction
		want Result
	}{
		"200":                      {corev1.HTTPGetAction{Path: "/status/200", Port: number}, Result{Success, ""}},
		"by name, without a slash": {corev1.HTTPGetAction{Path: "status/204", Port: intstr.FromString("web")}, Result{Success, ""}},
		"by another name":          {corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("none")}, Result{Unknown, `container c has no port "none"`}},
		"404":                      {corev1.HTTPGetAction{Port: number}, Result{Failure, "the answer has the status 404"}},
		"500":                      {corev1.HTTPGetAction{Path: "/status/500", Port: number}, Result{Failure, "the answer has the status 500"}},
		"a redirect, without a place": {
			corev1.HTTPGetAction{Path: "/status/304", Port: number},
			Result{Success, "redirect (304)"},
		},
		"headers and a query": {
			corev1.HTTPGetAction{Path: "/headers?a=b", Port: number, HTTPHeaders: header("Host", "web.example", "x-two", "2", "X-More", "1", "X-More", "2")},
			Result{Success, ""},
		},
		"its own headers":     {corev1.HTTPGetAction{Path: "/agent", Port: number}, Result{Success, ""}},
		"no Accept":           {corev1.HTTPGetAction{Path: "/accept", Port: number, HTTPHeaders: header("Accept", "")}, Result{Success, ""}},
		"redirected here":     {corev1.HTTPGetAction{Path: "/here", Port: number}, Result{Success, ""}},
		"redirected to a 500": {corev1.HTTPGetAction{Path: "/broken", Port: number}, Result{Failure, "status 500"}},
		"redirected elsewhere": {
			corev1.HTTPGetAction{Path: "/there", Port: number},
			Result{Success, `redirect (302) to another host, which is not followed. Probe terminated redirects, Response body: <a href="`},
		},
		"redirected for ever": {corev1.HTTPGetAction{Path: "/round", Port: number}, Result{Failure, "redirected 10 times"}},
		"hangs":               {corev1.HTTPGetAction{Path: "/hangs", Port: number}, Result{Failure, "no answer within 1s"}},
		"hangs in the body":   {corev1.HTTPGetAction{Path: "/hangs/later", Port: number}, Result{Failure, "no answer within 1s"}},
		"flood":               {corev1.HTTPGetAction{Path: "/flood", Port: number}, Result{Success, ""}},
		"nobody there":        {corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(1)}, Result{Failure, "connection refused"}},
		"a host of its own":   {corev1.HTTPGetAction{Path: "/status/200", Host: "localhost", Port: number}, Result{Success, ""}},
		"a wrong scheme":      {corev1.HTTPGetAction{Path: "/status/200", Scheme: corev1.URISchemeHTTPS, Port: number}, Result{Failure, "HTTP response to HTTPS client"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, target, &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &tt.HTTPGetAction}}, tt.want)
		})
	}
}

func TestHTTPS(t *testing.T) {
	server := site(t, true) // whose certificate nobody trusts
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	target := &Target{Host: "127.0.0.1", Container: &corev1.Container{}}
	action := corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS, Path: "/status/200", Port: intstr.FromInt32(portOf(t, at.Host))}
	expect(t, target, &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &action}}, Result{Success, ""})
}

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	port := portOf(t, l.Addr().String())
	ask := func(a corev1.TCPSocketAction) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &a}}
	}
	target := &Target{Host: "127.0.0.1", Container: &corev1.Container{Ports: []corev1.ContainerPort{{Name: "p", ContainerPort: port}}}}
	expect(t, target, ask(corev1.TCPSocketAction{Port: intstr.FromInt32(port)}), Result{Success, ""})
	expect(t, target, ask(corev1.TCPSocketAction{Port: intstr.FromString("p")}), Result{Success, ""})
	expect(t, target, ask(corev1.TCPSocketAction{Port: intstr.FromInt32(1)}), Result{Failure, "connection refused"})
	expect(t, &Target{}, ask(corev1.TCPSocketAction{Port: intstr.FromInt32(port)}), Result{Unknown, "the pod has no address"})
	expect(t, &Target{}, ask(corev1.TCPSocketAction{Host: "127.0.0.1", Port: intstr.FromInt32(port)}), Result{Success, ""})
	expect(t, target, &corev1.Probe{}, Result{Unknown, "names nothing"})
}

// hung is a health service that does not answer.
type hung struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (hung) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// polite serves whoever says that it is a probe.
type polite struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (polite) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	agent := strings.Join(metadata.ValueFromIncomingContext(ctx, "user-agent"), " ")
	if !strings.HasPrefix(agent, "kube-probe/1.36 ") {
		return nil, status.Error(codes.PermissionDenied, "no probe, but "+agent)
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func TestGRPC(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	serve := func(register func(*grpc.Server)) int32 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := grpc.NewServer()
		register(s)
		go func() { _ = s.Serve(l) }()
		t.Cleanup(s.Stop)
		return portOf(t, l.Addr().String())
	}
	h := health.NewServer()
	h.SetServingStatus("well", grpc_health_v1.HealthCheckResponse_SERVING)
	h.SetServingStatus("ill", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	good := serve(func(s *grpc.Server) { grpc_health_v1.RegisterHealthServer(s, h) })
	none := serve(func(*grpc.Server) {})
	hangs := serve(func(s *grpc.Server) { grpc_health_v1.RegisterHealthServer(s, hung{}) })
	asks := serve(func(s *grpc.Server) { grpc_health_v1.RegisterHealthServer(s, polite{}) })
	mute, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	for name, tt := range map[string]struct {
		port    int32
		service string
		want    Result
	}{
		"the server":        {good, "", Result{Success, ""}},
		"asks who it is":    {asks, "", Result{Success, ""}},
		"a service":         {good, "well", Result{Success, ""}},
		"a service is ill":  {good, "ill", Result{Failure, `service "ill" is NOT_SERVING`}},
		"a service unknown": {good, "other", Result{Failure, "unknown service"}},
		"no health service": {none, "", Result{Failure, "has no service grpc.health.v1.Health"}},
		"hangs":             {hangs, "", Result{Failure, "no answer within 1s"}},
		"says nothing":      {portOf(t, mute.Addr().String()), "", Result{Failure, "no answer within 1s"}},
		"nobody there":      {1, "", Result{Failure, "connection refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			action := &corev1.GRPCAction{Port: tt.port, Service: &tt.service}
			expect(t, &Target{Host: "127.0.0.1"}, &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: action}}, tt.want)
		})
	}
}

// runtime answers ExecSync by what the command says.
type runtime struct{ running, most atomic.Int32 }

func (r *runtime) ExecSync(ctx context.Context, in *runtimeapi.ExecSyncRequest, _ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	n := r.running.Add(1)
	defer r.running.Add(-1)
	for most := r.most.Load(); n > most && !r.most.CompareAndSwap(most, n); most = r.most.Load() {
	}
	switch in.Cmd[0] {
	case "true":
		return &runtimeapi.ExecSyncResponse{Stdout: []byte("never shown")}, nil
	case "false":
		return &runtimeapi.ExecSyncResponse{ExitCode: 1, Stdout: []byte("out\n\x1b[31m"), Stderr: []byte("err")}, nil
	case "flood":
		return &runtimeapi.ExecSyncResponse{ExitCode: 2, Stdout: make([]byte, 1<<20), Stderr: []byte(strings.Repeat("é ", 1<<20))}, nil
	case "slow":
		return nil, status.Error(codes.DeadlineExceeded, "it was killed after "+strconv.Itoa(int(in.Timeout)))
	case "hang":
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return nil, status.Error(codes.Unknown, "no such command")
}

func TestExec(t *testing.T) {
	target := &Target{ID: "id", Executor: &runtime{}}
	for command, want := range map[string]Result{
		"true":  {Success, ""},
		"false": {Failure, "the command ended with exit code 1: out \ufffd[31m err"},
		"flood": {Failure, "the command ended with exit code 2: "},
		"slow":  {Failure, "the command did not end within 3s"},
		"other": {Unknown, "the command cannot be run: no such command"},
	} {
		got := target.Try(t.Context(), &corev1.Probe{TimeoutSeconds: 3, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}}})
		if got.Outcome != want.Outcome || !strings.HasPrefix(got.Message, want.Message) || len(got.Message) > 4*maxLine {
			t.Errorf("%s: %+v", command, got)
		}
	}
}

// stopped is a runtime that does not answer who executes a command, and may be there all the same.
type stopped struct {
	runtime
	there bool
}

func (r *stopped) Version(ctx context.Context, _ *runtimeapi.VersionRequest, _ ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	if r.there {
		return &runtimeapi.VersionResponse{}, nil
	}
	<-ctx.Done()
	return nil, status.FromContextError(ctx.Err()).Err()
}

// TestExecHangs takes a command whose end the runtime does not tell for a failure, and a runtime
// that answers nobody for none: it may have stopped for a moment.
func TestExecHangs(t *testing.T) {
	for want, r := range map[Result]Executor{
		{Failure, "did not end within 1s"}:             &runtime{},
		{Failure, "the command did not end within 1s"}: &stopped{there: true},
		{Unknown, "the runtime does not answer"}:       &stopped{},
	} {
		synctest.Test(t, func(t *testing.T) {
			expect(t, &Target{Executor: r}, &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"hang"}}}}, want)
		})
	}
}

// TestShort takes nothing that the agent has no descriptors left for as a failure of the
// container, as whom it asks then would be restarted for that.
func TestShort(t *testing.T) {
	back := fdtest.Left(t, 0)
	port := intstr.FromInt32(1) // where nobody is
	results := map[string]Result{}
	for name, p := range map[string]corev1.ProbeHandler{
		"tcp": {TCPSocket: &corev1.TCPSocketAction{Port: port}}, "http": {HTTPGet: &corev1.HTTPGetAction{Port: port}},
		"grpc": {GRPC: &corev1.GRPCAction{Port: 1}},
	} {
		results[name] = (&Target{Host: "127.0.0.1"}).Try(t.Context(), &corev1.Probe{ProbeHandler: p})
	}
	back()
	for name, got := range results {
		if got.Outcome != Unknown || !strings.Contains(got.Message, "too many open files; raise the limit of open files of the agent") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestHookShort has a hook wait for a descriptor of the agent, and then ask.
func TestHookShort(t *testing.T) {
	asked := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
	defer server.Close()
	port := portOf(t, server.Listener.Addr().String())
	back := fdtest.Left(t, 0)
	mended := make(chan struct{})
	go func() {
		defer close(mended)
		time.Sleep(100 * time.Millisecond) // for the first try
		back()
	}()
	err := (&Target{Host: "127.0.0.1"}).Hook(t.Context(), &corev1.HTTPGetAction{Port: intstr.FromInt32(port)})
	<-mended
	if err != nil {
		t.Fatal(err)
	}
	<-asked
}

// watchOf runs a watch whose changes come by the channel.
func watchOf(t *testing.T, target Target, s *slots.Slots) (w *Watch, changed chan struct{}, warnings chan string) {
	t.Helper()
	changed, warnings = make(chan struct{}, 100), make(chan string, 100)
	w = NewWatch(target, time.Now(), s, Told{
		Changed: func() { changed <- struct{}{} },
		Warned:  func(k Kind, text string) { warnings <- string(k) + ": " + text },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return w, changed, warnings
}

func run(command string) *corev1.Probe {
	return &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 3600, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}}}
}

// TestWatch follows a container up to its end.
func TestWatch(t *testing.T) {
	w, changed, _ := watchOf(t, Target{Executor: &runtime{}, Container: &corev1.Container{StartupProbe: run("true"), LivenessProbe: run("false"), ReadinessProbe: run("true")}}, NewSlots(1))
	for s := w.Status(); s.Failed == ""; s = w.Status() {
		<-changed
	}
	if s := w.Status(); s.Failed != Liveness || !strings.HasPrefix(s.Message, "its liveness probe failed: the command ended with exit code 1") || !s.Up {
		t.Errorf("%+v", s)
	}
}

// TestClock probes after the delay, and not much later, though the clock was set back since
// the container began to run.
func TestClock(t *testing.T) {
	now := time.Now()
	for ago, want := range map[time.Duration]time.Duration{-time.Hour: 30 * time.Second, 10 * time.Second: 20 * time.Second, time.Hour: 0} {
		w := NewWatch(Target{Container: &corev1.Container{LivenessProbe: probeOf(30, 10, 1, 1)}}, now.Add(-ago).Round(0), NewSlots(1), Told{})
		if want > 0 {
			if kinds, _ := w.machine.Begin(now.Add(want - 2*time.Second)); len(kinds) > 0 {
				t.Errorf("a container that began %s ago is probed %q before its time", ago, kinds)
			}
		}
		if kinds, next := w.machine.Begin(time.Now().Add(want)); len(kinds) != 1 {
			t.Errorf("a container that began %s ago is probed in %s", ago, next.Sub(now))
		}
	}
}

// TestWatchWarns wants a warning once, however often it is found.
func TestWatchWarns(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		http.Redirect(w, r, "http://localhost:1/", http.StatusMovedPermanently)
	}))
	defer server.Close()
	p := &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(portOf(t, server.Listener.Addr().String()))}}}
	w, changed, warnings := watchOf(t, Target{Host: "127.0.0.1", Container: &corev1.Container{ReadinessProbe: p}}, NewSlots(1))
	<-changed
	if !w.Status().Ready {
		t.Error("a redirect to another host is no success")
	}
	for asked.Load() < 3 {
		time.Sleep(10 * time.Millisecond)
	}
	if first := <-warnings; !strings.HasPrefix(first, "readiness: the answer is a redirect") || len(warnings) > 0 {
		t.Errorf("%q and %d more", first, len(warnings))
	}
}

// TestHungTriesDelayNobody has more tries that never end than there are slots.
func TestHungTriesDelayNobody(t *testing.T) {
	r, slots := &runtime{}, NewSlots(2)
	for range 20 {
		watchOf(t, Target{Executor: r, Container: &corev1.Container{ReadinessProbe: run("hang")}}, slots)
	}
	for r.running.Load() < 20 {
		time.Sleep(time.Millisecond)
	}
	w, changed, _ := watchOf(t, Target{Executor: r, Container: &corev1.Container{ReadinessProbe: run("true")}}, slots)
	<-changed
	if !w.Status().Ready {
		t.Error("it is not ready")
	}
}
