package userids

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/errdefs"
)

func pool(folder string, pods uint32) *Pool {
	return &Pool{folder: folder, find: func(context.Context) (Range, error) { return Range{First: Length, Pods: pods}, nil }}
}

// TestPool gives no range twice, to a process that was killed the same again, and those of
// pods that are gone to others.
func TestPool(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "ids")
	p := pool(folder, 3)
	if err := p.Free("nobody"); err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]types.UID{}
	for _, uid := range []types.UID{"a", "b", "c"} {
		first, err := p.Take(t.Context(), uid)
		if err != nil || seen[first] != "" || first%Length != 0 || first < Length || first > 3*Length {
			t.Fatalf("%s: %d, %v", uid, first, err)
		}
		seen[first] = uid
	}
	if _, err := p.Take(t.Context(), "d"); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Errorf("a fourth pod: %v", err)
	}
	later := pool(folder, 3) // after kill -9
	for first, uid := range seen {
		if again, err := later.Take(t.Context(), uid); err != nil || again != first {
			t.Errorf("%s had %d, and has %d: %v", uid, first, again, err)
		}
	}
	if err := later.Free("b"); err != nil {
		t.Fatal(err)
	}
	if first, err := p.Take(t.Context(), "d"); err != nil || seen[first] != "b" {
		t.Errorf("%d, %v", first, err)
	}
	if err := os.WriteFile(filepath.Join(folder, "no number"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Free("d"); err != nil {
		t.Error(err)
	}
}

// TestPoolOfTwo has two processes take ids at the same time.
func TestPoolOfTwo(t *testing.T) {
	folder := t.TempDir()
	pools := []*Pool{pool(folder, 40), pool(folder, 40)}
	var mu sync.Mutex
	seen := map[uint32]bool{}
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			first, err := pools[i%2].Take(t.Context(), types.UID(fmt.Sprint("pod-", i)))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[first] {
				t.Errorf("%d, %v", first, err)
			}
			seen[first] = true
		})
	}
	all.Wait()
}

func TestParse(t *testing.T) {
	const two = "0: kubelet 65536 131072"
	for name, c := range map[string]struct {
		users, groups string
		want          Range
		fails         bool
	}{
		"nothing":             {"", "", standard, false},
		"both":                {two, two, Range{65536, 2}, false},
		"users alone":         {two, "", Range{}, true},
		"others for groups":   {two, "0: kubelet 131072 131072", Range{}, true},
		"two ranges":          {two + "\n1: kubelet 1966080 65536", two, Range{}, true},
		"ids of the machine":  {"0: kubelet 0 65536", "0: kubelet 0 65536", Range{}, true},
		"no multiple":         {"0: kubelet 100000 65536", "0: kubelet 100000 65536", Range{}, true},
		"too few":             {"0: kubelet 65536 1000", "0: kubelet 65536 1000", Range{}, true},
		"none":                {"0: kubelet 65536 0", "0: kubelet 65536 0", Range{}, true},
		"beyond the last one": {"0: kubelet 4294901760 131072", "0: kubelet 4294901760 131072", Range{}, true},
		"no number":           {"0: kubelet x 65536", "0: kubelet x 65536", Range{}, true},
		"another program's":   {"usage: getsubids", "usage: getsubids", Range{}, true},
	} {
		got, err := parse(c.users, c.groups)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("0: kubelet 65536 131072", "0: kubelet 65536 131072")
	f.Fuzz(func(t *testing.T, users, groups string) {
		r, err := parse(users, groups)
		if err == nil && (r.First < Length || r.Pods == 0 || uint64(r.First)+uint64(r.Pods)*Length > 1<<32-1) {
			t.Errorf("%+v", r)
		}
	})
}
