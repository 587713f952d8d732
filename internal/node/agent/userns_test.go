package agent

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/userids"
)

// mapped places pods on a handler that can, or cannot, make user namespaces.
func mapped(can bool) Place {
	return func(context.Context, *corev1.Pod) (Placement, error) {
		return Placement{Handler: "h", Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: can}}, nil
	}
}

// TestUserNamespace gives each pod that asks for one ids of its own, which it has through
// kill -9 and restarts of its containers, and gives them back when it is gone.
func TestUserNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.place = mapped(true)
		a, b, plain := pod(1, corev1.RestartPolicyAlways, "x"), pod(2, corev1.RestartPolicyAlways, "x"), pod(3, corev1.RestartPolicyAlways, "x")
		a.Spec.HostUsers, b.Spec.HostUsers, plain.Spec.HostUsers = new(false), new(false), new(true)
		a.Spec.Volumes = []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "i", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "i"}}},
		}
		a.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}, {Name: "i", MountPath: "/i"}}
		n.boot(t, a, b, plain)
		first := map[types.UID]uint32{}
		look := func() {
			t.Helper()
			for _, p := range []*corev1.Pod{a, b} {
				n.expect(t, p.Name, corev1.PodRunning, true)
				attempts := n.Runtime.Config(p.Name + "/x")
				box, ct := n.SandboxConfig(p.Name), attempts[len(attempts)-1]
				u := box.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
				own := ct.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
				if u.GetMode() != runtimeapi.NamespaceMode_POD || len(u.GetUids()) != 1 || u.GetUids()[0].GetLength() != 65536 || u.String() != own.String() {
					t.Fatalf("pod %s: %v, its container %v", p.Name, u, own)
				}
				host := u.GetUids()[0].GetHostId()
				if was := first[p.UID]; was != 0 && was != host {
					t.Errorf("pod %s had %d, and has %d", p.Name, was, host)
				}
				first[p.UID] = host
				for _, m := range ct.GetMounts() {
					if maps := m.GetUidMappings(); (len(maps) == 1 && maps[0].GetHostId() == host) == (m.GetImage() != nil) {
						t.Errorf("pod %s: %s is mapped by %v", p.Name, m.GetContainerPath(), maps)
					}
				}
			}
			if u := n.SandboxConfig("p3").GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions(); u != nil || first[a.UID] == first[b.UID] {
				t.Errorf("%v, %v", u, first)
			}
		}
		look()
		n.kill()
		n.boot(t, a, b, plain)
		n.Exit("p1/x", 1)
		synctest.Wait()
		look()
		n.reboot()
		n.boot(t, b, a, plain)
		look()
		n.Set([]*corev1.Pod{a, plain})
		synctest.Wait()
		if got, err := n.ids.Take(t.Context(), "another"); err != nil || got != first[b.UID] {
			t.Errorf("%d, not the %d that were given back: %v", got, first[b.UID], err)
		}
		n.stop()
	})
}

// TestNoUserNamespace runs no pod as the node's root that asks for other users: its handler
// cannot, or there are no ids left.
func TestNoUserNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.place = mapped(false)
		p := pod(1, corev1.RestartPolicyAlways, "x")
		p.Spec.HostUsers = new(false)
		n.boot(t, p)
		n.expect(t, "p1", corev1.PodFailed, false)
		if s := n.of("p1"); s.Reason != noUserNamespaces || !n.saw("p1 UserNamespacesNotSupported: the pod asks for a user namespace (hostUsers: false), which the handler h cannot make") || len(n.Calls("run")) > 0 {
			t.Errorf("%+v, %q", s, n.events)
		}
		n.stop()

		n = newNode(t)
		n.place = mapped(true)
		ids := userids.New(userids.In(n.root))
		for i := 0; ; i++ {
			if _, err := ids.Take(t.Context(), uid(100+i)); err != nil {
				break
			}
		}
		n.boot(t, p)
		n.expect(t, "p1", corev1.PodPending, false)
		if !n.saw("p1 FailedCreatePodSandBox: all ids for user namespaces are taken") || len(n.Calls("run")) > 0 {
			t.Errorf("%q", n.events)
		}
		if err := ids.Free(uid(100)); err != nil {
			t.Fatal(err)
		}
		n.Reconsider()
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		if !slices.Equal(n.Calls("run"), []string{"run p1"}) {
			t.Errorf("%q", n.Calls(""))
		}
		n.stop()
	})
}
