package criserver

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

// BenchmarkLists is the whole way of calls over a socket with 500 containers in
// 250 pods, with labels as a kubelet sets them.
func BenchmarkLists(b *testing.B) {
	s, f := benchServer()
	l, err := net.Listen("unix", filepath.Join(b.TempDir(), "cri.sock"))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	conn, err := grpc.NewClient("unix://"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage)))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cancel(); _ = conn.Close(); <-ended })
	c := cri.NewRuntimeServiceClient(conn)
	for name, call := range map[string]func() (int, error){
		"ListPodSandbox": func() (int, error) {
			r, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
			return len(r.GetItems()), err
		},
		"ListContainers": func() (int, error) {
			r, err := c.ListContainers(ctx, &cri.ListContainersRequest{})
			return len(r.GetContainers()), err
		},
		"ListContainerStats": func() (int, error) {
			r, err := c.ListContainerStats(ctx, &cri.ListContainerStatsRequest{})
			return len(r.GetStats()), err
		},
		"ListPodSandboxStats": func() (int, error) {
			r, err := c.ListPodSandboxStats(ctx, &cri.ListPodSandboxStatsRequest{})
			return len(r.GetStats()), err
		},
		"ListPodSandboxMetrics": func() (int, error) {
			r, err := c.ListPodSandboxMetrics(ctx, &cri.ListPodSandboxMetricsRequest{})
			return len(r.GetPodMetrics()), err
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f.calls = nil
				if n, err := call(); err != nil || n < 250 {
					b.Fatal(n, err)
				}
			}
		})
	}
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
	f.podUsed = pod.Usage{CPU: f.used.CPU, Memory: f.used.Memory, IO: f.used.IO, Processes: &pod.ProcessUsage{At: at, Count: 5}}
	s, err := New(Config{
		Pods: f, Containers: f, Handlers: fakeHandlers{f}, Network: fakeNetwork{f}, Images: fakeImages{f}, Streams: fakeStreams{f}, Stats: fakeStats{f}, Events: f,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Version: "1.2.3",
	})
	if err != nil {
		panic(err)
	}
	return s, f
}
