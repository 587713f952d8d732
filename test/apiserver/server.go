package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// Resource is what an API server has a path for.
type Resource struct {
	Path       string // "api/v1/pods", "apis/node.k8s.io/v1/runtimeclasses"
	Kind       string
	Namespaced bool
}

// Call is a request, in the words of RBAC.
type Call struct{ Verb, Group, Resource, Namespace, Name, Subresource string }

// Object is any object, as JSON has it.
type Object = map[string]any

// Server is one API server.
type Server struct {
	http *httptest.Server
	t    testing.TB

	mu        sync.Mutex
	changed   *sync.Cond
	version   int
	hangUps   int                  // how often all watches were ended
	resources map[string]*resource // by path
	calls     map[Call]int
	fail      func(Call) int
	intercept func(Call, http.ResponseWriter, *http.Request) bool
}

type resource struct {
	Resource
	objects map[string]Object // by key
	events  []event
	gone    bool // watches of it end
}

// event is a change; old or now is nil.
type event struct {
	version  int
	old, now Object
}

// New starts a server that has these resources; it ends with the test.
func New(t testing.TB, with ...Resource) *Server {
	s := InMemory(t, with...)
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		for _, r := range with {
			s.Vanish(r)
		}
		s.http.Close()
	})
	return s
}

// InMemory is a server without a socket: its clients' requests go no further than
// this process, so that it can be used in a bubble of testing/synctest.
func InMemory(t testing.TB, with ...Resource) *Server {
	s := &Server{t: t, resources: map[string]*resource{}, calls: map[Call]int{}, version: 1}
	s.changed = sync.NewCond(&s.mu)
	for _, r := range with {
		s.Serve(r)
	}
	return s
}

// Config is for a client of the server.
func (s *Server) Config() *rest.Config {
	if s.http == nil {
		return &rest.Config{Host: "http://in-memory", QPS: -1, Transport: transport{s}}
	}
	return &rest.Config{Host: s.http.URL, QPS: -1}
}

// Serve begins to serve a resource, as when its CRD is created.
func (s *Server) Serve(r Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resources[r.Path] = &resource{Resource: r, objects: map[string]Object{}}
}

// Vanish ends a resource with all its objects, as when its CRD is deleted.
func (s *Server) Vanish(r Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if had := s.resources[r.Path]; had != nil {
		had.gone = true
		delete(s.resources, r.Path)
	}
	s.changed.Broadcast()
}

// FailWith has requests answered with the code that f returns, unless it is 0.
func (s *Server) FailWith(f func(Call) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// Intercept has f see each request first; what f answers, nobody else does. It
// says whether it has.
func (s *Server) Intercept(f func(Call, http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = f
}

// HangUp ends all watches, as a proxy in between may.
func (s *Server) HangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangUps++
	s.changed.Broadcast()
}

// Disconnect ends all connections, watches too.
func (s *Server) Disconnect() { s.http.CloseClientConnections() }

// Calls are all requests that there were, without their number.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.calls))
}

// Count is how many requests fit.
func (s *Server) Count(fits func(Call) bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for c, times := range s.calls {
		if fits(c) {
			n += times
		}
	}
	return n
}

// Put creates or replaces an object; it is encoded as JSON.
func (s *Server) Put(r Resource, o any) {
	s.t.Helper()
	object := Object{}
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &object)
	}
	if err != nil {
		s.t.Fatalf("put %s: %v", r.Kind, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(s.resources[r.Path], object)
}

// Get is an object as it is now, or nil.
func (s *Server) Get(r Resource, key string) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.resources[r.Path]; of != nil {
		return of.objects[key]
	}
	return nil
}

// All are the objects of a resource as they are now, by "namespace/name" or name.
func (s *Server) All(r Resource) map[string]Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.resources[r.Path]; of != nil {
		return maps.Clone(of.objects)
	}
	return nil
}

// Delete takes an object away, or marks it if it has finalizers.
func (s *Server) Delete(r Resource, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(s.resources[r.Path], key)
}

func (s *Server) drop(of *resource, key string) {
	s.version++
	old := of.objects[key]
	delete(of.objects, key)
	last := maps.Clone(old)
	meta := maps.Clone(metaOf(old))
	meta["resourceVersion"] = strconv.Itoa(s.version)
	last["metadata"] = meta
	of.events = append(of.events, event{version: s.version, old: last})
	s.changed.Broadcast()
}

// store puts an object in; what is stored is never changed afterwards.
func (s *Server) store(of *resource, o Object) {
	s.version++
	meta := metaOf(o)
	meta["resourceVersion"] = strconv.Itoa(s.version)
	key := keyOf(o)
	old := of.objects[key]
	switch {
	case old != nil:
		meta["uid"] = metaOf(old)["uid"]
	case meta["uid"] == nil:
		meta["uid"] = fmt.Sprintf("uid-%d", s.version)
	}
	o["kind"], o["apiVersion"] = of.Kind, of.apiVersion()
	of.objects[key] = o
	of.events = append(of.events, event{version: s.version, old: old, now: o})
	s.changed.Broadcast()
}

func (r Resource) apiVersion() string {
	parts := strings.Split(r.Path, "/")
	return strings.Join(parts[1:len(parts)-1], "/")
}

func metaOf(o Object) map[string]any {
	meta, ok := o["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		o["metadata"] = meta
	}
	return meta
}

func keyOf(o Object) string {
	meta := metaOf(o)
	name, _ := meta["name"].(string)
	if ns, _ := meta["namespace"].(string); ns != "" {
		return ns + "/" + name
	}
	return name
}
