package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/test/e2e/flaky"
)

const configMapPath = "/api/v1/namespaces/fairlead-nodes/configmaps"

// startThrough starts the operator with a proxy before the API server.
func (c *crew) startThrough(t *testing.T, beta bool) *flaky.Proxy {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", node.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	// Clients keep tokens to themselves where there is no TLS, so the proxy has it.
	account, err := rest.TransportFor(&rest.Config{
		Host: cfg.Host, TLSClientConfig: rest.TLSClientConfig{CAFile: cfg.CAFile}, BearerToken: accountToken(t, operatorNamespace, "fairlead-operator"),
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := flaky.Start(t.Context(), cfg.Host, account)
	if err != nil {
		t.Fatal(err)
	}
	p.Beta = beta
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, fmt.Appendf(nil, tokenKubeconfig, p.Host(), "", ""), 0o600); err != nil {
		t.Fatal(err)
	}
	c.start(t, path)
	return p
}

// The operator before an API server that refuses, forgets, conflicts, is slow and tells
// of changes late, while others change the same objects.
func TestOperatorFaults(t *testing.T) {
	needOperator(t)
	c := newCrew(t)
	c.strangers(t)
	c.standIn(t)
	p := c.startThrough(t, false)
	t.Run("storm", func(t *testing.T) { c.stormy(t, p) })
	t.Run("stale", func(t *testing.T) { c.stale(t, p) })
	c.unmoved(t)
}

// strangers are objects of others that look like the operator's.
var strangers = map[string]object{
	classPath: {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": object{"name": "somebodys", "labels": object{"operator.fairlead.run/type": "gvisor"}}, "handler": "runsc"},
	setPath: {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": object{"name": "somebodys", "labels": object{"operator.fairlead.run/type": "gvisor"}}, "spec": object{
		"selector": object{"matchLabels": object{"of": "somebody"}},
		"template": object{"metadata": object{"labels": object{"of": "somebody"}}, "spec": object{"nodeSelector": object{"no": "node"}, "containers": []object{{"name": "c", "image": "none"}}}},
	}},
	runtimePath:   {"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "ContainerRuntime", "metadata": object{"name": "somebodys"}, "spec": object{"type": "firecracker", "binaryPath": "/usr/bin", "workerPool": object{"name": "red", "selector": object{"matchLabels": object{"group": "red"}}}}},
	configMapPath: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "somebodys"}},
}

func (c *crew) strangers(t *testing.T) {
	t.Helper()
	for path, o := range strangers {
		c.must(t, http.MethodPost, path, o, nil)
		t.Cleanup(func() { _, _ = c.do(context.Background(), http.MethodDelete, path+"/somebodys", nil) })
	}
	c.registerNode(t, "somebodys", kindOf{labels: map[string]string{"group": "nobody", "worker.gardener.cloud/pool": "elsewhere"}, handlers: []string{"", "runc"}})
	t.Cleanup(func() { _, _ = c.do(context.Background(), http.MethodDelete, "/api/v1/nodes/somebodys", nil) })
}

// unmoved fails if somebody has written to one of them.
func (c *crew) unmoved(t *testing.T) {
	t.Helper()
	for path := range strangers {
		var got metav1.PartialObjectMetadata
		c.must(t, http.MethodGet, path+"/somebodys", nil, &got)
		for _, m := range got.ManagedFields {
			if strings.HasPrefix(m.Manager, "fairlead-operator") {
				t.Errorf("%s/somebodys was written by the operator: %s", path, m.FieldsV1)
			}
		}
		if got.DeletionTimestamp != nil || len(got.Finalizers) > 0 {
			t.Errorf("%s/somebodys: %+v", path, got.ObjectMeta)
		}
	}
	for _, n := range c.nodes(t, "group=nobody") {
		if got := ofOperator(n.Labels); len(got) != 1 || got[gardener.LabelPool] != "elsewhere" {
			t.Errorf("node %s: %v", n.Name, got)
		}
	}
}

// born are nodes of a group with the taint of those that are not ready.
func (c *crew) born(t *testing.T, group string, n int) []string {
	t.Helper()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%02d", group, i))
		c.bear(t, names[i], group)
	}
	c.whole.Cleanup(func() {
		if _, err := node.Kubectl(context.Background(), append([]string{"delete", "node", "--wait=false", "--ignore-not-found"}, names...)...); err != nil {
			t.Error(err)
		}
	})
	return names
}

var unready = corev1.Taint{Key: "e2e.fairlead.run/unready", Effect: corev1.TaintEffectNoSchedule}

func (c *crew) bear(t *testing.T, name, group string) {
	t.Helper()
	c.registerNode(t, name, kindOf{labels: map[string]string{"group": group}, handlers: []string{"", "runc"}, taints: []corev1.Taint{unready, kept}})
}

func aTaintedPool(name string, types ...string) object {
	p := aPool(name, types...)
	spec := p["spec"].(object)
	spec["startupTaint"], spec["maxUnavailable"] = object{"key": unready.Key, "effect": unready.Effect}, 4
	return p
}

var storm = flaky.Storm{Writes: 0.2, Reads: 0.1, Lag: 2 * time.Second, Life: 15 * time.Second}

// stormy has two pools come, change and go while everything goes wrong.
func (c *crew) stormy(t *testing.T, p *flaky.Proxy) {
	red := c.born(t, "red", 12)
	c.born(t, "blue", 6)
	t.Cleanup(func() { p.Set(flaky.Storm{}) })
	p.Set(storm)
	end := c.meddle(t)
	watched := c.watchTaints(t)
	pools := stormPools
	for name, types := range pools {
		c.must(t, http.MethodPost, poolPath, aTaintedPool(name, types...), nil)
	}
	c.ready(t, "red")
	c.ready(t, "blue")
	c.reconciled(t, runtimePath+"/gvisor-red")
	c.asks(t, "red", costly, object{"type": "kata-containers"})
	c.asks(t, "blue", costly)
	// What somebody takes away comes back, and so does a machine of a name that was there.
	c.must(t, http.MethodDelete, runtimePath+"/gvisor-blue", nil, nil)
	c.must(t, http.MethodDelete, setPath+"?labelSelector=operator.fairlead.run/pool=red", nil, nil)
	c.must(t, http.MethodDelete, classPath+"/kata-qemu", nil, nil)
	c.must(t, http.MethodDelete, "/api/v1/nodes/"+red[0], nil, nil)
	c.bear(t, red[0], "red")
	end()
	t.Logf("with meddlers: %v", p.Counts())
	eventually(t, func() error { return c.sound(t, pools) }) // during faults, too
	p.Set(flaky.Storm{})
	eventually(t, func() error { return c.sound(t, pools) })
	watched()
	p.Set(storm)
	end = c.meddle(t)
	c.must(t, http.MethodDelete, poolPath+"/blue", nil, nil)
	c.gone(t, poolPath+"/blue")
	c.must(t, http.MethodDelete, poolPath+"/red", nil, nil)
	c.gone(t, poolPath+"/red")
	end()
	p.Set(flaky.Storm{})
	c.nothingLeft(t, "red", "blue")
	t.Logf("in the end: %v", p.Counts())
	for _, what := range []string{"conflict", "busy", "broken", "away", "unheard", "lost", "cut", "expired"} {
		if p.Counts()[what] == 0 {
			t.Errorf("%s never happened: %v", what, p.Counts())
		}
	}
}

// meddle has somebody else write all the objects that the operator does, until it is
// told to end.
func (c *crew) meddle(t *testing.T) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			paths := []string{
				poolPath + "/red", poolPath + "/blue", runtimePath + "/gvisor-red", runtimePath + "/kata-containers-red", runtimePath + "/gvisor-blue",
				classPath + "/gvisor", classPath + "/kata-qemu", setPath + "/fairlead-gvisor-red", setPath + "/fairlead-cleanup-gvisor-red",
				fmt.Sprintf("/api/v1/nodes/red-%02d", i%12), fmt.Sprintf("/api/v1/nodes/blue-%02d", i%6),
			}
			// What is not there yet is there later. One at a time: who writes an object all the
			// time, faster than a watch can tell of it, keeps everybody else from that.
			_, _ = c.do(ctx, http.MethodPatch, paths[i%len(paths)], object{"metadata": object{"annotations": object{"e2e.fairlead.run/meddler": fmt.Sprint(i)}}})
			// Labels that somebody takes off come back.
			lost := []string{readyLabel, handlerLabel, gardener.LabelCRI, "container.runtime.gvisor"}[rand.IntN(4)]
			_, _ = c.do(ctx, http.MethodPatch, fmt.Sprintf("/api/v1/nodes/red-%02d", i%12), object{"metadata": object{"labels": object{lost: nil}}})
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
	var once bool
	end = func() {
		if !once {
			once = true
			cancel()
			<-ended
		}
	}
	t.Cleanup(end)
	return end
}

// watchTaints has a watch on nodes see that a taint goes only when all is ready: a look
// now and then could miss it.
func (c *crew) watchTaints(t *testing.T) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.taintsOf(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// taintsOf looks at every version of the nodes until ctx ends.
func (c *crew) taintsOf(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.host+"/api/v1/nodes?watch=1&labelSelector=group+in+(red,blue)", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	seen, had := 0, map[types.UID]bool{}
	for all := json.NewDecoder(answer.Body); ; seen++ {
		var e struct{ Object corev1.Node }
		if err := all.Decode(&e); err != nil {
			if ctx.Err() == nil || seen == 0 {
				return fmt.Errorf("watch nodes, of which %d versions were seen: %w", seen, err)
			}
			return nil
		}
		n := &e.Object
		has := taintKeys(n)[unready.Key]
		if had[n.UID] && !has {
			for _, typ := range stormPools[n.Labels["group"]] {
				if n.Labels["ready.fairlead.run/"+typ] != "true" {
					return fmt.Errorf("node %s has lost its taint with labels %v", n.Name, n.Labels)
				}
			}
		}
		had[n.UID] = has
	}
}

// costly is gvisor with an overhead of its own.
var costly = object{"type": "gvisor", "providerConfig": object{"overhead": object{"memory": "48Mi"}}}

// stormPools are pools, and the types that they ask for.
var stormPools = map[string][]string{"red": {"gvisor", "kata-containers"}, "blue": {"gvisor"}}

// asks has a pool ask for some runtimes.
func (c *crew) asks(t *testing.T, pool string, runtimes ...object) (after v1alpha1.WorkerPool) {
	t.Helper()
	c.must(t, http.MethodPatch, poolPath+"/"+pool, object{"spec": object{"cri": object{"name": "containerd", "containerRuntimes": append([]object{}, runtimes...)}}}, &after)
	return after
}

// sound says what is not as it should be with some pools and their types.
func (c *crew) sound(t *testing.T, pools map[string][]string) error {
	t.Helper()
	runtimes, uids, err := c.soundRuntimes(t, pools)
	if err != nil {
		return err
	}
	for name := range pools {
		var p v1alpha1.WorkerPool
		c.must(t, http.MethodGet, poolPath+"/"+name, nil, &p)
		if !slices.ContainsFunc(p.Status.Conditions, func(o metav1.Condition) bool {
			return o.Type == "Ready" && o.Status == metav1.ConditionTrue && o.ObservedGeneration == p.Generation
		}) || len(p.Finalizers) != 1 {
			return fmt.Errorf("pool %s: %+v %v", name, p.Status, p.Finalizers)
		}
	}
	if err := c.soundSets(t, runtimes, uids); err != nil {
		return err
	}
	if err := c.soundClasses(t, pools); err != nil {
		return err
	}
	return c.soundNodes(t, pools)
}

// soundRuntimes looks at the ContainerRuntimes: one for each pool and type, and done.
func (c *crew) soundRuntimes(t *testing.T, pools map[string][]string) (n int, uids map[string]bool, err error) {
	t.Helper()
	var list gardener.ContainerRuntimeList
	c.must(t, http.MethodGet, runtimePath+"?labelSelector=app.kubernetes.io/managed-by=fairlead-operator", nil, &list)
	uids = map[string]bool{}
	want := map[string]bool{}
	for pool, types := range pools {
		for _, typ := range types {
			want[typ+"-"+pool] = true
		}
	}
	for i := range list.Items {
		one := &list.Items[i]
		uids[string(one.UID)] = true
		last := one.Status.LastOperation
		if !want[one.Name] || one.DeletionTimestamp != nil || one.Status.LastError != nil || one.Status.ObservedGeneration != one.Generation ||
			last == nil || last.State != gardener.StateSucceeded || one.Annotations[gardener.AnnotationOperation] != "" || len(one.Finalizers) != 1 {
			return 0, nil, fmt.Errorf("ContainerRuntime %s: %+v %v %v", one.Name, one.Status, one.Annotations, one.Finalizers)
		}
		delete(want, one.Name)
	}
	if len(want) > 0 {
		return 0, nil, fmt.Errorf("there are no ContainerRuntimes %v", want)
	}
	return len(list.Items), uids, nil
}

// soundSets looks at DaemonSets and ConfigMaps: two of the former for each
// ContainerRuntime, and none whose owner is gone.
func (c *crew) soundSets(t *testing.T, runtimes int, uids map[string]bool) error {
	t.Helper()
	var sets appsv1.DaemonSetList
	c.must(t, http.MethodGet, setPath, nil, &sets)
	owned := 0
	for i := range sets.Items {
		s := &sets.Items[i]
		if s.Name == "somebodys" {
			continue
		}
		if owner := metav1.GetControllerOf(s); owner == nil || !uids[string(owner.UID)] || s.DeletionTimestamp != nil {
			return fmt.Errorf("DaemonSet %s is of %+v", s.Name, owner)
		}
		owned++
	}
	if owned != 2*runtimes {
		return fmt.Errorf("%d DaemonSets for %d ContainerRuntimes", owned, runtimes)
	}
	var settings corev1.ConfigMapList
	c.must(t, http.MethodGet, configMapPath, nil, &settings)
	for i := range settings.Items {
		m := &settings.Items[i]
		if m.Name != "somebodys" && m.Name != "kube-root-ca.crt" && (len(m.OwnerReferences) != 1 || !uids[string(m.OwnerReferences[0].UID)]) {
			return fmt.Errorf("ConfigMap %s is of %+v", m.Name, m.OwnerReferences)
		}
	}
	return nil
}

// soundClasses looks at the classes: those of the pools' types, and no others.
func (c *crew) soundClasses(t *testing.T, pools map[string][]string) error {
	t.Helper()
	want := map[string]string{} // handlers by names
	for _, types := range pools {
		for _, typ := range types {
			want[map[string]string{"gvisor": "gvisor", "kata-containers": "kata-qemu"}[typ]] = handlerOf[typ]
		}
	}
	var list nodev1.RuntimeClassList
	c.must(t, http.MethodGet, classPath, nil, &list)
	for i := range list.Items {
		one := &list.Items[i]
		if one.Labels["app.kubernetes.io/managed-by"] != "fairlead-operator" {
			continue
		}
		if one.Handler != want[one.Name] || one.Overhead == nil || one.Scheduling == nil || one.Scheduling.NodeSelector["handler.fairlead.run/"+one.Handler] == "" {
			return fmt.Errorf("class %+v", one)
		}
		if memory := one.Overhead.PodFixed.Memory().String(); one.Name == "gvisor" && memory != "48Mi" {
			return fmt.Errorf("class gvisor has an overhead of %s", memory)
		}
		delete(want, one.Name)
	}
	if len(want) > 0 {
		return fmt.Errorf("there are no classes for %v", want)
	}
	return nil
}

// handlerOf are the handlers of types.
var handlerOf = map[string]string{"gvisor": "runsc", "kata-containers": "kata-qemu"}

// soundNodes looks at labels and taints, to the last one.
func (c *crew) soundNodes(t *testing.T, pools map[string][]string) error {
	t.Helper()
	for pool, types := range pools {
		for _, n := range c.nodes(t, "group="+pool) {
			want := map[string]string{gardener.LabelPool: pool, gardener.LabelCRI: "containerd"}
			for _, typ := range types {
				maps.Copy(want, map[string]string{
					"containerruntime.worker.gardener.cloud/" + typ: "true", "container.runtime." + typ: "true", "ready.fairlead.run/" + typ: "true",
					"install.fairlead.run/" + typ: "install." + pool, "handler.fairlead.run/" + handlerOf[typ]: typ,
				})
			}
			if got := ofOperator(n.Labels); !maps.Equal(got, want) {
				return fmt.Errorf("node %s has labels %v, and not %v", n.Name, got, want)
			}
			if has := taintKeys(&n); has[unready.Key] || !has[kept.Key] {
				return fmt.Errorf("node %s has taints %v", n.Name, has)
			}
		}
	}
	return nil
}

// ofOperator are the labels that the operator may have put on a node.
func ofOperator(labels map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range labels {
		if strings.Contains(key, "fairlead.run") || strings.Contains(key, "gardener.cloud") || strings.HasPrefix(key, "container.runtime.") {
			out[key] = value
		}
	}
	return out
}

func taintKeys(n *corev1.Node) map[string]bool {
	out := map[string]bool{}
	for _, one := range n.Spec.Taints {
		out[one.Key] = true
	}
	return out
}

// nothingLeft waits until nothing of the operator's is there any more.
func (c *crew) nothingLeft(t *testing.T, groups ...string) {
	t.Helper()
	eventually(t, func() error {
		if _, _, err := c.soundRuntimes(t, nil); err != nil {
			return err
		}
		if err := c.soundSets(t, 0, nil); err != nil {
			return err
		}
		var list nodev1.RuntimeClassList
		c.must(t, http.MethodGet, classPath+"?labelSelector=app.kubernetes.io/managed-by=fairlead-operator", nil, &list)
		if len(list.Items) > 0 {
			return fmt.Errorf("%d classes are still there", len(list.Items))
		}
		for _, group := range groups {
			if err := c.plain(t, group); err != nil {
				return err
			}
		}
		return nil
	})
}

// plain says which nodes of a group still have labels of the operator.
func (c *crew) plain(t *testing.T, group string) error {
	t.Helper()
	for _, n := range c.nodes(t, "group="+group) {
		if got := ofOperator(n.Labels); len(got) > 0 {
			return fmt.Errorf("node %s still has labels %v", n.Name, got)
		}
	}
	return nil
}

// stale has the operator act while its caches do not hear of some kinds.
func (c *crew) stale(t *testing.T, p *flaky.Proxy) {
	c.born(t, "late", 3)
	for _, test := range []struct {
		name  string
		hold  string
		until func() error // what the API server has by then
	}{
		{"ContainerRuntimes", "containerruntimes", func() error {
			return c.exists(runtimePath + "/gvisor-late")
		}},
		{"nodes", "nodes", func() error {
			if len(c.nodes(t, "worker.gardener.cloud/pool=late")) == 0 {
				return errors.New("no node is in the pool")
			}
			return nil
		}},
		{"classes", "runtimeclasses", func() error { return c.exists(classPath + "/gvisor") }},
		{"DaemonSets", "daemonsets", func() error { return c.exists(setPath + "/fairlead-gvisor-late") }},
		{"pods", "pods", func() error {
			if len(c.nodes(t, phaseLabel)) == 0 {
				return errors.New("no node is worked on")
			}
			return nil
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p.Hold(test.hold)
			c.must(t, http.MethodPost, poolPath, aTaintedPool("late", "gvisor"), nil)
			eventually(t, test.until)
			c.must(t, http.MethodDelete, poolPath+"/late", nil, nil)
			// Time for whoever believes that nothing is there. If it is too short, a fault is missed.
			time.Sleep(3 * time.Second)
			p.Release()
			c.gone(t, poolPath+"/late")
			c.nothingLeft(t, "late")
		})
	}
	t.Run("an old answer", func(t *testing.T) { c.oldAnswer(t, p) })
	t.Run("made anew", func(t *testing.T) { c.reborn(t, p) })
	t.Run("a namesake", func(t *testing.T) { c.namesake(t, p) })
}

func (c *crew) exists(path string) error {
	got, err := c.do(context.Background(), http.MethodGet, path, nil)
	if err == nil && !got.ok() {
		err = errors.New(got.String())
	}
	return err
}

// oldAnswer changes a pool whose ContainerRuntime nobody hears of: it is not ready by
// what that said before.
func (c *crew) oldAnswer(t *testing.T, p *flaky.Proxy) {
	c.must(t, http.MethodPost, poolPath, aTaintedPool("late", "gvisor"), nil)
	c.ready(t, "late")
	p.Hold("containerruntimes")
	changed := c.asks(t, "late", costly)
	eventually(t, func() error {
		var got v1alpha1.WorkerPool
		c.must(t, http.MethodGet, poolPath+"/late", nil, &got)
		for _, one := range got.Status.Conditions {
			if one.Type != "Ready" || one.ObservedGeneration != changed.Generation {
				continue
			}
			if one.Status == metav1.ConditionTrue {
				t.Errorf("it is ready by an old answer: %+v", one)
			}
			return nil
		}
		return errors.New("nobody has looked at the pool")
	})
	p.Release()
	c.ready(t, "late")
	eventually(t, func() error { return c.sound(t, map[string][]string{"late": {"gvisor"}}) })
}

// reborn has a pool and its ContainerRuntime taken away by force, and made anew, while
// caches still have the ones before.
func (c *crew) reborn(t *testing.T, p *flaky.Proxy) {
	p.Hold("workerpools", "containerruntimes", "daemonsets", "nodes", "pods", "runtimeclasses")
	for _, path := range []string{runtimePath + "/gvisor-late", poolPath + "/late"} {
		c.must(t, http.MethodPatch, path, object{"metadata": object{"finalizers": nil}}, nil)
		c.must(t, http.MethodDelete, path, nil, nil)
	}
	pool := aTaintedPool("late")
	pool["spec"].(object)["cri"].(object)["containerRuntimes"] = []object{costly}
	c.must(t, http.MethodPost, poolPath, pool, nil)
	time.Sleep(3 * time.Second) // as above
	p.Release()
	c.ready(t, "late")
	eventually(t, func() error { return c.sound(t, map[string][]string{"late": {"gvisor"}}) })
}

// namesake has somebody else take the name of a ContainerRuntime that is to go, and that
// was taken away behind the operator's back.
func (c *crew) namesake(t *testing.T, p *flaky.Proxy) {
	const path = runtimePath + "/gvisor-late"
	p.Hold("containerruntimes")
	c.must(t, http.MethodPatch, path, object{"metadata": object{"finalizers": nil}}, nil)
	c.must(t, http.MethodDelete, path, nil, nil)
	theirs := maps.Clone(strangers[runtimePath])
	theirs["metadata"] = object{"name": "gvisor-late"}
	c.must(t, http.MethodPost, runtimePath, theirs, nil)
	c.asks(t, "late")
	time.Sleep(3 * time.Second) // as above
	p.Release()
	c.asks(t, "late", object{"type": "gvisor"})
	c.refused(t, "late", "Valid", "ContainerRuntime fairlead-nodes/gvisor-late is there")
	var got gardener.ContainerRuntime
	c.must(t, http.MethodGet, path, nil, &got)
	if len(got.Annotations) > 0 || len(got.Finalizers) > 0 || got.DeletionTimestamp != nil {
		t.Errorf("somebody else's was written: %+v", got.ObjectMeta)
	}
	c.must(t, http.MethodDelete, path, nil, nil)
	c.ready(t, "late")
	c.must(t, http.MethodDelete, poolPath+"/late", nil, nil)
	c.gone(t, poolPath+"/late")
	c.nothingLeft(t, "late")
}
