package operator

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/internal/operator/placed"
	"fairlead.run/internal/operator/workerpool"
)

// changes are those by which an object would not find again what it has put on nodes, and
// what is said of each.
var changes = map[string]struct {
	edit func(*gardener.ContainerRuntime)
	says string
}{
	"type":       {func(c *gardener.ContainerRuntime) { c.Spec.Type = "kata-containers" }, "spec.type: Forbidden: it was gvisor when the runtime was brought to machines, and would not be found there by kata-containers: change it back to gvisor"},
	"other type": {func(c *gardener.ContainerRuntime) { c.Spec.Type = "somebody-elses" }, "change it back to gvisor"},
	"pool":       {func(c *gardener.ContainerRuntime) { c.Spec.WorkerPool.Name = "b" }, "spec.workerPool.name: Forbidden: it was a when"},
	"binaryPath": {func(c *gardener.ContainerRuntime) { c.Spec.BinaryPath = "/opt/elsewhere" }, "spec.binaryPath: Forbidden: it was /var/bin when the runtime was brought to machines, and would not be found there by /opt/elsewhere: change it back to /var/bin, or delete this object, which takes away what is there, and make another"},
}

// The webhook refuses such a change, and may be away.
func TestWhatIsOnNodesIsFoundAgain(t *testing.T) {
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			w := prepared(t, 1)
			w.create(aPayload("kata-containers", "1", "kata"))
			c := asked("a")
			w.create(c)
			w.settle()
			before := w.node("a-000").Labels
			if err := workerpool.Done(w.runtime(c.Name)); err != nil {
				t.Fatal(err)
			}
			w.change(c, func() { change.edit(c) })
			w.settle()
			w.wants("what is said", w.operation(c.Name), string(gardener.StateError), change.says, string(gardener.CodeConfiguration))
			if now := w.node("a-000").Labels; len(now) != len(before) || now["install.fairlead.run/gvisor"] != "install.a" {
				t.Errorf("the node had %v, and has %v", before, now)
			}
			w.change(c, func() { c.Spec = asked("a").Spec })
			w.settle()
			if err := workerpool.Done(w.runtime(c.Name)); err != nil {
				t.Errorf("changed back: %v", err)
			}
			// What takes it away is made where it was, should somebody have deleted that.
			w.change(c, func() { change.edit(c) })
			w.settle()
			cleanup := &appsv1.DaemonSet{ObjectMeta: inHome("fairlead-cleanup-gvisor-a")}
			w.get(cleanup)
			w.must(w.client.Delete(t.Context(), cleanup))
			w.get(c)
			w.must(w.client.Delete(t.Context(), c))
			made := ""
			w.watch = func() {
				if set := (&appsv1.DaemonSet{ObjectMeta: inHome("fairlead-cleanup-gvisor-a")}); w.get(set) {
					pod := &set.Spec.Template.Spec
					made = strings.Join(pod.Containers[0].Args, " ")
					for _, v := range pod.Volumes {
						if v.HostPath != nil {
							made += " mounts:" + v.HostPath.Path
						}
					}
				}
			}
			w.settle()
			w.wants("what cleans", made, "--binary-path /var/bin", "mounts:/var/bin")
			w.untouched()
			if w.class("gvisor") != nil {
				t.Error("the class is left")
			}
		})
	}
}

// So it is with machines of Gardener's.
func TestWhatIsInConfigsIsFoundAgain(t *testing.T) {
	for _, name := range []string{"pool", "binaryPath"} {
		t.Run(name, func(t *testing.T) {
			w, act := seed(t, "gvisor")
			c := inShoot("a")
			w.create(aPayload("gvisor", "1", "runsc"), config(t, "now", "reconcile", "a"), config(t, "others", "reconcile", "b"), c)
			act(c.Name)
			w.change(c, func() { changes[name].edit(c) })
			act(c.Name)
			w.get(c)
			if e := c.Status.LastError; e == nil || !strings.Contains(e.Description, changes[name].says) {
				t.Errorf("%+v", e)
			}
			fresh := config(t, "now", "reconcile", "a")
			if files, tables := has(admitted(t, w.client, fresh, nil)); len(files) != 1 || len(tables) != 1 {
				t.Errorf("written anew it has %q and %q", files, tables)
			}
			w.must(w.client.Delete(t.Context(), c))
			act(c.Name)
			for _, name := range []string{"now", "others"} {
				u := config(t, name, "", "")
				w.get(u)
				if files, tables := has(u); w.get(c) || len(files)+len(tables) > 0 {
					t.Errorf("%s is left with %q and %q", name, files, tables)
				}
			}
		})
	}
}

// An object that has put nothing anywhere may be mended.
func TestWhatIsNowhereIsNotRemembered(t *testing.T) {
	w := prepared(t, 1)
	c := asked("a")
	c.Spec.BinaryPath = "/"
	w.create(c)
	w.settle()
	w.wants("what is said", w.operation(c.Name), "give a folder below the root")
	w.change(c, func() { c.Spec.BinaryPath = "/opt/bin"; c.Annotations = map[string]string{placed.Annotation: "{"} })
	w.settle()
	if err := workerpool.Done(w.runtime(c.Name)); err != nil {
		t.Error(err)
	}
}

// Nodes that an object no longer selects are cleaned, like those that leave a pool: its
// selector may change.
func TestSelectorThatChanges(t *testing.T) {
	w := prepared(t, 1)
	w.fleet("b", 1)
	c := asked("a")
	w.create(c)
	w.settle()
	w.change(c, func() { c.Spec.WorkerPool.Selector.MatchLabels = map[string]string{"group": "b"} })
	w.settle()
	if err := workerpool.Done(w.runtime(c.Name)); err != nil {
		t.Error(err)
	}
	if left, has := w.node("a-000").Labels, w.node("b-000").Labels; len(left) != 1 || has["install.fairlead.run/gvisor"] != "install.a" {
		t.Errorf("the nodes have %v and %v", left, has)
	}
}
