package flaky

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Storm is what goes wrong. Its zero value is nothing.
type Storm struct {
	// Writes and Reads are the share of requests that fail, from 0 to 1. Leases are left
	// alone: a client that cannot renew its own ends, which is another test.
	Writes, Reads float64
	// Lag is how long an event of a watch may be on its way.
	Lag time.Duration
	// Life is how long a watch lasts, on average; 0 is as long as it likes.
	Life time.Duration
}

// Proxy stands before an API server. Close it after its client has ended.
type Proxy struct {
	// Beta has it be an API server that has RuntimeClasses in v1beta1 only, as those
	// before Kubernetes 1.20 have. It is set before the first request.
	Beta bool

	to     string
	client http.RoundTripper
	server *http.Server
	host   string

	mu     sync.Mutex
	storm  Storm
	held   map[string]bool // resources of whose changes no watch tells
	thawed chan struct{}   // closed when something is no longer held
	counts map[string]int
}

// Start has a proxy listen on an address of loopback that is free. Requests go to an API
// server by a transport that trusts it, and that has the credentials of the client.
func Start(ctx context.Context, to string, client http.RoundTripper) (*Proxy, error) {
	var l net.ListenConfig
	listener, err := l.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for clients: %w", err)
	}
	p := &Proxy{to: to, client: client, host: "http://" + listener.Addr().String(), held: map[string]bool{}, thawed: make(chan struct{}), counts: map[string]int{}}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	go func() { _ = p.server.Serve(listener) }() // it ends with Close
	return p, nil
}

// Host is where clients find it.
func (p *Proxy) Host() string { return p.host }

// Close ends it, with everything that goes on.
func (p *Proxy) Close() error { return p.server.Close() }

// Set changes what goes wrong from now on.
func (p *Proxy) Set(s Storm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.storm = s
}

// Hold has watches of some resources say nothing, and Release all of them say everything
// that they have not said. A watch that is begun in between is held as well.
func (p *Proxy) Hold(resources ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range resources {
		p.held[r] = true
	}
}

// Release is the end of Hold.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.held)
	close(p.thawed)
	p.thawed = make(chan struct{})
}

// Counts says how often each thing happened, by its name.
func (p *Proxy) Counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]int{}
	for k, n := range p.counts {
		out[k] = n
	}
	return out
}

func (p *Proxy) count(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[what]++
}

func (p *Proxy) now() Storm {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.storm
}

// A fault is how a request goes wrong.
type fault string

const (
	none     fault = ""
	conflict fault = "conflict"
	busy     fault = "busy"
	broken   fault = "broken"
	away     fault = "away"
	unheard  fault = "unheard" // it was not carried out, and nobody says so
	lost     fault = "lost"    // it was carried out, and nobody says so
)

// choose draws a fault for a request.
func (p *Proxy) choose(r *http.Request) fault {
	s, share, among := p.now(), 0.0, []fault{busy, broken, away, unheard}
	switch {
	case strings.Contains(r.URL.Path, "/leases"):
		return none
	case r.Method == http.MethodGet:
		share = s.Reads
	default:
		share, among = s.Writes, append(among, conflict, lost, lost)
	}
	if rand.Float64() >= share {
		return none
	}
	return among[rand.IntN(len(among))]
}

// ServeHTTP passes a request on, or not.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := p.choose(r)
	if f != none {
		p.count(string(f))
	}
	switch f {
	case conflict:
		// As an API server says it for a version that is not of now.
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
		return
	case busy:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
		return
	case broken:
		refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError)
		return
	case away:
		refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		return
	case unheard:
		panic(http.ErrAbortHandler) // closes the connection
	case none, lost:
	}
	answer, err := p.pass(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer answer.Body.Close()
	if f == lost {
		panic(http.ErrAbortHandler)
	}
	if r.URL.Query().Get("watch") != "" && answer.StatusCode == http.StatusOK {
		p.watch(w, r, answer)
		return
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if p.Beta {
		body = aged(body)
	}
	for _, h := range []string{"Content-Type", "Retry-After", "Warning", "Audit-Id"} {
		for _, v := range answer.Header.Values(h) {
			w.Header().Add(h, v)
		}
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(body) // a client that has gone needs none
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: "the proxy of a test says so",
	})
}

// pass has the API server carry a request out. Its answers are JSON, whatever the client
// would like, so that they can be read here.
func (p *Proxy) pass(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	path := r.URL.RequestURI()
	if p.Beta {
		if strings.HasPrefix(path, "/apis/node.k8s.io/v1/") {
			p.count("v1")
		}
		if strings.HasPrefix(path+"/", "/apis/node.k8s.io/v1/") {
			path = "/apis/node.k8s.io/none" // which no API server has
		}
		if strings.HasPrefix(path, "/apis/node.k8s.io/v1beta1") {
			p.count("v1beta1 " + r.Method)
		}
		path = strings.Replace(path, "/apis/node.k8s.io/v1beta1", "/apis/node.k8s.io/v1", 1)
		if body, err = modern(body); err != nil {
			return nil, err
		}
	}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, p.to+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for _, h := range []string{"Content-Type", "User-Agent"} {
		out.Header[h] = r.Header[h]
	}
	out.Header.Set("Accept", "application/json")
	return p.client.RoundTrip(out)
}
