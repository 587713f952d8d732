package url

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/source"
	"fairlead.run/internal/node/source/keep"
)

func pod(name string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: c, image: i}]}\n"
}

// server answers as it is told.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	answer http.HandlerFunc
	tags   []string // of the requests since the answer was set
}

// TestStatic takes a list of pods with all their fields, as a kubelet does.
func TestStatic(t *testing.T) {
	s := serve(t)
	s.set(text(`{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a"},"spec":{"priority":1,"containers":[{"name":"c","image":"i"}]}}]}`, ""))
	c := Config{URL: s.URL, Interval: time.Hour, Keep: keep.Folder(t.TempDir()), Static: true}
	for _, served := range []bool{true, false} { // then from what was kept
		if !served {
			s.set(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
		}
		ctx, cancel := context.WithCancel(t.Context())
		source, err := New(c, func(set source.Set) {
			if set.Objects == nil || len(set.Objects.Pods) != 1 || *set.Objects.Pods[0].Spec.Priority != 1 || len(set.Problems) > 0 != !served {
				t.Errorf("served %v: %+v", served, set)
			}
			cancel()
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := source.Run(ctx); err != nil {
			t.Error(err)
		}
	}
}

func serve(t *testing.T) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.tags = append(s.tags, r.Header.Get("If-None-Match"))
		answer := s.answer
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) set(h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer, s.tags = h, nil
}

func (s *server) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.tags...)
}

// text serves a text with a tag, if any.
func text(body, tag string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if tag != "" && r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		if tag != "" {
			w.Header().Set("ETag", tag)
		}
		_, _ = fmt.Fprint(w, body)
	}
}

type running struct {
	t    *testing.T
	sets chan source.Set
}

func start(t *testing.T, c Config) (r *running, stop func()) {
	t.Helper()
	r = &running{t: t, sets: make(chan source.Set)}
	ctx, cancel := context.WithCancel(t.Context())
	c.Interval = 5 * time.Millisecond
	s, err := New(c, func(s source.Set) {
		select {
		case r.sets <- s:
		case <-ctx.Done():
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		done <- nil
	}
	t.Cleanup(stop)
	return r, stop
}

// wait wants the very next set to be this.
func (r *running) wait(want, problem string) {
	r.t.Helper()
	var s source.Set
	select {
	case s = <-r.sets:
	case <-time.After(30 * time.Second):
		r.t.Fatalf("no set; %s is wanted, and the problem %q", want, problem)
	}
	got := "unknown"
	if s.Objects != nil {
		got = ""
		for _, p := range s.Objects.Pods {
			got += p.Name
		}
	}
	if got != want || (problem == "") != (len(s.Problems) == 0) || (problem != "" && !strings.Contains(s.Problems[0].Err.Error(), problem)) {
		r.t.Fatalf("got %s, %v; want %s and the problem %q", got, s.Problems, want, problem)
	}
}

func TestSource(t *testing.T) {
	s := serve(t)
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	s.set(status(http.StatusServiceUnavailable))
	r, _ := start(t, Config{URL: s.URL + "/pods?token=secret"})
	r.wait("unknown", s.URL+"/pods: it answers 503 Service Unavailable\n"+s.URL+"/pods: nothing of it runs until it is mended")
	s.set(text(pod("a"), `"1"`))
	r.wait("a", "")
	for len(s.asked()) < 3 { // asked again, and nothing was told
		time.Sleep(time.Millisecond)
	}
	if tags := s.asked(); tags[0] != "" || tags[1] != `"1"` || tags[2] != `"1"` {
		t.Errorf("it asked with %q", tags)
	}
	s.set(text("broken", `"2"`))
	r.wait("a", "is not an object")
	s.set(status(http.StatusNotFound))
	r.wait("a", "it answers 404 Not Found\n"+s.URL+"/pods: what it served before stays in force")
	s.set(text("broken", `"2"`)) // the same as before, and still not right
	r.wait("a", "is not an object")
	s.set(text(pod("a"), ""))
	r.wait("a", "")
	s.set(text("", ""))
	r.wait("a", "holds no document")
	s.set(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, manifest.MaxSize+1))
	})
	r.wait("a", "it serves more than 10 MiB; split it")
	s.set(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = fmt.Fprint(w, pod("half"))
	})
	r.wait("a", "read the answer: unexpected EOF")
	s.set(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
	})
	r.wait("a", "it redirects to http://192.0.2.1; use that address if you trust it")
	s.set(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) })
	r.wait("a", "it redirects more than 5 times")
	s.set(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/pods" {
			http.Redirect(w, r, "/there", http.StatusFound)
			return
		}
		_, _ = fmt.Fprint(w, pod("b"))
	})
	r.wait("b", "")
	s.Close()
	r.wait("b", "connection refused")
}

func TestHeaders(t *testing.T) {
	s := serve(t)
	s.set(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, pod(strings.ToLower(r.Header.Get("X-Name")+r.Host)))
	})
	r, _ := start(t, Config{URL: s.URL, Header: http.Header{"x-name": {"A"}, "Host": {"b"}}})
	r.wait("ab", "")
}

// TestKept ends a source, and starts another one while the address is gone.
func TestKept(t *testing.T) {
	s := serve(t)
	s.set(text(pod("a"), `"1"`))
	kept := keep.Folder(filepath.Join(t.TempDir(), "kept"))
	r, stop := start(t, Config{URL: s.URL, Keep: kept})
	r.wait("a", "")
	stop()
	s.set(text(pod("other"), `"1"`)) // which is not asked for, as the tag is the same
	r, stop = start(t, Config{URL: s.URL, Keep: kept})
	r.wait("a", "")
	stop()
	s.Close()
	r, stop = start(t, Config{URL: s.URL, Keep: kept})
	r.wait("a", "connection refused")
	stop()
	r, stop = start(t, Config{URL: s.URL + "/other", Keep: kept})
	r.wait("unknown", "connection refused")
	stop()
}

// TestNotKept cannot keep its copy for a while, as on a disk that is full, and keeps it once
// it can.
func TestNotKept(t *testing.T) {
	s := serve(t)
	s.set(text(pod("a"), `"1"`))
	full := filepath.Join(t.TempDir(), "full")
	if err := os.WriteFile(full, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	kept := keep.Folder(filepath.Join(full, "kept"))
	r, _ := start(t, Config{URL: s.URL, Keep: kept})
	r.wait("a", "not all are kept as they are now")
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	r.wait("a", "")
	if copies, err := kept.Load(); err != nil || len(copies) != 1 {
		t.Errorf("kept: %v, %v", copies, err)
	}
}

func TestAddresses(t *testing.T) {
	for _, text := range []string{"", "pods.yaml", "ftp://a/b", "http://", "http://a b/", "file:///etc/pods.yaml"} {
		if _, err := New(Config{URL: text}, nil); err == nil || !strings.Contains(err.Error(), "must begin with http://") {
			t.Errorf("%q: %v", text, err)
		}
	}
	s, err := New(Config{URL: "https://user:secret@example.org/a?token=secret#x"}, nil)
	if err != nil || strings.Contains(s.name, "secret") || s.Interval != DefaultInterval {
		t.Errorf("%+v, %v", s, err)
	}
}
