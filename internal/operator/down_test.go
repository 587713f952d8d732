package operator

import (
	"errors"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/operator/names"
)

// An installer is killed, and the runtime does not start with what it has written, so that
// its socket is gone. The container that cleans the node is told no distribution, sees a part
// of the node alone, and brings the runtime back.
func TestContainersOfDaemonSetsWithoutARuntime(t *testing.T) {
	for name, o := range map[string]system{
		"containerd": {cri: v1alpha1.CRIContainerd, image: "ubuntu", release: "ID=ubuntu\n", binaries: "usr/bin", config: "etc/containerd/config.toml", line: "/usr/bin/containerd"},
		"CRI-O":      {cri: v1alpha1.CRICRIO, image: "ubuntu", release: "ID=ubuntu\n", binaries: "usr/bin", config: "etc/crio/crio.conf", line: "/usr/bin/crio"},
	} {
		t.Run(name, func(t *testing.T) { cleanedWithoutARuntime(t, o) })
	}
}

func cleanedWithoutARuntime(t *testing.T, o system) {
	n := newMachine(t, o)
	w := newWorld(t)
	image := n.image("1")
	w.create(image.object)
	w.fleet("sandboxed", 1)
	pool := aPool("sandboxed", "gvisor")
	pool.Spec.MachineImage.Name, pool.Spec.CRI.Name = o.image, o.cri
	w.create(pool)
	var runs *container
	w.runs = func(p *corev1.Pod) {
		if runs != nil && runs.name == p.Labels[names.Work] {
			p.Status.Conditions, p.Status.ContainerStatuses = runs.status()
		}
	}
	w.settle()
	start := func(env ...string) *container {
		t.Helper()
		var pods corev1.PodList
		w.must(w.client.List(t.Context(), &pods))
		if len(pods.Items) != 1 {
			t.Fatalf("%d pods", len(pods.Items))
		}
		return n.run(w, &pods.Items[0], image, env...)
	}
	before := tree(t, n.at("etc"))

	runs = start(failpoint.Env + "=install.written=kill")
	runs.wait()
	if tree(t, n.at("etc")) == before {
		t.Fatal("nothing was written")
	}
	n.write(n.at("fatal"), "runsc", 0o644)
	if out, err := n.end(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	n.eventually("the runtime is down", func() bool { return n.enter("sh", "-c", `! kill -0 "$(cat "$1/pid")"`, "sh", n.dir).Run() == nil })
	if err := os.Remove(n.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}

	w.must(w.client.Delete(t.Context(), aPool("sandboxed")))
	for range 5 {
		w.step()
	}
	runs = start()
	runs.awaitReady()
	if r := runs.result(); r.State != payload.Removed {
		t.Errorf("%+v", r)
	}
	runs.stop()
	if got := n.jobs(); !slices.Equal(got, []string{"restart " + string(o.cri) + ".service"}) {
		t.Errorf("systemd was asked for %q", got)
	}
	if !n.listens() {
		t.Error("the runtime is down")
	}
	if got := tree(t, n.at("etc")); got != before {
		t.Errorf("left is\n%s\nand not\n%s", got, before)
	}
}
