package join

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"fairlead.run/test/deviceplugin"
)

const gpu = corev1.ResourceName("example.com/gpu")

// TestRecordsThatCannotBeRead are events of the node, and it begins without them.
func TestRecordsThatCannotBeRead(t *testing.T) {
	s := newSite(t)
	uid := string(uidOf("a"))
	for _, path := range []string{
		filepath.Join(s.dir, "lib/images/pulled/sha256-1"), filepath.Join(s.dir, "lib/agent-devices", uid+".json"),
		filepath.Join(s.shared, "pods", uid, "volumes/kubernetes.io~csi/one/volume.json"),
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.boot()
	for _, words := range []string{
		"by which credentials they were pulled", "not known of all devices whether they are in use", "not known of all volumes of CSI drivers whether they are mounted",
	} {
		s.await("an event: "+words, func() bool { return s.said(words) })
	}
}

// TestDevices has a plugin whose devices the node counts and gives to containers, each to
// one; they keep them when agent and plugin are killed.
func TestDevices(t *testing.T) {
	s := newSite(t)
	short, err := os.MkdirTemp("", "node") // a path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	s.shared = short
	folder := filepath.Join(short, "device-plugins")
	plugin := deviceplugin.New(string(gpu), "a", "b")
	serve := func() {
		s.await("the node's socket", func() bool { _, err := os.Stat(filepath.Join(folder, "kubelet.sock")); return err == nil })
		plugin.Serve(t, folder)
		if err := plugin.Register(t, folder); err != nil {
			t.Fatal(err)
		}
	}
	counts := func(all, work int64) func() bool {
		return func() bool {
			o := s.Get(nodesOf, "n")
			if o == nil {
				return false
			}
			n := into[corev1.Node](t, o)
			has, left := n.Status.Capacity[gpu], n.Status.Allocatable[gpu]
			return has.Value() == all && left.Value() == work
		}
	}
	bind := func(name string, n int64) {
		s.bindWith("n", name, func(p *corev1.Pod) {
			q := *resource.NewQuantity(n, resource.DecimalSI)
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: corev1.ResourceList{gpu: q}, Requests: corev1.ResourceList{gpu: q}}
		})
	}
	s.boot()
	serve()
	s.await("the devices", counts(2, 2))
	bind("a", 1)
	s.await("the pod", func() bool { return s.runs("a", 0) })
	cfg := s.fake.Config("a/c")[0]
	has := map[string]string{}
	for _, e := range cfg.Envs {
		has[e.Key] = string(e.Value)
	}
	var mounts []string
	for _, m := range cfg.Mounts {
		mounts = append(mounts, m.ContainerPath)
	}
	if len(cfg.Devices) != 1 || cfg.Devices[0].HostPath != "/dev/host-a" || cfg.CDIDevices[0].Name != "example.com/gpu=a" || has["DEVICES"] != "a" || cfg.Annotations["example.com/devices"] != "a" {
		t.Errorf("%v %v %v %v, mounts %v", cfg.Devices, cfg.CDIDevices, has, cfg.Annotations, mounts)
	}
	if got := asked(t, filepath.Join(short, "pod-resources", "kubelet.sock")); got != "a/c has a; a, b there" {
		t.Errorf("the pod resources API says: %s", got)
	}
	bind("greedy", 2)
	s.await("the refusal", func() bool { return s.status("greedy").Phase == corev1.PodFailed })
	if st := s.status("greedy"); st.Reason != "UnexpectedAdmissionError" || len(s.fake.Calls("run greedy")) > 0 {
		t.Errorf("%+v", st)
	}
	health := func(want corev1.ResourceHealthStatus) func() bool {
		return func() bool {
			st := s.status("a").ContainerStatuses[0].AllocatedResourcesStatus
			return len(st) == 1 && st[0].Name == gpu && len(st[0].Resources) == 1 && st[0].Resources[0].ResourceID == "a" && st[0].Resources[0].Health == want
		}
	}
	s.await("a device that works", health(corev1.ResourceHealthStatusHealthy))
	plugin.Set("a", false)
	s.await("the pod's status of one that does not", health(corev1.ResourceHealthStatusUnhealthy))
	plugin.Set("a", true)
	s.await("a device that works again", health(corev1.ResourceHealthStatusHealthy))
	plugin.Set("b", false)
	s.await("one that does not work", counts(2, 1))
	s.stop()
	plugin.Stop()
	s.boot()
	s.await("no word of a plugin", counts(0, 0))
	s.fake.Exit("a/c", 1)
	s.await("the restart", func() bool { return s.runs("a", 1) })
	if again := s.fake.Config("a/c"); again[len(again)-1].Devices[0].HostPath != "/dev/host-a" {
		t.Errorf("%v", again[len(again)-1].Devices)
	}
	bind("next", 1) // waits for the plugin
	plugin.Set("b", true)
	serve()
	s.await("the devices", counts(2, 2))
	s.await("the next pod", func() bool { return s.runs("next", 0) })
	if got := s.fake.Config("next/c")[0].Devices[0].HostPath; got != "/dev/host-b" {
		t.Error(got)
	}
	for _, name := range []string{"a", "next", "greedy"} {
		s.Delete(podsOf, "default/"+name)
	}
	s.await("the end", func() bool { return len(s.fake.Sandboxes()) == 0 })
	s.await("no page", func() bool {
		left, _ := filepath.Glob(filepath.Join(s.dir, "lib/agent-devices/0*.json"))
		return len(left) == 0
	})
}

// asked is what the pod resources API says of the devices that pods have, and that there are.
func asked(t *testing.T, socket string) string {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := podresources.NewPodResourcesListerClient(conn)
	given, err := client.List(t.Context(), &podresources.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	has, err := client.GetAllocatableResources(t.Context(), &podresources.AllocatableResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var pods, there []string
	for _, p := range given.GetPodResources() {
		for _, ct := range p.GetContainers() {
			for _, d := range ct.GetDevices() {
				pods = append(pods, fmt.Sprintf("%s/%s has %s", p.GetName(), ct.GetName(), strings.Join(d.GetDeviceIds(), ",")))
			}
		}
	}
	for _, d := range has.GetDevices() {
		there = append(there, d.GetDeviceIds()...)
	}
	return strings.Join(pods, ", ") + "; " + strings.Join(there, ", ") + " there"
}
