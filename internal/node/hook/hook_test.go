package hook

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/probe"
)

// runtime answers ExecSync by what the command says.
type runtime struct{ timeout int64 }

func (r *runtime) ExecSync(ctx context.Context, in *runtimeapi.ExecSyncRequest, _ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	r.timeout = in.Timeout
	switch in.Cmd[0] {
	case "true":
		return &runtimeapi.ExecSyncResponse{}, nil
	case "false":
		return &runtimeapi.ExecSyncResponse{ExitCode: 1, Stderr: []byte("no\nway")}, nil
	case "slow":
		return nil, status.Error(codes.DeadlineExceeded, "killed")
	case "hang":
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return nil, status.Error(codes.Unknown, "no such command")
}

func TestRun(t *testing.T) {
	stop := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if agent := r.Header.Get("User-Agent"); agent != "kube-lifecycle/1.36" {
			t.Errorf("the hook calls itself %q", agent)
		}
		switch r.URL.Path {
		case "/hang":
			<-stop
		case "/cut":
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("bye"))
		case "/ill":
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(stop) })
	_, text, _ := net.SplitHostPort(server.Listener.Addr().String())
	number, _ := strconv.Atoi(text)
	command := func(word string) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{word}}}
	}
	get := func(path string, port int) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt(port)}}
	}
	pause := func(s int64) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: s}}
	}
	for name, tt := range map[string]struct {
		hook *corev1.LifecycleHandler
		want string
	}{
		"a command":              {command("true"), ""},
		"a command fails":        {command("false"), "the command ended with exit code 1: no way"},
		"a command hangs":        {command("hang"), "it did not end in time"},
		"a command is killed":    {command("slow"), "it did not end in time"},
		"no command":             {command("other"), "the command cannot be run: no such command"},
		"http":                   {get("/", number), ""},
		"http, any status":       {get("/ill", number), ""},
		"http, cut off":          {get("/cut", number), ""},
		"http, nobody there":     {get("/", 1), "connection refused"},
		"http hangs":             {get("/hang", number), "it did not end in time"},
		"a pause":                {pause(0), ""},
		"a pause that is longer": {pause(3600), "it did not end in time"},
		"nothing":                {&corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{}}, "it is neither exec"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			err := Run(ctx, &probe.Target{Host: "127.0.0.1", Container: &corev1.Container{}, Executor: &runtime{}}, tt.hook)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestPlain asks a hook by HTTP that says HTTPS of a server without it, and leaves the
// credentials away.
func TestPlain(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+r.Header.Get("Authorization")+r.Header.Get("X"))
	}))
	defer server.Close()
	host, text, _ := net.SplitHostPort(server.Listener.Addr().String())
	number, _ := strconv.Atoi(text)
	h := &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{
		Scheme: corev1.URISchemeHTTPS, Host: host, Path: "/a", Port: intstr.FromInt(number),
		HTTPHeaders: []corev1.HTTPHeader{{Name: "authorization", Value: "secret"}, {Name: "x", Value: "x"}},
	}}
	var told []string
	target := &probe.Target{Container: &corev1.Container{}, Plain: func(address string) { told = append(told, address) }}
	if err := Run(t.Context(), target, h); err != nil {
		t.Error(err)
	}
	if want := []string{server.Listener.Addr().String()}; !slices.Equal(told, want) || !slices.Equal(asked, []string{"/ax"}) {
		t.Errorf("told %q, want %q; asked %q", told, want, asked)
	}
	target.Plain = nil
	if err := Run(t.Context(), target, h); err != nil {
		t.Error(err)
	}
	if len(h.HTTPGet.HTTPHeaders) != 2 || h.HTTPGet.Scheme != corev1.URISchemeHTTPS {
		t.Errorf("the hook was changed: %v", h.HTTPGet)
	}
}

// TestTimeout wants the runtime to know the deadline, if there is one.
func TestTimeout(t *testing.T) {
	r := &runtime{}
	h := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}
	if err := Run(t.Context(), &probe.Target{Executor: r}, h); err != nil || r.timeout != 0 {
		t.Errorf("%v, timeout %d", err, r.timeout)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if err := Run(ctx, &probe.Target{Executor: r}, h); err != nil || r.timeout != 3600 {
		t.Errorf("%v, timeout %d", err, r.timeout)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	h.Exec.Command[0] = "hang"
	if err := Run(gone, &probe.Target{Executor: r}, h); err == nil || errors.Is(err, errLate) {
		t.Errorf("a hook whose container has gone: %v", err)
	}
}

func TestWhichHook(t *testing.T) {
	start, stop := &corev1.LifecycleHandler{}, &corev1.LifecycleHandler{}
	ct := &corev1.Container{Lifecycle: &corev1.Lifecycle{PostStart: start, PreStop: stop}}
	if PostStart(ct) != start || PreStop(ct) != stop || PostStart(&corev1.Container{}) != nil || PreStop(&corev1.Container{}) != nil {
		t.Error("a hook is taken for another one")
	}
}
