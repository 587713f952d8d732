package criserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

// BenchmarkLists is the whole way of calls over a socket with 500 containers in
// 250 pods, with labels as a kubelet sets them. What the stats measure is ready.
func BenchmarkLists(b *testing.B) {
	s, f := benchServer()
	conn := benchConn(b, func(ctx context.Context, l net.Listener) error { return s.Serve(ctx, l) })
	for _, l := range benchLists(cri.NewRuntimeServiceClient(conn)) {
		b.Run(l.name, func(b *testing.B) {
			b.ReportAllocs()
			timed(b, func() error {
				f.calls = nil
				return l.want(b.Context())
			})
		})
	}
}

// BenchmarkDirect is the same from within the process.
func BenchmarkDirect(b *testing.B) {
	s, f := benchServer()
	for _, l := range benchLists(cri.NewRuntimeServiceClient(s.Direct())) {
		b.Run(l.name, func(b *testing.B) {
			b.ReportAllocs()
			timed(b, func() error {
				f.calls = nil
				return l.want(b.Context())
			})
		})
	}
}

// BenchmarkReadyMade is what remains of BenchmarkLists where a server has nothing
// to do: the same bytes come from memory, to a client that throws them away, and
// to one that decodes them as every client of the CRI does. No server is quicker.
func BenchmarkReadyMade(b *testing.B) {
	s, _ := benchServer()
	ready := map[string][]byte{}
	for _, l := range benchLists(cri.NewRuntimeServiceClient(benchConn(b, func(ctx context.Context, l net.Listener) error { return s.Serve(ctx, l) }, keeping(ready)))) {
		if _, err := l.call(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	g := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		var request []byte
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		return stream.SendMsg(ready[method])
	}))
	conn := benchConn(b, func(ctx context.Context, l net.Listener) error {
		defer context.AfterFunc(ctx, g.Stop)()
		return g.Serve(l)
	})
	for _, l := range benchLists(cri.NewRuntimeServiceClient(conn)) {
		method := "/runtime.v1.RuntimeService/" + l.name
		if ready[method] == nil {
			continue // a stream
		}
		b.Run(l.name+"/decoded", func(b *testing.B) {
			timed(b, func() error { return l.want(b.Context()) })
			b.ReportMetric(float64(len(ready[method])), "bytes")
		})
		b.Run(l.name+"/thrown-away", func(b *testing.B) {
			timed(b, func() error {
				return conn.Invoke(b.Context(), method, []byte(nil), nil, grpc.ForceCodecV2(bytesCodec{}))
			})
		})
	}
}

// timed adds the median and the shortest time, which say more than the mean where
// others work on the machine, too.
func timed(b *testing.B, call func() error) {
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		if err := call(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[0].Microseconds())/1000, "min-ms")
}

// keeping keeps answers as they are on the wire.
func keeping(ready map[string][]byte) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := next(ctx, method, req, reply, cc, opts...)
		if err == nil {
			ready[method], err = proto.Marshal(reply.(proto.Message))
		}
		return err
	})
}

// bytesCodec sends bytes as they are, and does not look at what it receives.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (bytesCodec) Unmarshal(mem.BufferSlice, any) error { return nil }
func (bytesCodec) Name() string                         { return "proto" }

// benchConn is a client of a server on a socket.
func benchConn(b *testing.B, serve func(context.Context, net.Listener) error, options ...grpc.DialOption) *grpc.ClientConn {
	l, err := net.Listen("unix", filepath.Join(b.TempDir(), "cri.sock"))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l) }()
	conn, err := grpc.NewClient("unix://"+l.Addr().String(), append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage)))...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cancel(); _ = conn.Close(); <-ended })
	return conn
}

type benchList struct {
	name string
	call func(context.Context) (int, error)
}

func (l benchList) want(ctx context.Context) error {
	n, err := l.call(ctx)
	if err == nil && n < 250 {
		err = fmt.Errorf("%s has %d items", l.name, n)
	}
	return err
}

func benchLists(c cri.RuntimeServiceClient) []benchList {
	return []benchList{
		{"ListPodSandbox", func(ctx context.Context) (int, error) {
			r, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
			return len(r.GetItems()), err
		}},
		{"StreamPodSandboxes", func(ctx context.Context) (int, error) {
			r, err := c.StreamPodSandboxes(ctx, &cri.StreamPodSandboxesRequest{})
			return count(r, err, func(r *cri.StreamPodSandboxesResponse) int { return len(r.PodSandboxes) })
		}},
		{"ListContainers", func(ctx context.Context) (int, error) {
			r, err := c.ListContainers(ctx, &cri.ListContainersRequest{})
			return len(r.GetContainers()), err
		}},
		{"StreamContainers", func(ctx context.Context) (int, error) {
			r, err := c.StreamContainers(ctx, &cri.StreamContainersRequest{})
			return count(r, err, func(r *cri.StreamContainersResponse) int { return len(r.Containers) })
		}},
		{"ListContainerStats", func(ctx context.Context) (int, error) {
			r, err := c.ListContainerStats(ctx, &cri.ListContainerStatsRequest{})
			return len(r.GetStats()), err
		}},
		{"StreamContainerStats", func(ctx context.Context) (int, error) {
			r, err := c.StreamContainerStats(ctx, &cri.StreamContainerStatsRequest{})
			return count(r, err, func(r *cri.StreamContainerStatsResponse) int { return len(r.ContainerStats) })
		}},
		{"ListPodSandboxStats", func(ctx context.Context) (int, error) {
			r, err := c.ListPodSandboxStats(ctx, &cri.ListPodSandboxStatsRequest{})
			return len(r.GetStats()), err
		}},
		{"StreamPodSandboxStats", func(ctx context.Context) (int, error) {
			r, err := c.StreamPodSandboxStats(ctx, &cri.StreamPodSandboxStatsRequest{})
			return count(r, err, func(r *cri.StreamPodSandboxStatsResponse) int { return len(r.PodSandboxStats) })
		}},
		{"ListPodSandboxMetrics", func(ctx context.Context) (int, error) {
			r, err := c.ListPodSandboxMetrics(ctx, &cri.ListPodSandboxMetricsRequest{})
			return len(r.GetPodMetrics()), err
		}},
		{"StreamPodSandboxMetrics", func(ctx context.Context) (int, error) {
			r, err := c.StreamPodSandboxMetrics(ctx, &cri.StreamPodSandboxMetricsRequest{})
			return count(r, err, func(r *cri.StreamPodSandboxMetricsResponse) int { return len(r.PodSandboxMetrics) })
		}},
	}
}

// count reads a stream to its end.
func count[T any](stream grpc.ServerStreamingClient[T], err error, items func(*T) int) (n int, _ error) {
	for err == nil {
		var part *T
		if part, err = stream.Recv(); err == nil {
			n += items(part)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// manyStats has as many metrics, of as long names and labels, as a host with
// cgroup v1 has.
type manyStats struct {
	fakeStats
	families []*pod.MetricFamily
}

func (m manyStats) UsageOf(_ context.Context, subjects []pod.Subject) []pod.Measured {
	out := make([]pod.Measured, len(subjects))
	for i := range out {
		out[i].Container, out[i].Pod = m.used, m.podUsed
	}
	return out
}

func (m manyStats) MetricsOf(_ context.Context, subjects []pod.Subject) []pod.Metrics {
	out := make([]pod.Metrics, len(subjects))
	for i, s := range subjects {
		id, n := "/kubepods/burstable/pod"+string(s.Pod.ID[:36]), 8
		if s.Container != nil {
			id, n = id+"/"+string(s.Container.ID), 60
		}
		out[i] = pod.Metrics{Cgroup: id, At: m.used.CPU.At, Values: make([]pod.Metric, n)}
		for k := range out[i].Values {
			out[i].Values[k] = pod.Metric{Family: m.families[k], Value: 1 << 30, Labels: []string{"/dev/vda"}[:min(1, k%3)]}
		}
	}
	return out
}

// benchServer has 500 containers in 250 pods, with labels as a kubelet sets them.
func benchServer() (*Server, *fake) {
	f := newFake()
	f.pods = nil
	at := time.Now()
	for i := range 250 {
		id := fmt.Sprintf("%064d", i)
		labels := map[string]string{"io.kubernetes.pod.name": "web-7d4b9c6f5-" + id[:5], "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": id[:36], "app": "web", "pod-template-hash": "7d4b9c6f5"}
		p := &pod.Record{ID: pod.ID(id), State: pod.Running, CreatedAt: at, Handler: "crun", Config: pod.Config{
			Metadata: pod.Metadata{Name: labels["io.kubernetes.pod.name"], UID: id[:36], Namespace: "default"}, Labels: labels,
			Annotations: map[string]string{"kubernetes.io/config.seen": "2026-01-01T00:00:00.000000000Z", "kubernetes.io/config.source": "api"},
		}}
		for k := range 2 {
			p.Containers = append(p.Containers, &pod.Container{
				ID: pod.ContainerID(fmt.Sprintf("%063d%d", i, k)), State: pod.Running, CreatedAt: at, StartedAt: at,
				Config: pod.ContainerConfig{
					Metadata: pod.ContainerMetadata{Name: "main"}, Image: pod.ImageSpec{Image: "sha256:" + id, UserSpecifiedImage: "docker.io/library/nginx:1.27"},
					Labels:      map[string]string{"io.kubernetes.container.name": "main", "io.kubernetes.pod.name": labels["io.kubernetes.pod.name"], "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": id[:36]},
					Annotations: map[string]string{"io.kubernetes.container.hash": "8d1c6a2f", "io.kubernetes.container.restartCount": "0", "io.kubernetes.container.terminationMessagePath": "/dev/termination-log", "io.kubernetes.container.terminationMessagePolicy": "File", "io.kubernetes.pod.terminationGracePeriod": "30"},
				},
				Image: pod.ContainerImage{ID: "sha256:" + id, Ref: "docker.io/library/nginx@sha256:" + id},
			})
		}
		f.pods = append(f.pods, p)
	}
	n := uint64(1 << 30)
	stall := &pod.Pressure{Some: &pod.Stall{Total: 5, Avg10: 0.5}, Full: &pod.Stall{}}
	f.used = pod.ContainerUsage{
		CPU:    &pod.CPUUsage{At: at, Total: &n, Rate: &n, Pressure: stall},
		Memory: &pod.MemoryUsage{At: at, Total: &n, WorkingSet: &n, Available: &n, RSS: &n, MinorFaults: &n, MajorFaults: &n, Pressure: stall},
		Swap:   &pod.SwapUsage{At: at, Total: &n}, IO: &pod.IOUsage{At: at, Pressure: stall},
		Layer: &pod.LayerUsage{At: at, Path: "/var/lib/fairlead", Bytes: n, Inodes: 5},
	}
	f.podUsed = pod.Usage{
		CPU: f.used.CPU, Memory: f.used.Memory, IO: f.used.IO, Processes: &pod.ProcessUsage{At: at, Count: 5},
		Network: &pod.NetworkUsage{At: at, Interfaces: []pod.InterfaceUsage{{Name: "eth0", Default: true, RxBytes: n, TxBytes: n}}},
	}
	many := manyStats{fakeStats: fakeStats{f}}
	for i := range 60 {
		many.families = append(many.families, &pod.MetricFamily{Name: fmt.Sprintf("container_memory_working_set_bytes_%02d", i), Counter: i%2 == 0})
	}
	s, err := New(Config{
		Pods: f, Containers: f, Handlers: fakeHandlers{f}, Network: fakeNetwork{f}, Images: fakeImages{f}, Streams: fakeStreams{f}, Stats: many, Events: f,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Version: "1.2.3",
	})
	if err != nil {
		panic(err)
	}
	return s, f
}
