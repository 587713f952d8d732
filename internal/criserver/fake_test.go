package criserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// fake stands for everything behind the server. It keeps what it was asked and
// answers from what the test put into it.
type fake struct {
	mu       sync.Mutex
	err      error // of every call that can fail
	pods     []*pod.Record
	calls    []string
	config   pod.Config
	ctr      pod.ContainerConfig
	handlers []pod.HandlerInfo
	network  error
	cidrs    []netip.Prefix
	images   []Image
	pull     ImagePull
	sync     func(context.Context) (*cri.ExecSyncResponse, error)
	attach   *cri.AttachRequest
	used     pod.ContainerUsage
	podUsed  pod.Usage
	ended    map[string]error
	before   time.Time // when metrics were measured
	notices  chan pod.Notice
	files    []map[string][]byte // of checkpoints
}

func (f *fake) call(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	return f.err
}

func (f *fake) RunPod(_ context.Context, cfg pod.Config, handler string) (pod.ID, error) {
	f.config = cfg
	return "newpod", f.call("RunPod %s on %q", cfg.Metadata.Name, handler)
}
func (f *fake) StopPod(_ context.Context, id pod.ID) error   { return f.call("StopPod %s", id) }
func (f *fake) RemovePod(_ context.Context, id pod.ID) error { return f.call("RemovePod %s", id) }
func (f *fake) ResizePod(_ context.Context, id pod.ID, containers, overhead *pod.Resources) error {
	return f.call("ResizePod %s to %v and %v", id.Short(), containers, overhead)
}
func (f *fake) Pods() []*pod.Record { return f.pods }

func (f *fake) FindPod(id string) (*pod.Record, error) {
	var found []*pod.Record
	for _, p := range f.pods {
		if strings.HasPrefix(string(p.ID), id) && id != "" {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("pod %q: %w", id, errdefs.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("pod %q is ambiguous: %w", id, errdefs.ErrInvalidArgument)
}

func (f *fake) CreateContainer(_ context.Context, id pod.ID, cfg pod.ContainerConfig) (pod.ContainerID, error) {
	f.ctr = cfg
	return "newcontainer", f.call("CreateContainer %s in %s", cfg.Metadata.Name, id)
}

func (f *fake) StartContainer(_ context.Context, id pod.ContainerID) error {
	return f.call("StartContainer %s", id)
}

func (f *fake) StopContainer(_ context.Context, id pod.ContainerID, grace time.Duration) error {
	return f.call("StopContainer %s after %s", id, grace)
}

func (f *fake) RemoveContainer(_ context.Context, id pod.ContainerID) error {
	return f.call("RemoveContainer %s", id)
}

func (f *fake) FindContainer(id string) (*pod.Record, *pod.Container, error) {
	for _, p := range f.pods {
		for _, c := range p.Containers {
			if strings.HasPrefix(string(c.ID), id) && id != "" {
				return p, c, nil
			}
		}
	}
	return nil, nil, fmt.Errorf("container %q: %w", id, errdefs.ErrNotFound)
}

func (f *fake) UpdateContainer(_ context.Context, id pod.ContainerID, res *pod.Resources) error {
	return f.call("UpdateContainer %s to %d", id, res.MemoryLimit)
}

func (f *fake) ReopenLog(_ context.Context, id pod.ContainerID) error {
	return f.call("ReopenLog %s", id)
}

func (f *fake) CheckpointContainer(_ context.Context, id pod.ContainerID, q pod.Checkpoint) error {
	f.files = append(f.files, q.Files)
	return f.call("CheckpointContainer %s to %s within %s", id.Short(), q.Location, q.Timeout)
}

func (f *fake) CheckpointPod(_ context.Context, id pod.ID, q pod.PodCheckpoint) error {
	f.files = append(f.files, q.Files)
	for _, files := range q.ContainerFiles {
		f.files = append(f.files, files)
	}
	return f.call("CheckpointPod %s of %d to %s", id.Short(), len(q.Containers), q.Location)
}

func (f *fake) RestorePod(_ context.Context, q pod.Restore) (pod.ID, []pod.Restored, error) {
	f.config = q.Config
	err := f.call("RestorePod %s from %s on %q with %d", q.Config.Metadata.Name, q.From, q.Handler, len(q.Containers))
	return "newpod", []pod.Restored{{Name: "c", ID: "newcontainer"}}, err
}

func (f *fake) Follow() (<-chan pod.Notice, func()) {
	_ = f.call("follow")
	return f.notices, func() { _ = f.call("stop following") }
}

type fakeHandlers struct{ *fake }

func (f fakeHandlers) List() []pod.HandlerInfo { return f.handlers }

type fakeNetwork struct{ *fake }

func (f fakeNetwork) Status(context.Context) error { return f.network }

func (f fakeNetwork) SetPodCIDR(_ context.Context, ranges []netip.Prefix) error {
	f.cidrs = ranges
	return f.call("SetPodCIDR %s", ranges)
}

type fakeImages struct{ *fake }

func (f fakeImages) Pull(_ context.Context, p ImagePull) (string, error) {
	f.pull = p
	return "sha256:pulled", f.call("Pull %s", p.Ref)
}
func (f fakeImages) List(context.Context) ([]Image, error) { return f.images, f.call("List") }

func (f fakeImages) Find(_ context.Context, ref string) (Image, error) {
	for _, i := range f.images {
		if i.ID == ref || strings.HasPrefix(strings.Join(i.RepoTags, " "), ref) {
			return i, nil
		}
	}
	if ref == "BAD" {
		return Image{}, fmt.Errorf("image BAD: %w", errdefs.ErrInvalidArgument)
	}
	return Image{}, fmt.Errorf("image %s: %w", ref, errdefs.ErrNotFound)
}
func (f fakeImages) Remove(_ context.Context, ref string) error { return f.call("Remove %s", ref) }
func (f fakeImages) Usage(context.Context) (ImageUsage, error) {
	return ImageUsage{Path: "/images", Bytes: 5, Inodes: 6}, f.call("Usage")
}

// fakeStats has measured all that it is asked about but what is in ended.
type fakeStats struct{ *fake }

func (f fakeStats) Container(r *pod.Record, c *pod.Container) (pod.ContainerUsage, error) {
	if f.ended[string(c.ID)] != nil {
		return pod.ContainerUsage{}, f.ended[string(c.ID)]
	}
	return f.used, f.call("measure %s of %s", c.Config.Metadata.Name, r.Config.Metadata.Name)
}

func (f fakeStats) Pod(r *pod.Record) (pod.Usage, error) {
	if f.ended[string(r.ID)] != nil {
		return pod.Usage{}, f.ended[string(r.ID)]
	}
	return f.podUsed, f.call("measure %s", r.Config.Metadata.Name)
}

func (f fakeStats) UsageOf(_ context.Context, subjects []pod.Subject) []pod.Measured {
	out := make([]pod.Measured, len(subjects))
	for i, s := range subjects {
		if s.Container != nil {
			out[i].Container, out[i].Err = f.Container(s.Pod, s.Container)
		} else {
			out[i].Pod, out[i].Err = f.Pod(s.Pod)
		}
	}
	return out
}

func (f fakeStats) Written(_ context.Context, ids []pod.ContainerID) pod.LayerUsage {
	return pod.LayerUsage{At: time.Unix(7, 0), Path: "/layers", Bytes: 1000 * uint64(len(ids)), Inodes: uint64(len(ids))}
}

var fakeFamilies = []*pod.MetricFamily{
	{Name: "container_last_seen", Help: "When."},
	{Name: "container_reads_total", Help: "Reads.", Counter: true, Labels: []string{"device"}},
}

func (f fakeStats) Families() []*pod.MetricFamily { return fakeFamilies }

func (f fakeStats) MetricsOf(_ context.Context, subjects []pod.Subject) []pod.Metrics {
	out := make([]pod.Metrics, len(subjects))
	for i, s := range subjects {
		id, name := string(s.Pod.ID), s.Pod.Config.Metadata.Name
		if s.Container != nil {
			id, name = string(s.Container.ID), s.Container.Config.Metadata.Name
		}
		out[i] = pod.Metrics{Cgroup: "/cgroup/" + name, At: f.before, Err: f.ended[id], Values: []pod.Metric{
			{Family: fakeFamilies[0], Value: 5},
			{Family: fakeFamilies[1], Labels: []string{"sda"}, Value: 6},
			{Family: fakeFamilies[1], Labels: []string{"sdb"}, Value: 7},
		}}
	}
	return out
}

type fakeStreams struct{ *fake }

func (f fakeStreams) ExecSync(ctx context.Context, id pod.ContainerID, cmd []string) (*cri.ExecSyncResponse, error) {
	if f.sync != nil {
		return f.sync(ctx)
	}
	return &cri.ExecSyncResponse{ExitCode: 3}, f.call("ExecSync %s %s", id, cmd)
}

func (f fakeStreams) ExecURL(r *cri.ExecRequest) (string, error) {
	return "http://exec", f.call("ExecURL %s %s", r.ContainerId, r.Cmd)
}

func (f fakeStreams) AttachURL(r *cri.AttachRequest) (string, error) {
	f.attach = r
	return "http://attach", f.call("AttachURL %s", r.ContainerId)
}

func (f fakeStreams) PortForwardURL(r *cri.PortForwardRequest) (string, error) {
	return "http://portforward", f.call("PortForwardURL %s %d", r.PodSandboxId, r.Port)
}

// newFake has one pod with a container in every state.
func newFake() *fake {
	at := time.Unix(1700000000, 123456789)
	uid := int64(7)
	p := &pod.Record{
		ID: pod.ID(strings.Repeat("a", 64)), Handler: "crun", Requested: "native", State: pod.Running, CreatedAt: at,
		Config: pod.Config{
			Metadata: pod.Metadata{Name: "web", UID: "u1", Namespace: "default", Attempt: 2}, LogDirectory: "/var/log/pods/web",
			Labels: map[string]string{"app": "web", "tier": "front"}, Annotations: map[string]string{"note": "kept"},
		},
		Sandbox: pod.Sandbox{NetNS: "/run/netns/x", IPs: []netip.Addr{netip.MustParseAddr("10.88.0.5"), netip.MustParseAddr("fd00::5")}},
	}
	for i, state := range []pod.State{pod.Creating, pod.Created, pod.Running, pod.Exited, pod.Unknown} {
		c := &pod.Container{
			ID: pod.ContainerID(strings.Repeat(string(rune('0'+i)), 64)), State: state, CreatedAt: at, StopSignal: "SIGRTMIN+3",
			Config: pod.ContainerConfig{
				Metadata: pod.ContainerMetadata{Name: "c" + string(state), Attempt: 1}, LogPath: "c/0.log", Labels: map[string]string{"state": string(state)},
				Image:     pod.ImageSpec{Image: "sha256:abc", UserSpecifiedImage: "nginx"},
				Resources: &pod.Resources{MemoryLimit: 1 << 20},
				Mounts:    []pod.Mount{{ContainerPath: "/v", Image: &pod.ImageSpec{Image: "nginx-data"}, ReadOnly: true}},
				Security:  pod.Security{Identity: pod.Identity{UID: &uid}},
			},
			Image: pod.ContainerImage{ID: "sha256:abc", Ref: "docker.io/library/nginx@sha256:def", Volumes: []string{"sha256:vol"}},
			User:  &pod.User{UID: 7, GID: 8, SupplementalGroups: []int64{9}},
		}
		if state == pod.Exited {
			c.StartedAt, c.FinishedAt, c.ExitCode, c.Reason = at.Add(time.Second), at.Add(time.Minute), 137, "OOMKilled"
		}
		if state == pod.Running {
			c.StartedAt, c.Process = at.Add(time.Second), &pod.RunningProcess{PID: 4711}
			c.Config.Process.Stdin = true
		}
		p.Containers = append(p.Containers, c)
	}
	stopped := &pod.Record{
		ID: pod.ID(strings.Repeat("b", 64)), State: pod.Exited, CreatedAt: at, Config: pod.Config{Metadata: pod.Metadata{Name: "old"}},
		Sandbox: pod.Sandbox{IPs: []netip.Addr{netip.MustParseAddr("10.88.0.6")}},
	}
	creating := &pod.Record{ID: pod.ID(strings.Repeat("c", 64)), State: pod.Creating}
	return &fake{
		pods: []*pod.Record{p, stopped, creating},
		handlers: []pod.HandlerInfo{
			{Name: "broken", Reason: "does not start"},
			{Name: "crun", Ready: true, Default: true, Features: pod.HandlerFeatures{RecursiveReadOnlyMounts: true}},
			{Name: "runc", Ready: true, Features: pod.HandlerFeatures{UserNamespaces: true}},
		},
		images: []Image{{ID: "sha256:abc", RepoTags: []string{"docker.io/library/nginx:latest"}, Size: 99, User: "1000:1000", Pinned: true, Info: map[string]int{"x": 1}}},
	}
}

func (f *fake) server(t *testing.T, change func(*Config)) *Server {
	t.Helper()
	c := Config{
		Pods: f, Containers: f, Handlers: fakeHandlers{f}, Network: fakeNetwork{f}, Images: fakeImages{f}, Streams: fakeStreams{f}, Stats: fakeStats{f}, Events: f,
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})), Version: "1.2.3", Settings: map[string]string{"state": "/run"},
	}
	if change != nil {
		change(&c)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// serve answers on a socket until the test ends.
func serve(t *testing.T, s *Server) *grpc.ClientConn {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "cri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	conn, err := grpc.NewClient("unix://"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = conn.Close()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return conn
}

// sent is an answer as a client gets it.
func sent[M proto.Message](m M, err error) (M, error) {
	if err != nil {
		return m, err
	}
	encoded, err := proto.Marshal(m)
	if err == nil {
		err = proto.Unmarshal(encoded, m)
	}
	return m, err
}

var errPlain = errors.New("something else")
