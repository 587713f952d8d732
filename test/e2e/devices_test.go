package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"fairlead.run/test/deviceplugin"
	"fairlead.run/test/e2e/cluster"
)

// devicePlugins is where a node's socket for them is.
const devicePlugins = "/var/lib/kubelet/device-plugins"

// TestDevices has a device plugin with two devices: each pod that asks for one gets one, no
// third pod does, and statuses say how they work. All is as it was after the agent and the
// plugin were killed.
func TestDevices(t *testing.T) {
	if *guest != "" {
		t.Skip("the plugin is a part of the test, which is not in the guest")
	}
	const resource, given = "example.com/lamp", "jsonpath={.status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].resourceID}"
	plugin := deviceplugin.New(resource, "red", "green")
	plugin.Gives = func(ids []string) *pluginapi.ContainerAllocateResponse {
		return &pluginapi.ContainerAllocateResponse{
			Envs:    map[string]string{"LAMP": strings.Join(ids, ",")},
			Devices: []*pluginapi.DeviceSpec{{ContainerPath: "/dev/lamp", HostPath: "/dev/null", Permissions: "rw"}},
		}
	}
	socket := filepath.Join(devicePlugins, "kubelet.sock")
	serve := func() {
		eventually(t, func() error { _, err := os.Stat(socket); return err })
		plugin.Serve(t, devicePlugins)
		if err := plugin.Register(t, devicePlugins); err != nil {
			t.Fatal(err)
		}
	}
	works := func(n string) {
		t.Helper()
		kubectl(t, "wait", "--for=jsonpath={.status.allocatable.example\\.com/lamp}="+n, "node/"+cluster.NodeName, "--timeout", patience.String())
	}
	health := func(pod, want string) {
		t.Helper()
		kubectl(t, "wait", "--for=jsonpath={.status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health}="+want, "pod/"+pod, "--timeout", patience.String())
	}
	serve()
	works("2")
	names := []string{"lit-0", "lit-1", "lit-2"}
	t.Cleanup(func() {
		if _, err := node.Kubectl(context.Background(), append([]string{"delete", "pod", "--ignore-not-found", "--timeout", patience.String()}, names...)...); err != nil {
			t.Error(err)
		}
	})
	for _, name := range names[:2] {
		lit(t, name, resource)
		kubectl(t, "wait", "--for=condition=Ready", "pod/"+name, "--timeout", patience.String())
		health(name, "Healthy")
	}
	first, second := kubectl(t, "get", "pod", names[0], "-o", given), kubectl(t, "get", "pod", names[1], "-o", given)
	if first == second {
		t.Errorf("two pods have the device %s", first)
	}
	want(t, strings.TrimSpace(kubectl(t, "exec", names[0], "--", "sh", "-c", "test -c /dev/lamp && echo $LAMP")), first)
	lit(t, names[2], resource)
	kubectl(t, "wait", "--for=condition=PodScheduled=False", "pod/"+names[2], "--timeout", patience.String())
	plugin.Set(first, false)
	health(names[0], "Unhealthy")
	health(names[1], "Healthy")
	works("1")

	before := containers(t, names[:2])
	if err := again(node.Kubelet.Kill, func() error { return os.Remove(socket) }, node.Kubelet.Start); err != nil {
		t.Fatal(err)
	}
	plugin.Set(first, true)
	serve()
	works("2")
	health(names[0], "Healthy")
	if now := containers(t, names[:2]); now != before {
		t.Errorf("containers before the restart:\n%s\nand after it:\n%s", before, now)
	}
	kubectl(t, "delete", "pod", names[0], "--timeout", patience.String())
	kubectl(t, "wait", "--for=condition=Ready", "pod/"+names[2], "--timeout", patience.String())
	want(t, kubectl(t, "get", "pod", names[2], "-o", given), first)
}

// lit makes a pod with one device.
func lit(t *testing.T, name, resource string) {
	t.Helper()
	apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: %s, args: [pause], resources: {limits: {%s: 1}}}
`, name, imageOf(t, "agnhost"), resource))
}
