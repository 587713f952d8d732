package rotate

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/logs"
)

// fakeCRI is a runtime that appends to whatever file it has open.
type fakeCRI struct {
	runtimeapi.RuntimeServiceClient
	t *testing.T

	mu      sync.Mutex
	paths   map[string]string
	open    map[string]*os.File
	reopens map[string]int
	asked   map[string]int // for statuses
	refuse  error          // of ReopenContainerLog, before it does anything
	fail    error          // and after
	hang    string         // the container whose log is never opened
}

func newFake(t *testing.T) *fakeCRI {
	f := &fakeCRI{t: t, paths: map[string]string{}, open: map[string]*os.File{}, reopens: map[string]int{}, asked: map[string]int{}}
	t.Cleanup(func() {
		for _, file := range f.open {
			_ = file.Close()
		}
	})
	return f
}

func (f *fakeCRI) start(id, path string) {
	f.t.Helper()
	f.paths[id] = path
	if path != "" {
		f.openLog(id)
	}
}

func (f *fakeCRI) openLog(id string) {
	file, err := os.OpenFile(f.paths[id], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		f.t.Error(err)
		return
	}
	if old := f.open[id]; old != nil {
		_ = old.Close()
	}
	f.open[id] = file
}

func (f *fakeCRI) write(id, text string) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.open[id].WriteString(text); err != nil {
		f.t.Error(err)
	}
}

func (f *fakeCRI) ListContainers(_ context.Context, r *runtimeapi.ListContainersRequest, _ ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	if r.Filter.GetState().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING || r.Filter.State == nil {
		f.t.Errorf("asked for %v, want those that run", r.Filter)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &runtimeapi.ListContainersResponse{}
	for id := range f.paths {
		out.Containers = append(out.Containers, &runtimeapi.Container{Id: id})
	}
	return out, nil
}

func (f *fakeCRI) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[r.ContainerId]++
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{LogPath: f.paths[r.ContainerId]}}, nil
}

func (f *fakeCRI) ReopenContainerLog(ctx context.Context, r *runtimeapi.ReopenContainerLogRequest, _ ...grpc.CallOption) (*runtimeapi.ReopenContainerLogResponse, error) {
	if r.ContainerId == f.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reopens[r.ContainerId]++
	if f.refuse != nil {
		return nil, f.refuse
	}
	f.openLog(r.ContainerId)
	return &runtimeapi.ReopenContainerLogResponse{}, f.fail
}

func newRotator(t *testing.T, c Config) *Rotator {
	t.Helper()
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// run runs it until the function that is returned is called.
func run(t *testing.T, r *Rotator) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var from io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if from, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	data, err := io.ReadAll(from)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// A container prints a lot while somebody follows it: the reader has every line
// once, and the files are as many as they may be, with the last lines in them.
func TestNothingIsLost(t *testing.T) {
	const lines = 4000
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log")
	fake := newFake(t)
	fake.start("c", path)
	r := newRotator(t, Config{Runtime: fake, Size: 16 << 10, Files: 4, Interval: time.Millisecond})
	end := run(t, r)

	ended := make(chan struct{})
	var got []string
	var reached atomic.Int64
	read := make(chan error, 1)
	go func() {
		read <- logs.Read(context.Background(), path, logs.Options{Tail: -1, Follow: true, Ended: ended}, func(l logs.Line) error {
			got = append(got, string(l.Text))
			reached.Add(1)
			return nil
		})
	}()
	var want []string
	for i := range lines {
		line := fmt.Sprintf("line %d %s", i, strings.Repeat("x", 50))
		want = append(want, line)
		fake.write("c", "2026-01-02T03:04:05.000000006Z stdout F "+line+"\n")
		// What a reader is several files behind is removed before it comes to it.
		for deadline := time.Now().Add(time.Minute); i%100 == 0 && reached.Load() < int64(i); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the reader stays at line %d of %d", reached.Load(), i)
			}
		}
	}
	close(ended)
	if err := <-read; err != nil || !slices.Equal(got, want) {
		t.Errorf("%d lines were read of %d, %v", len(got), len(want), err)
	}
	fake.mu.Lock()
	reopens := fake.reopens["c"]
	fake.mu.Unlock()
	if reopens < 4 {
		t.Fatalf("rotated %d times; the test needs more", reopens)
	}
	for deadline := time.Now().Add(time.Minute); !atRest(r, path); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the rotator does not come to rest")
		}
	}
	end()
	var kept []string
	err := logs.Read(t.Context(), path, logs.Options{Tail: -1, Rotated: true}, func(l logs.Line) error {
		kept = append(kept, string(l.Text))
		return nil
	})
	if err != nil || len(kept) == 0 || !slices.Equal(kept, want[len(want)-len(kept):]) {
		t.Errorf("what is kept are not the last %d lines: %v", len(kept), err)
	}
	files := names(t, dir)
	if len(files) != 4 {
		t.Errorf("files: %q", files)
	}
	for i, name := range files[1:] {
		if plain := !strings.HasSuffix(name, ".gz"); plain != (i == len(files)-2) {
			t.Errorf("files: %q; all but the newest are compressed", files)
		}
	}
}

// atRest says that nothing is to do any more.
func atRest(r *Rotator, path string) bool {
	if r.needs(path) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.busy) == 0
}

func TestRotate(t *testing.T) {
	path := func(dir string) string { return filepath.Join(dir, "0.log") }
	tests := []struct {
		name    string
		files   []string // beside the log, with the name as content
		want    []string // NOW is the new one's stamp
		refuse  error
		fail    error
		problem string
		log     string // what the current file has then
	}{
		{"first", nil, []string{"0.log", "0.log.NOW"}, nil, nil, "", ""},
		{"compresses", []string{"0.log.20250101-000000"}, []string{"0.log", "0.log.20250101-000000.gz", "0.log.NOW"}, nil, nil, "", ""},
		{
			"removes",
			[]string{"0.log.20250101-000000.gz", "0.log.20250101-000001", "0.log.20250101-000002", "0.log.20250101-000003"},
			[]string{"0.log", "0.log.20250101-000002.gz", "0.log.20250101-000003.gz", "0.log.NOW"},
			nil, nil, "", "",
		},
		{
			"tidies",
			[]string{"0.log.20250101-000000", "0.log.20250101-000000.gz", "0.log.20250101-000001", "0.log.20250101-000001.tmp"},
			[]string{"0.log", "0.log.20250101-000000.gz", "0.log.20250101-000001.gz", "0.log.NOW"},
			nil, nil, "", "",
		},
		{
			"leaves others alone",
			[]string{"0.log.bak", "1.log.20250101-000000", "10.log.20250101-000000.tmp", "0.log.tmp"},
			[]string{"0.log", "0.log.NOW", "0.log.bak", "0.log.tmp", "1.log.20250101-000000", "10.log.20250101-000000.tmp"},
			nil, nil, "", "",
		},
		{"after a time to come", []string{"0.log.29990101-000000"}, []string{"0.log", "0.log.29990101-000000.gz", "0.log.29990101-000001"}, nil, nil, "", ""},
		{"the runtime refuses", nil, []string{"0.log"}, errors.New("no"), nil, "have the runtime open a new log: no", "current"},
		{"the runtime fails later", nil, []string{"0.log", "0.log.NOW"}, nil, errors.New("late"), "late", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			fake := newFake(t)
			fake.start("c", path(dir))
			fake.write("c", "current")
			fake.refuse, fake.fail = tt.refuse, tt.fail
			for _, name := range tt.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.TrimSuffix(name, ".gz")), 0o640); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range tt.files {
				if strings.HasSuffix(name, ".gz") {
					zip(t, filepath.Join(dir, name), strings.TrimSuffix(name, ".gz"))
				}
			}
			before := time.Now().UTC().Format(logs.Stamp)
			err := newRotator(t, Config{Runtime: fake, Files: 4}).rotate(t.Context(), Container{"c", path(dir)})
			if tt.problem == "" && err != nil || tt.problem != "" && (err == nil || !strings.Contains(err.Error(), tt.problem)) {
				t.Errorf("err = %v, want %q", err, tt.problem)
			}
			var got []string
			for _, name := range names(t, dir) {
				full := filepath.Join(dir, name)
				if stamp, ok := strings.CutPrefix(name, "0.log."); ok && stamp >= before && stamp < "2999" {
					if name = "0.log.NOW"; content(t, full) != "current" {
						t.Errorf("the file that was rotated away has %q", content(t, full))
					}
				} else if name != "0.log" && !strings.HasPrefix(name, "0.log.29990101-000001") && content(t, full) != strings.TrimSuffix(name, ".gz") {
					t.Errorf("%s has %q", name, content(t, full))
				}
				got = append(got, name)
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("files: %q, want %q", got, tt.want)
			}
			fake.write("c", "!")
			if got := content(t, path(dir)); got != tt.log+"!" {
				t.Errorf("the log has %q, want %q", got, tt.log+"!")
			}
		})
	}
}

func zip(t *testing.T, path, text string) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o640); err != nil {
		t.Fatal(err)
	}
}

// A compressed file has the mode and time of what it was made from, and what is
// cut off leaves nothing.
func TestCompress(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "0.log.20250101-000000")
	if err := os.WriteFile(path, []byte("text"), 0o640); err != nil {
		t.Fatal(err)
	}
	then := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := compress(ctx, path); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"0.log.20250101-000000"}) {
		t.Errorf("cut off: %q", got)
	}
	if err := compress(t.Context(), path); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(path + ".gz")
	if err != nil || info.Mode() != 0o640 || !info.ModTime().Equal(then) {
		t.Errorf("%v, %v", info, err)
	}
	if err := compress(t.Context(), path); err != nil {
		t.Errorf("of what is not there any more: %v", err)
	}
}

// Only what has its size is rotated, and each container's log is asked for once.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		fake := newFake(t)
		for _, id := range []string{"big", "small", "gone", "folder", "hung"} {
			fake.start(id, filepath.Join(dir, id+".log"))
		}
		fake.start("none", "")
		fake.write("big", strings.Repeat("x", 100))
		fake.write("hung", strings.Repeat("x", 100))
		fake.write("small", "x")
		for _, id := range []string{"gone", "folder"} {
			if err := os.Remove(fake.paths[id]); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Mkdir(fake.paths["folder"], 0o700); err != nil {
			t.Fatal(err)
		}
		fake.hang = "hung"
		var told bytes.Buffer
		end := run(t, newRotator(t, Config{Runtime: fake, Size: 100, Log: slog.New(slog.NewTextHandler(&told, nil))}))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		fake.mu.Lock()
		for id, want := range map[string]int{"big": 1, "gone": 1, "small": 0, "folder": 0, "none": 0} {
			if fake.reopens[id] != want || fake.asked[id] != 1 {
				t.Errorf("%s: opened anew %d times, want %d; asked %d times", id, fake.reopens[id], want, fake.asked[id])
			}
		}
		fake.mu.Unlock()
		end()
		if n := strings.Count(told.String(), "\n"); n != 1 || !strings.Contains(told.String(), "container=hung") {
			t.Errorf("told %d times: %s", n, &told)
		}
		if got := content(t, fake.paths["hung"]); len(got) != 100 {
			t.Errorf("the log that is not rotated has %d bytes", len(got))
		}
	})
}

func TestNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		end := run(t, newRotator(t, Config{Runtime: fake, Size: -1, List: func(context.Context) ([]Container, error) {
			t.Error("asked")
			return nil, nil
		}}))
		time.Sleep(time.Hour)
		end()
	})
	if _, err := New(Config{Files: 1}); err == nil || !strings.Contains(err.Error(), "2 is the least") {
		t.Error(err)
	}
}

// A listing that fails is told once, and again after it has worked.
func TestListFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told bytes.Buffer
		n, failures := 0, 0
		failed := func(err error) {
			if err.Error() != "logs of containers are not rotated: refused" {
				t.Error(err)
			}
			failures++
		}
		end := run(t, newRotator(t, Config{Log: slog.New(slog.NewTextHandler(&told, nil)), Failed: failed, List: func(context.Context) ([]Container, error) {
			if n++; n%5 == 0 {
				return nil, nil
			}
			return nil, errors.New("refused")
		}}))
		time.Sleep(95 * time.Second)
		end()
		if got := strings.Count(told.String(), "refused"); got != 2 || failures != 2 {
			t.Errorf("told %d and %d times: %s", got, failures, &told)
		}
	})
}

// One that goes on is told again before its event is forgotten.
func TestListFailsForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 0
		end := run(t, newRotator(t, Config{Failed: func(error) { failures++ }, List: func(context.Context) ([]Container, error) {
			return nil, errors.New("refused")
		}}))
		time.Sleep(59 * time.Minute)
		end()
		if failures != 2 {
			t.Errorf("told %d times", failures)
		}
	})
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"0.log", "0.log.20250101-000000", "0.log.20250101-000001.gz", "0.log.20250101-000002.tmp", "0.log.bak", "1.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := Remove(filepath.Join(dir, "0.log")); err != nil {
			t.Error(err)
		}
		if got := names(t, dir); !slices.Equal(got, []string{"0.log.bak", "1.log"}) {
			t.Errorf("left: %q", got)
		}
	}
	if err := Remove(filepath.Join(dir, "none", "0.log")); err != nil {
		t.Error(err)
	}
}
