package podresources

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"fairlead.run/internal/node/devices"
)

const gpu = "example.com/gpu"

// serve serves four pods: "done" has ended, "a" has devices, and there are two of the name "b".
func serve(t *testing.T, failed func(error)) (*Server, *grpc.ClientConn, string) {
	t.Helper()
	folder, err := os.MkdirTemp("", "told") // a path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	always := corev1.ContainerRestartPolicyAlways
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
			Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{Name: "init"}, {Name: "side", RestartPolicy: &always}},
				Containers:     []corev1.Container{{Name: "c"}},
			},
		}
	}
	given := map[string][]devices.Device{
		"young/c": {{Resource: gpu, ID: "4"}},
		"a/init":  {{Resource: gpu, ID: "0"}}, "a/side": {{Resource: gpu, ID: "1", Nodes: []int64{0}}},
		"a/c": {{Resource: gpu, ID: "2", Nodes: []int64{0, 1}}, {Resource: "example.com/nic", ID: "x"}},
	}
	young, old := pod("b"), pod("b")
	young.UID, young.CreationTimestamp = "young", metav1.Unix(2, 0)
	old.CreationTimestamp = metav1.Unix(1, 0)
	s := New(Config{
		Folder: filepath.Join(folder, "pod-resources"), Pods: func() []*corev1.Pod { return []*corev1.Pod{pod("a"), young, old, pod("done")} },
		Ended: func(uid types.UID) bool { return uid == "done" },
		Given: func(uid types.UID, ct string) []devices.Device { return given[string(uid)+"/"+ct] },
		Working: func() []devices.Device {
			return []devices.Device{{Resource: gpu, ID: "1", Nodes: []int64{0}}, {Resource: gpu, ID: "3"}}
		},
		Failed: failed,
	})
	socket := filepath.Join(s.cfg.Folder, "kubelet.sock")
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return s, conn, socket
}

// run has it served until the test ends, or stop is called.
func run(t *testing.T, s *Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		ended <- nil
	}
	t.Cleanup(stop)
	return stop
}

func text(all []*v1.ContainerDevices) string {
	var out []string
	for _, d := range all {
		nodes := ""
		for _, n := range d.GetTopology().GetNodes() {
			nodes += fmt.Sprint("@", n.GetID())
		}
		out = append(out, d.GetResourceName()+"="+strings.Join(d.GetDeviceIds(), ",")+nodes)
	}
	return strings.Join(out, " ")
}

func of(p *v1.PodResources) string {
	out := p.GetNamespace() + "/" + p.GetName()
	for _, ct := range p.GetContainers() {
		out += fmt.Sprintf(" %s[%s]", ct.GetName(), text(ct.GetDevices()))
	}
	return out
}

// TestAnswers asks by each endpoint of each version.
func TestAnswers(t *testing.T) {
	s, conn, socket := serve(t, func(err error) { t.Error(err) })
	stop := run(t, s)
	client := v1.NewPodResourcesListerClient(conn)
	list, err := client.List(t.Context(), &v1.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range list.GetPodResources() {
		got = append(got, of(p))
	}
	const a = "default/a side[example.com/gpu=1@0] c[example.com/gpu=2@0 example.com/gpu=2@1 example.com/nic=x]"
	if all := strings.Join(got, "; "); all != a+"; default/b side[] c[example.com/gpu=4]; default/b side[] c[]" {
		t.Errorf("List: %s", all)
	}
	one, err := client.Get(t.Context(), &v1.GetPodResourcesRequest{PodNamespace: "default", PodName: "a"})
	if err != nil || of(one.GetPodResources()) != a {
		t.Errorf("Get: %s, %v", of(one.GetPodResources()), err)
	}
	if one, err = client.Get(t.Context(), &v1.GetPodResourcesRequest{PodNamespace: "default", PodName: "b"}); err != nil || of(one.GetPodResources()) != "default/b side[] c[example.com/gpu=4]" {
		t.Errorf("Get of two: %s, %v", of(one.GetPodResources()), err)
	}
	for _, r := range []*v1.GetPodResourcesRequest{{PodNamespace: "default", PodName: "c"}, {PodNamespace: "other", PodName: "a"}, {PodNamespace: "default", PodName: "done"}, {}} {
		if _, err := client.Get(t.Context(), r); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "is not on this node") {
			t.Errorf("%v: %v", r, err)
		}
	}
	has, err := client.GetAllocatableResources(t.Context(), &v1.AllocatableResourcesRequest{})
	if err != nil || text(has.GetDevices()) != "example.com/gpu=1@0 example.com/gpu=3" || len(has.GetCpuIds())+len(has.GetMemory()) > 0 {
		t.Errorf("GetAllocatableResources: %v, %v", has, err)
	}
	old, err := v1alpha1.NewPodResourcesListerClient(conn).List(t.Context(), &v1alpha1.ListPodResourcesRequest{})
	if err != nil || len(old.GetPodResources()) != 3 || len(old.GetPodResources()[0].GetContainers()) != 1 || len(old.GetPodResources()[0].GetContainers()[0].GetDevices()) != 2 {
		t.Errorf("v1alpha1: %v, %v", old, err)
	}
	var counted bytes.Buffer
	if err := s.Metrics(&counted); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`requests_total{server_api_version="v1"} 8`, `requests_total{server_api_version="v1alpha1"} 1`, `requests_list{server_api_version="v1"} 1`,
		`requests_get{server_api_version="v1"} 6`, `errors_get{server_api_version="v1"} 4`, `requests_get_allocatable{server_api_version="v1"} 1`,
	} {
		if !strings.Contains(counted.String(), "kubelet_pod_resources_endpoint_"+want+"\n") {
			t.Errorf("no %s in\n%s", want, counted.String())
		}
	}
	stop()
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

// TestLimit refuses who asks without end.
func TestLimit(t *testing.T) {
	s, conn, _ := serve(t, func(err error) { t.Error(err) })
	run(t, s)
	client := v1.NewPodResourcesListerClient(conn)
	for {
		_, err := client.List(t.Context(), &v1.ListPodResourcesRequest{})
		if status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "ask again later") {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSocket takes the place of a socket that an agent has left which was killed, and of
// nothing else.
func TestSocket(t *testing.T) {
	failed := make(chan error, 1)
	s, conn, socket := serve(t, func(err error) { failed <- err })
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	stop := run(t, s)
	if _, err := v1.NewPodResourcesListerClient(conn).List(t.Context(), &v1.ListPodResourcesRequest{}); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := os.WriteFile(socket, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, s)
	select {
	case err := <-failed:
		if !strings.Contains(err.Error(), "is no socket; move it away") {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a file is in the way, and nobody is told")
	}
	if data, err := os.ReadFile(socket); err != nil || string(data) != "mine" {
		t.Errorf("%q, %v", data, err)
	}
}
