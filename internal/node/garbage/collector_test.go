package garbage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/logs/links"
)

// fakeCRI is a runtime and an image service in memory.
type fakeCRI struct {
	runtimeapi.RuntimeServiceClient
	runtimeapi.ImageServiceClient

	mu         sync.Mutex
	images     []*runtimeapi.Image
	containers []*runtimeapi.Container
	sandboxes  []*runtimeapi.PodSandbox
	logs       map[string]string // by container
	disk       Disk
	fail       map[string]error // by id
	hang       map[string]bool
	blind      error // of lists
	removed    []string
}

func (f *fakeCRI) ListImages(context.Context, *runtimeapi.ListImagesRequest, ...grpc.CallOption) (*runtimeapi.ListImagesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.ListImagesResponse{Images: slices.Clone(f.images)}, f.blind
}

func (f *fakeCRI) ListContainers(context.Context, *runtimeapi.ListContainersRequest, ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.ListContainersResponse{Containers: slices.Clone(f.containers)}, f.blind
}

func (f *fakeCRI) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &runtimeapi.ListPodSandboxResponse{Items: slices.Clone(f.sandboxes)}, f.blind
}

func (f *fakeCRI) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{LogPath: f.logs[r.ContainerId]}}, nil
}

func (f *fakeCRI) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest, ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/images"}}}}, nil
}

// remove is any removal.
func (f *fakeCRI) remove(ctx context.Context, id string) error {
	if f.hang[id] {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fail[id]; err != nil {
		return err
	}
	f.removed = append(f.removed, id)
	f.images = slices.DeleteFunc(f.images, func(i *runtimeapi.Image) bool {
		if i.Id == id {
			f.disk.Available += i.Size
		}
		return i.Id == id
	})
	f.containers = slices.DeleteFunc(f.containers, func(c *runtimeapi.Container) bool { return c.Id == id })
	f.sandboxes = slices.DeleteFunc(f.sandboxes, func(s *runtimeapi.PodSandbox) bool { return s.Id == id })
	return nil
}

func (f *fakeCRI) RemoveImage(ctx context.Context, r *runtimeapi.RemoveImageRequest, _ ...grpc.CallOption) (*runtimeapi.RemoveImageResponse, error) {
	return &runtimeapi.RemoveImageResponse{}, f.remove(ctx, r.Image.Image)
}

func (f *fakeCRI) RemoveContainer(ctx context.Context, r *runtimeapi.RemoveContainerRequest, _ ...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error) {
	return &runtimeapi.RemoveContainerResponse{}, f.remove(ctx, r.ContainerId)
}

func (f *fakeCRI) StopPodSandbox(context.Context, *runtimeapi.StopPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.StopPodSandboxResponse, error) {
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (f *fakeCRI) RemovePodSandbox(ctx context.Context, r *runtimeapi.RemovePodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RemovePodSandboxResponse, error) {
	return &runtimeapi.RemovePodSandboxResponse{}, f.remove(ctx, r.PodSandboxId)
}

// took is what was removed since the last call, sorted.
func (f *fakeCRI) took() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.removed)
	out := strings.Join(f.removed, " ")
	f.removed = nil
	return out
}

func collector(t *testing.T, f *fakeCRI, c Config) *Collector {
	t.Helper()
	c.Runtime, c.Images = f, f
	c.Measure = func(_ context.Context, path string) (Disk, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if path != "/images" {
			t.Errorf("measured %s", path)
		}
		return f.disk, nil
	}
	if c.Wanted == nil {
		c.Wanted = func(uid string) bool { return uid != "gone" }
	}
	if c.ImagePolicy == (ImagePolicy{}) {
		c.ImagePolicy = DefaultImagePolicy
	}
	out, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func image(id string, size uint64) *runtimeapi.Image {
	return &runtimeapi.Image{Id: id, Size: size, RepoTags: []string{id + ":1"}}
}

// The disk fills up, so images go: the least recently used first, none that is
// needed, and others for those that cannot be removed.
func TestDiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeCRI{disk: Disk{1000, 500}, fail: map[string]error{"b": errors.New("busy")}}
		for _, id := range []string{"a", "b", "c", "d", "used", "volume", "needed", "pinned"} {
			f.images = append(f.images, image(id, 30))
		}
		f.images[7].Pinned = true
		f.containers = []*runtimeapi.Container{container(t, "p/m/1 r"), container(t, "p/d/1 r")}
		f.containers[0].ImageId = "used"
		f.containers[1].Image = &runtimeapi.ImageSpec{Image: "d:1"}
		var left []string
		c := collector(t, f, Config{
			Keep:   func() []string { return []string{"volume:1"} },
			Needed: func(id string) time.Time { return map[string]time.Time{"needed": time.Now()}[id] },
			Left:   func(ids []string, _ time.Time) { left = ids },
		})
		collect := func(want string) error {
			t.Helper()
			err := c.CollectImages(t.Context())
			if got := f.took(); got != want {
				t.Errorf("removed %q, want %q", got, want)
			}
			return err
		}
		if err := collect(""); err != nil || len(left) != 8 {
			t.Errorf("with space: %v, left %q", err, left)
		}
		f.disk.Available = 100 // 90 % are used, and 100 bytes have to go
		if err := collect(""); err == nil || !strings.Contains(err.Error(), "images that may go had 0 MiB") {
			t.Errorf("too young: %v", err)
		}
		time.Sleep(time.Hour)
		f.containers = f.containers[:1] // d was used until now
		f.disk.Available = 145          // 86 %, and 55 bytes
		if err := collect("a c"); err == nil || !strings.Contains(err.Error(), "remove image b: busy") || errors.As(err, new(notFreed)) {
			t.Errorf("one fails: %v", err)
		}
		f.fail, f.disk.Available = nil, 0
		err := collect("b d")
		if !errors.As(err, new(notFreed)) {
			t.Errorf("too few: %v", err)
		}
		if want := []string{"used", "volume", "needed", "pinned"}; !slices.Equal(left, want) {
			t.Errorf("left %q, want %q", left, want)
		}
		if len(c.seen) != 4 {
			t.Errorf("remembered: %v", c.seen)
		}
	})
}

func TestMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeCRI{disk: Disk{1000, 900}, images: []*runtimeapi.Image{image("a", 1), image("b", 1)}}
		f.containers = []*runtimeapi.Container{container(t, "p/m/1 x")}
		f.containers[0].ImageId = "a"
		p := DefaultImagePolicy
		p.MaxAge = time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		c := collector(t, f, Config{ImagePolicy: p, ContainerPolicy: DefaultContainerPolicy})
		go func() { done <- c.Run(ctx) }()
		for _, step := range []struct {
			after time.Duration
			want  string
		}{{59 * time.Minute, ""}, {7 * time.Minute, "b"}, {10 * time.Hour, ""}} {
			time.Sleep(step.after)
			synctest.Wait()
			if got := f.took(); got != step.want {
				t.Errorf("after %s more: removed %q, want %q", step.after, got, step.want)
			}
		}
		f.mu.Lock()
		f.containers = nil
		f.mu.Unlock()
		time.Sleep(59 * time.Minute)
		if got := f.took(); got != "" {
			t.Errorf("removed %q an hour after it was used", got)
		}
		time.Sleep(10 * time.Minute)
		if got := f.took(); got != "a" {
			t.Errorf("removed %q", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Containers, sandboxes and logs go in one pass, and what fails or hangs keeps
// nothing else from it.
func TestCollectDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f := &fakeCRI{
			logs: map[string]string{"a/m/1": dir + "/ns_a_a/m/0.log", "gone/m/1": "/elsewhere/0.log"},
			fail: map[string]error{"b/m/1": errors.New("busy"), "c/m/1": status.Error(codes.NotFound, "it is not there")},
			hang: map[string]bool{"d/m/1": true},
		}
		for _, text := range []string{"a/m/1 x", "a/m/2 r", "b/m/1 x", "b/m/2 x", "c/m/1 x", "c/m/2 x", "d/m/1 x", "d/m/2 x", "e/m/1 x", "e/m/2 x", "gone/m/1 x"} {
			f.containers = append(f.containers, container(t, text))
		}
		f.containers[10].PodSandboxId = "gone/1"
		for _, text := range []string{"a/1", "a/2!", "gone/1", "gone/2!"} {
			f.sandboxes = append(f.sandboxes, sandbox(text))
		}
		for _, name := range []string{"ns_a_a/m/0.log", "ns_a_a/m/0.log.20260102-030405.gz", "ns_a_a/m/1.log", "ns_x_gone/m/0.log", "ns_y_lost/m/0.log", "lost2/m/0.log"} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := links.Make(links.Folder(dir), links.Container{Name: strings.ReplaceAll(name, "/", "-"), Log: path}); err != nil {
				t.Fatal(err)
			}
		}
		linked := func() (n int) {
			entries, err := os.ReadDir(links.Folder(dir))
			if err != nil {
				t.Fatal(err)
			}
			return len(entries)
		}
		wanted := func(uid string) bool { return uid != "gone" && !strings.HasPrefix(uid, "lost") }
		c := collector(t, f, Config{Logs: dir, ContainerPolicy: ContainerPolicy{PerPod: 1, OfAllPods: -1}, Wanted: wanted})
		begin := time.Now()
		err := c.CollectDead(t.Context())
		if err == nil || !strings.Contains(err.Error(), "remove container b/m/1 of pod b: busy") || !strings.Contains(err.Error(), "remove container d/m/1") || strings.Contains(err.Error(), "c/m/1") {
			t.Errorf("err = %v", err)
		}
		if took := time.Since(begin); took != callLimit {
			t.Errorf("it took %s", took)
		}
		if got := f.took(); got != "a/1 e/m/1 gone/1 gone/m/1" {
			t.Errorf("removed %q", got)
		}
		var files []string
		if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, _ error) error {
			if !d.IsDir() {
				files = append(files, strings.TrimPrefix(path, dir+"/"))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if want := []string{"ns_a_a/m/0.log", "ns_a_a/m/0.log.20260102-030405.gz", "ns_a_a/m/1.log", "ns_x_gone/m/0.log"}; !slices.Equal(files, want) {
			t.Errorf("logs: %q, want %q", files, want)
		} else if linked() != len(want) {
			t.Errorf("%d links are left", linked())
		}
		// The one attempt more, and its log with all that was rotated away.
		f.containers = append(f.containers, container(t, "a/m/0 x"))
		f.logs["a/m/0"] = dir + "/ns_a_a/m/0.log"
		f.hang, f.fail = nil, nil
		f.sandboxes = slices.DeleteFunc(f.sandboxes, func(s *runtimeapi.PodSandbox) bool { return s.Metadata.Uid == "gone" })
		if err := c.CollectDead(t.Context()); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadDir(dir); err != nil || len(got) != 1 {
			t.Errorf("left: %v, %v", got, err)
		}
		if got, err := os.ReadDir(dir + "/ns_a_a/m"); err != nil || len(got) != 1 || linked() != 1 {
			t.Errorf("left: %v, %d links, %v", got, linked(), err)
		}
	})
}

// Nothing is removed by a list that could not be had, and a failure is told
// once, and again after half an hour.
func TestBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Mkdir(dir+"/gone", 0o700); err != nil {
			t.Fatal(err)
		}
		f := &fakeCRI{blind: errors.New("refused"), disk: Disk{1000, 0}}
		var mu sync.Mutex
		told := map[string]int{}
		c := collector(t, f, Config{Logs: dir, Failed: func(reason string, _ error) {
			mu.Lock()
			defer mu.Unlock()
			told[reason]++
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(59 * time.Minute)
		mu.Lock()
		if len(told) != 2 || told[ImageGCFailed] != 2 || told[ContainerGCFailed] != 2 {
			t.Errorf("told: %v", told)
		}
		mu.Unlock()
		if _, err := os.Stat(dir + "/gone"); err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		f.blind = nil
		f.mu.Unlock()
		time.Sleep(10 * time.Minute)
		f.mu.Lock()
		f.blind = errors.New("refused")
		f.mu.Unlock()
		time.Sleep(10 * time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if told[ImageGCFailed] != 3 || told[ContainerGCFailed] != 3 || told[FreeDiskSpaceFailed] != 1 {
			t.Errorf("told: %v", told)
		}
		if _, err := os.Stat(dir + "/gone"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the logs of a pod that is gone are left: %v", err)
		}
	})
}

// What eviction asks for.
func TestDeleteUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeCRI{disk: Disk{1000, 900}, images: []*runtimeapi.Image{image("a", 5), image("used", 7)}}
		for _, text := range []string{"finished/m/1 x", "running/init/1 x", "running/m/2 r"} {
			f.containers = append(f.containers, container(t, text))
		}
		f.containers[2].ImageId = "used"
		c := collector(t, f, Config{ContainerPolicy: DefaultContainerPolicy, Finished: func(uid string) bool { return uid == "finished" }})
		if err := c.CollectDead(t.Context()); err != nil || f.took() != "" {
			t.Error(err)
		}
		if err := c.DeleteUnusedContainers(t.Context()); err != nil {
			t.Error(err)
		}
		if got := f.took(); got != "finished/m/1" {
			t.Errorf("removed %q", got)
		}
		if freed, err := c.DeleteUnusedImages(t.Context()); err != nil || freed != 0 {
			t.Errorf("too young: %d, %v", freed, err)
		}
		time.Sleep(time.Hour)
		if freed, err := c.DeleteUnusedImages(t.Context()); err != nil || freed != 5 || f.took() != "a" {
			t.Errorf("%d, %v", freed, err)
		}
	})
}

func TestMeasure(t *testing.T) {
	d, err := measure(t.Context(), t.TempDir())
	if err != nil || d.Capacity == 0 || d.Available > d.Capacity {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := measure(t.Context(), "/nowhere"); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Error(err)
	}
}

// What another one of the node has made stays, and its images and logs count.
func TestOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f := &fakeCRI{disk: Disk{1000, 0}, images: []*runtimeapi.Image{image("theirs", 5), image("a", 5)}}
		for _, text := range []string{"theirs/m/1 x", "gone/m/1 x", "gone/m/2 x"} {
			f.containers = append(f.containers, container(t, text))
		}
		f.containers[0].PodSandboxId, f.containers[0].ImageId = "theirs/1", "theirs"
		f.containers[1].PodSandboxId = "gone/1"
		f.containers[2].PodSandboxId = "made since" // it is in no list
		f.sandboxes = []*runtimeapi.PodSandbox{sandbox("theirs/1"), sandbox("gone/1")}
		for _, name := range []string{"theirs", "gone", "nobody"} {
			if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		c := collector(t, f, Config{
			Logs: dir, ContainerPolicy: DefaultContainerPolicy, Wanted: func(string) bool { return false },
			Mine: func(s *runtimeapi.PodSandbox) bool { return s.Metadata.Uid != "theirs" },
		})
		if err := c.CollectDead(t.Context()); err != nil {
			t.Error(err)
		}
		if got := f.took(); got != "gone/1 gone/m/1" {
			t.Errorf("removed %q", got)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 2 || left[0].Name() != "gone" || left[1].Name() != "theirs" {
			t.Errorf("logs: %v, %v", left, err)
		}
		time.Sleep(time.Hour)
		_ = c.CollectImages(t.Context())
		time.Sleep(time.Hour)
		_ = c.CollectImages(t.Context())
		if got := f.took(); got != "a" {
			t.Errorf("removed %q", got)
		}
	})
}
