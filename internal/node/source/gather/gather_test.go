package gather

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"fairlead.run/internal/node/source"
)

func pod(name string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: c, image: i}]}\n"
}

// gathered follows sources until a set is so, and returns it.
func gathered(t *testing.T, c Config, so func(source.Set) bool) source.Set {
	t.Helper()
	c.Log = slog.New(slog.DiscardHandler)
	sets := make(chan source.Set, 100)
	s, err := New(c, func(s source.Set) { sets <- s })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer cancel()
	for {
		select {
		case got := <-sets:
			if so(got) {
				return got
			}
		case <-t.Context().Done():
			t.Fatal("the set does not come")
		}
	}
}

func whole(s source.Set) bool { return s.Objects != nil && len(s.Unread) == 0 }

func names(s source.Set) (out []string) {
	for _, p := range s.Objects.Pods {
		out = append(out, p.Name+" of "+p.From)
	}
	return out
}

// TestAll has a pod of each source, of which the folder is made.
func TestAll(t *testing.T) {
	dir := t.TempDir()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Who") != "node" {
			http.Error(w, "who are you", http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, pod("served"))
	}))
	defer server.Close()
	c := Config{
		Folder: filepath.Join(dir, "new"), Keep: filepath.Join(dir, "keep"), Input: strings.NewReader(pod("written")),
		Address: Address{URL: server.URL, Header: http.Header{"X-Who": {"node"}}},
	}
	got := gathered(t, c, whole)
	if want := []string{"served of http", "written of stdin"}; !slices.Equal(names(got), want) || len(got.Problems) > 0 {
		t.Errorf("%q, %v; want %q", names(got), got.Problems, want)
	}
	if err := os.WriteFile(filepath.Join(dir, "new", "a.yaml"), []byte(pod("filed")), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Input, c.Address = nil, Address{}
	// A file that was written a moment ago may be written on.
	got = gathered(t, c, func(s source.Set) bool { return whole(s) && len(s.Objects.Pods) > 0 })
	if want := []string{"filed of file"}; !slices.Equal(names(got), want) {
		t.Errorf("%q, want %q", names(got), want)
	}
	// A folder that was there is not made anew: what was in it may be wanted.
	if err := os.RemoveAll(filepath.Join(dir, "new")); err != nil {
		t.Fatal(err)
	}
	got = gathered(t, c, func(s source.Set) bool { return len(s.Problems) > 0 })
	if want := []string{"filed of file"}; !slices.Equal(names(got), want) {
		t.Errorf("%q, want %q", names(got), want)
	}
	// What is kept of one folder says nothing of another.
	c.Folder = filepath.Join(dir, "another")
	if got = gathered(t, c, func(s source.Set) bool { return whole(s) && len(s.Objects.Pods) == 0 }); len(got.Problems) > 0 {
		t.Errorf("%v", got.Problems)
	}
}

// TestNone has no source, and knows that there are no pods.
func TestNone(t *testing.T) {
	got := gathered(t, Config{}, func(source.Set) bool { return true })
	if !whole(got) || len(got.Objects.Pods) > 0 {
		t.Errorf("%+v", got)
	}
}

func TestWrong(t *testing.T) {
	_, err := New(Config{Address: Address{URL: "ftp://x"}}, func(source.Set) {})
	if err == nil || !strings.Contains(err.Error(), "http") {
		t.Error(err)
	}
}

// TestSingleFile takes a file of static pods in the place of a folder, which nobody else has.
func TestSingleFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pod")
	if err := os.WriteFile(path, []byte(pod("a")), 0o600); err != nil {
		t.Fatal(err)
	}
	got := gathered(t, Config{Folder: path, Keep: t.TempDir(), Static: true}, func(s source.Set) bool { return whole(s) && len(s.Objects.Pods) > 0 })
	if got := names(got); !slices.Equal(got, []string{"a of file"}) {
		t.Errorf("%q", got)
	}
	if _, err := New(Config{Folder: path, Keep: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, nil); err == nil {
		t.Error("one machine has a file for a folder")
	}
}
