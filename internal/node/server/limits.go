package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/telemetry"
)

// failure is an answer that is none. Its text is for whoever asked.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

func refuse(code int, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// ServeHTTP refuses what a gate and a router could read in two ways, survives
// panics, and passes everything else on.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &answer{ResponseWriter: w}
	defer s.survive(a, r)
	if !isClean(r) {
		http.Error(a, "the path is not clean: ask for it without \"..\", empty parts and encoded slashes", http.StatusBadRequest)
		return
	}
	s.handler.ServeHTTP(a, r)
}

func isClean(r *http.Request) bool {
	p := r.URL.Path
	return strings.HasPrefix(p, "/") && !strings.Contains(p, "//") && (p == "/" || path.Clean(p) == strings.TrimSuffix(p, "/")) &&
		!strings.Contains(strings.ToLower(r.URL.RawPath), "%2f")
}

// survive answers for a handler that panicked. What was cut off on purpose stays
// cut off.
func (s *Server) survive(a *answer, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.cfg.Log.Error("a handler of the node API panicked", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(bytes.TrimSpace(debug.Stack())))
	if a.begun {
		panic(http.ErrAbortHandler) // the client must not take it for complete
	}
	http.Error(a, "internal error", http.StatusInternalServerError)
}

// answer remembers whether an answer has begun.
type answer struct {
	http.ResponseWriter
	begun bool
}

// Unwrap lets http.ResponseController find what the connection can do.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) {
	if !a.begun && code >= http.StatusOK {
		a.begun = true
	}
	a.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(b)
}

// limited serves a route within its limits.
func (s *Server) limited(r route) http.Handler {
	slots := s.requests
	if r.kind == stream {
		slots = s.streams
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, fmt.Sprintf("the node serves %d requests of this kind already; try again later", cap(slots)), http.StatusTooManyRequests)
			return
		}
		defer s.counts.begin(r, req)()
		var end time.Time
		if r.kind == quick {
			ctx, cancel := context.WithTimeout(req.Context(), s.cfg.Limits.RequestTime)
			defer cancel()
			req = req.WithContext(ctx)
			end = time.Now().Add(2 * s.cfg.Limits.RequestTime)
		}
		// Who does not read has an end, too. That of the request before may still
		// be set on the connection. Recorders of tests have none.
		_ = http.NewResponseController(w).SetWriteDeadline(end)
		if err := r.serve(w, req); err != nil {
			s.fail(w, req, err)
		}
	})
}

// fail answers with an error. Once an answer has begun there is nothing to do but
// to cut it off.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if begun(w) {
		if r.Context().Err() == nil {
			s.cfg.Log.Warn("an answer of the node API was cut off", "path", r.URL.Path, "error", err)
		}
		panic(http.ErrAbortHandler)
	}
	code := codeOf(err)
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	var refused *failure // which is the caller's business alone
	if code >= http.StatusInternalServerError && r.Context().Err() == nil && !errors.As(err, &refused) {
		s.cfg.Log.Warn("the node API could not do what was asked", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		refuseWebSocket(w, text(err), code)
		return
	}
	http.Error(w, text(err), code)
}

// maxReason is as much of a refusal as clients over WebSocket can take: they look at
// 1024 bytes.
const maxReason = 800

// refuseWebSocket answers with a status object. Kubernetes' clients over
// WebSocket take any text with a colon for an object without a message.
func refuseWebSocket(w http.ResponseWriter, text string, code int) {
	st := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code),
		Message: strings.ToValidUTF8(text[:min(len(text), maxReason)], ""),
	}
	body, _ := json.Marshal(&st) // strings and a number can be encoded
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

// begun says whether an answer has begun, also through what a gate has wrapped.
func begun(w http.ResponseWriter) bool {
	for {
		if a, ok := w.(*answer); ok {
			return a.begun
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = u.Unwrap()
	}
}

// text leaves out the words that gRPC puts before what a runtime says.
func text(err error) string {
	var grpc interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &grpc) {
		return err.Error()
	}
	inner, ok := grpc.(error)
	if !ok {
		return err.Error()
	}
	return strings.Replace(err.Error(), inner.Error(), grpc.GRPCStatus().Message(), 1)
}

func codeOf(err error) int {
	var f *failure
	switch {
	case errors.As(err, &f):
		return f.code
	case errors.Is(err, errdefs.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	}
	switch status.Code(err) {
	case codes.NotFound:
		return http.StatusNotFound
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	case codes.ResourceExhausted: // more streams are waiting to be opened than the runtime keeps
		return http.StatusTooManyRequests
	}
	return http.StatusInternalServerError
}

// serverType is what the API is in its metrics: a kubelet may have one that can only be read as well.
const serverType = "readwrite"

// labels are what requests are told apart by in metrics.
type labels struct{ long, method, route string }

func (l labels) values() []string { return []string{l.long, l.method, l.route, serverType} }

// counts are the metrics of the API, under the names that a kubelet has.
type counts struct {
	requests *telemetry.Counter
	duration *telemetry.Histogram

	mu       sync.Mutex
	inFlight map[labels]int
}

func newCounts(r *telemetry.Registry) *counts {
	names := []string{"long_running", "method", "path", "server_type"}
	c := &counts{
		requests: r.Counter("kubelet_http_requests_total", "Requests of the node API.", names...),
		duration: r.Histogram("kubelet_http_requests_duration_seconds", "How long requests of the node API took, in seconds.", names...),
		inFlight: map[labels]int{},
	}
	r.Gauge("kubelet_http_inflight_requests", "Requests of the node API that are being served.", names, func(tell func(float64, ...string)) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for l, n := range c.inFlight {
			tell(float64(n), l.values()...)
		}
	})
	return c
}

// begin counts a request in; what it returns counts it out.
func (c *counts) begin(r route, req *http.Request) func() {
	l := labels{strconv.FormatBool(r.kind == stream), req.Method, r.name}
	move := func(by int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.inFlight[l] += by
	}
	move(1)
	start := time.Now()
	c.requests.Add(1, l.values()...)
	return func() {
		move(-1)
		c.duration.Observe(time.Since(start).Seconds(), l.values()...)
	}
}
