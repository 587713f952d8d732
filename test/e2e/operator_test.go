package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/test/e2e/cluster"
	"fairlead.run/test/e2e/machine"
)

const (
	operatorHealth = "127.0.0.1:8082"

	poolPath    = "/apis/fairlead.run/v1alpha1/workerpools"
	payloadPath = "/apis/fairlead.run/v1alpha1/runtimepayloads"
	runtimePath = "/apis/extensions.gardener.cloud/v1alpha1/namespaces/fairlead-nodes/containerruntimes"
	setPath     = "/apis/apps/v1/namespaces/fairlead-nodes/daemonsets"
	classPath   = "/apis/node.k8s.io/v1/runtimeclasses"

	fleetSize  = 200
	atOnce     = 20
	readyLabel = "ready.fairlead.run/gvisor"
	phaseLabel = "install.fairlead.run/gvisor"

	handlerLabel = "handler.fairlead.run/runsc"
)

func needOperator(t *testing.T) {
	t.Helper()
	if !*operator {
		t.Skip("no -operator: make e2e-operator runs this")
	}
}

// crew is an operator that is a process beside the cluster, and what stands in for the
// kubelets of its nodes.
type crew struct {
	*hook
	process *cluster.Process
	whole   *testing.T // what all parts have in common ends with it
	beaten  time.Time  // when the leases of nodes were renewed last

	mu      sync.Mutex
	waiting map[string]bool // nodes whose pods say nothing
	peak    int             // of nodes that were worked on at the same time
}

// The operator in a real cluster: its API server checks schemas, its controllers make
// pods of DaemonSets and collect what has no owner, its scheduler places them. The
// nodes have no kubelets, and the test says for them what pods do.
func TestOperator(t *testing.T) {
	needOperator(t)
	c := newCrew(t)
	c.start(t, accountKubeconfig(t, operatorNamespace, "fairlead-operator"))
	t.Run("schemas", c.schemas)
	t.Run("fleet", c.fleet)
	t.Run("renew", c.renew)
	t.Run("wait", c.wait)
	t.Run("conflict", c.disagree)
	t.Run("taint", c.taint)
	t.Run("verbs", c.verbs)
	t.Run("force", c.force)
	t.Run("end", c.end)
}

// newCrew prepares the cluster, with payloads that nobody pulls. The operator is started
// later.
func newCrew(t *testing.T) *crew {
	t.Helper()
	c := bareCrew(t)
	for typ, handler := range map[string]string{"gvisor": "runsc", "kata-containers": "kata-qemu"} {
		c.must(t, http.MethodPost, payloadPath, aRelease(typ, handler), nil)
		t.Cleanup(func() { _, _ = c.do(context.Background(), http.MethodDelete, payloadPath+"/"+typ, nil) })
	}
	return c
}

// bareCrew prepares the cluster without payloads.
func bareCrew(t *testing.T) *crew {
	t.Helper()
	c := &crew{hook: &hook{api: newAPI(t)}, whole: t, waiting: map[string]bool{}}
	applyFiles(t, "../../deploy/crds", cmp.Or(*theirCRD, "../../deploy/crds/gardener"), "../../deploy/operator/00-namespace.yaml", "../../deploy/operator/10-rbac.yaml")
	kubectl(t, "wait", "--for=condition=Established", "crd/workerpools.fairlead.run", "crd/runtimepayloads.fairlead.run", "crd/containerruntimes.extensions.gardener.cloud")
	return c
}

// start starts the operator, which reaches the API server by a kubeconfig.
func (c *crew) start(t *testing.T, kubeconfig string) {
	t.Helper()
	var err error
	c.process, err = node.Program(t.Context(), machine.Program{
		Name: "operator",
		Argv: []string{
			filepath.Join(*fairlead, "fairlead"), "operator", "--kubeconfig", kubeconfig,
			"--namespace", operatorNamespace, "--health", operatorHealth, "--metrics", "0", "--log-level", "debug",
		},
	}, func(ctx context.Context) error {
		code, text, err := get(ctx, "http://"+operatorHealth+"/readyz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.process.Kill(); err != nil {
			t.Error(err)
		}
	})
}

func aRelease(typ, handler string) object {
	sum := strings.Repeat("ab", 32)
	return object{"apiVersion": "fairlead.run/v1alpha1", "kind": "RuntimePayload", "metadata": object{"name": typ}, "spec": object{
		"image": "registry.example/" + typ + "@sha256:" + sum,
		"manifest": object{
			"apiVersion": "payload.fairlead.run/v1alpha1", "kind": "RuntimePayload", "type": typ, "version": "1", "os": "linux", "architectures": []string{"amd64"},
			"files":    []object{{"path": "shim", "mode": "0755", "size": 1, "sha256": sum}},
			"handlers": []object{{"name": handler, "containerd": object{"runtimeType": "io.containerd." + handler + ".v1", "runtimePath": "shim"}}},
		},
	}}
}

func aPool(name string, types ...string) object {
	runtimes := []object{}
	for _, t := range types {
		runtimes = append(runtimes, object{"type": t})
	}
	return object{"apiVersion": "fairlead.run/v1alpha1", "kind": "WorkerPool", "metadata": object{"name": name}, "spec": object{
		"nodeSelector": object{"group": name}, "machineType": "m5.metal", "machineImage": object{"name": "ubuntu"}, "maxUnavailable": atOnce,
		"cri": object{"name": "containerd", "containerRuntimes": runtimes},
	}}
}

// schemas has the API server refuse what needs no webhook to be found wrong.
func (c *crew) schemas(t *testing.T) {
	with := func(change func(spec object)) object {
		p := aPool("wrong", "gvisor")
		change(p["spec"].(object))
		return p
	}
	for name, test := range map[string]struct {
		path string
		body object
		says string
	}{
		"CRI":             {poolPath, with(func(s object) { s["cri"] = object{"name": "docker"} }), "spec.cri.name"},
		"twice":           {poolPath, aPool("wrong", "gvisor", "gvisor"), "Duplicate value"},
		"no selector":     {poolPath, with(func(s object) { s["nodeSelector"] = object{} }), "spec.nodeSelector"},
		"maxUnavailable":  {poolPath, with(func(s object) { s["maxUnavailable"] = "0%" }), "from 1 to 1000"},
		"restart":         {poolPath, with(func(s object) { s["restart"] = object{"method": "command"} }), "method command"},
		"unknown restart": {poolPath, with(func(s object) { s["restart"] = object{"method": "reboot"} }), "spec.restart.method"},
		"long name":       {poolPath, aPool(strings.Repeat("a", 41), "gvisor"), "at most 40 characters"},
		"no digest": {payloadPath, func() object {
			p := aRelease("gvisor-x", "runsc")
			p["spec"].(object)["image"] = "registry.example/gvisor:latest"
			return p
		}(), "spec.image"},
		"another name": {payloadPath, func() object {
			p := aRelease("gvisor", "runsc")
			p["metadata"] = object{"name": "other"}
			return p
		}(), "must be the name of the object"},
		"no pool": {runtimePath, object{"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "ContainerRuntime", "metadata": object{"name": "x"}, "spec": object{"type": "gvisor", "binaryPath": "/usr/bin"}}, "spec.workerPool"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.ask(t, http.MethodPost, test.path, test.body); got.ok() || !strings.Contains(got.message(), test.says) {
				t.Errorf("%s, not about %q", got, test.says)
			}
		})
	}
}

// fleet brings a runtime to 200 nodes, and kills the operator on the way.
func (c *crew) fleet(t *testing.T) {
	var names []string
	for i := range fleetSize {
		names = append(names, fmt.Sprintf("fleet-%03d", i))
		c.registerNode(t, names[i], kindOf{labels: map[string]string{"group": "fleet"}, handlers: []string{"", "runc"}})
	}
	c.whole.Cleanup(func() {
		if _, err := node.Kubectl(context.Background(), append([]string{"delete", "node", "--wait=false"}, names...)...); err != nil {
			t.Error(err)
		}
	})
	c.standIn(t)
	c.must(t, http.MethodPost, poolPath, aPool("fleet", "gvisor"), nil)
	eventually(t, func() error {
		if n := len(c.nodes(t, readyLabel+"=true")); n < 3*atOnce {
			return fmt.Errorf("%d nodes are ready", n)
		}
		return nil
	})
	if err := c.process.Stop(); err != nil { // by SIGTERM, so that it gives up its Lease
		t.Fatal(err)
	}
	if err := c.process.Start(); err != nil {
		t.Fatal(err)
	}
	c.ready(t, "fleet")
	if n := len(c.nodes(t, readyLabel+"=true,container.runtime.gvisor=true,containerruntime.worker.gardener.cloud/gvisor=true,worker.gardener.cloud/pool=fleet")); n != fleetSize {
		t.Errorf("%d nodes have all labels", n)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peak > atOnce || c.peak < 2 {
		t.Errorf("%d nodes were worked on at once, of %d that may be", c.peak, atOnce)
	}
	var class nodev1.RuntimeClass
	c.must(t, http.MethodGet, classPath+"/gvisor", nil, &class)
	if class.Handler != "runsc" || class.Scheduling.NodeSelector[handlerLabel] != "gvisor" {
		t.Errorf("class: %+v", class)
	}
}

// nodes are those that a selector chooses.
func (c *crew) nodes(t *testing.T, selector string) []corev1.Node {
	t.Helper()
	var list corev1.NodeList
	c.must(t, http.MethodGet, "/api/v1/nodes?labelSelector="+selector, nil, &list)
	return list.Items
}

// ready waits for a pool as kubectl wait does.
func (c *crew) ready(t *testing.T, pool string) {
	t.Helper()
	eventually(t, func() error {
		var p v1alpha1.WorkerPool
		c.must(t, http.MethodGet, poolPath+"/"+pool, nil, &p)
		for _, one := range p.Status.Conditions {
			if one.Type == "Ready" && one.Status == metav1.ConditionTrue && one.ObservedGeneration == p.Generation {
				return nil
			}
		}
		return fmt.Errorf("the pool is not ready: %+v", p.Status)
	})
}

// standIn does for pods of DaemonSets what kubelets would, until the test ends.
func (c *crew) standIn(t *testing.T) {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			c.kubelets(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	c.whole.Cleanup(func() {
		end()
		<-ended
	})
}

// kubelets looks once. What fails is done the next time.
func (c *crew) kubelets(ctx context.Context) {
	var nodes corev1.NodeList
	var pods corev1.PodList
	for path, into := range map[string]any{
		"/api/v1/nodes?labelSelector=" + phaseLabel:                             &nodes,
		podsOf(operatorNamespace) + "?labelSelector=operator.fairlead.run/work": &pods,
	} {
		got, err := c.do(ctx, http.MethodGet, path, nil)
		if err != nil || json.Unmarshal(got.body, into) != nil {
			return
		}
	}
	c.beat(ctx, nodes.Items)
	busy := 0
	for i := range nodes.Items {
		if l := nodes.Items[i].Labels; strings.HasPrefix(l[phaseLabel], "install.") && l[readyLabel] == "" {
			busy++
		}
	}
	c.mu.Lock()
	c.peak = max(c.peak, busy)
	waiting := c.waiting
	c.mu.Unlock()
	for i := range pods.Items {
		p := &pods.Items[i]
		path := podsOf(p.Namespace) + "/" + p.Name
		switch {
		case p.DeletionTimestamp != nil:
			_, _ = c.do(ctx, http.MethodDelete, path, object{"gracePeriodSeconds": 0})
		case p.Spec.NodeName == "" || waiting[p.Spec.NodeName] || isReady(p):
		default:
			_, _ = c.do(ctx, http.MethodPatch, path+"/status", object{"status": object{"phase": "Running", "conditions": []object{
				{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"},
			}}})
		}
	}
}

// isReady says that a pod was said to be ready, and that nobody has taken it back: the
// controller of nodes does, as these have no kubelets that would renew their leases.
func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// wait gives an order as a gardenlet does, and polls for its answer.
func (c *crew) wait(t *testing.T) {
	const path = runtimePath + "/gvisor-fleet"
	var had gardener.ContainerRuntime
	c.must(t, http.MethodGet, path, nil, &had)
	if had.Status.LastOperation == nil || had.Status.LastOperation.Type != gardener.OperationCreate || !slices.Contains(had.Finalizers, gardener.Finalizer) {
		t.Errorf("%+v", had)
	}
	c.reconciled(t, path)
}

// reconciled orders a reconciliation, and waits for the answer to that and no other, by
// what a gardenlet looks at. That is not the type: a creation that was not done, as pods
// of nodes without kubelets are not ready for a moment, stays one.
func (c *crew) reconciled(t *testing.T, path string) {
	t.Helper()
	asked := time.Now().UTC()
	c.must(t, http.MethodPatch, path, object{"metadata": object{"annotations": object{
		gardener.AnnotationOperation: gardener.OrderReconcile, gardener.AnnotationTimestamp: asked.Format(time.RFC3339Nano),
	}}}, nil)
	eventually(t, func() error {
		var c1 gardener.ContainerRuntime
		c.must(t, http.MethodGet, path, nil, &c1)
		last := c1.Status.LastOperation
		switch {
		case c1.Annotations[gardener.AnnotationOperation] != "":
			return errors.New("the order was not taken")
		case c1.Status.LastError != nil:
			return errors.New(c1.Status.LastError.Description)
		case c1.Status.ObservedGeneration != c1.Generation || last == nil || last.State != gardener.StateSucceeded:
			return fmt.Errorf("%+v", last)
		case last.LastUpdateTime.Time.Before(asked):
			return fmt.Errorf("the answer is of %s and the order of %s", last.LastUpdateTime, asked)
		}
		return nil
	})
}

// disagree has a second pool for the same nodes, and an object for the same runtime.
func (c *crew) disagree(t *testing.T) {
	second := aPool("second", "gvisor")
	second["spec"].(object)["nodeSelector"] = object{"group": "fleet"}
	c.must(t, http.MethodPost, poolPath, second, nil)
	c.refused(t, "second", "Valid", "WorkerPool fleet has the same one")
	c.must(t, http.MethodDelete, poolPath+"/second", nil, nil)
	twin := object{"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "ContainerRuntime", "metadata": object{"name": "twin"}, "spec": object{"type": "gvisor", "binaryPath": "/usr/bin", "workerPool": object{"name": "fleet", "selector": object{"matchLabels": object{"group": "fleet"}}}}}
	c.must(t, http.MethodPost, runtimePath, twin, nil)
	eventually(t, func() error {
		var got gardener.ContainerRuntime
		c.must(t, http.MethodGet, runtimePath+"/twin", nil, &got)
		if e := got.Status.LastError; e == nil || !slices.Contains(e.Codes, gardener.CodeConfiguration) {
			return fmt.Errorf("%+v", got.Status)
		}
		return nil
	})
	c.must(t, http.MethodDelete, runtimePath+"/twin", nil, nil)
	c.gone(t, runtimePath+"/twin", poolPath+"/second")
	c.overlap(t)
	c.overheads(t)
	if n := len(c.nodes(t, readyLabel+"=true,worker.gardener.cloud/pool=fleet")); n != fleetSize {
		t.Errorf("%d nodes are ready after somebody else has gone", n)
	}
}

// refused waits until a condition of a pool is false, and says why.
func (c *crew) refused(t *testing.T, pool, condition, says string) {
	t.Helper()
	eventually(t, func() error {
		var p v1alpha1.WorkerPool
		c.must(t, http.MethodGet, poolPath+"/"+pool, nil, &p)
		for _, one := range p.Status.Conditions {
			if one.Type == condition && one.Status == metav1.ConditionFalse && strings.Contains(one.Message, says) {
				return nil
			}
		}
		return fmt.Errorf("pool %s: %+v", pool, p.Status)
	})
}

// overlap has a pool choose a node that another one has, by another label.
func (c *crew) overlap(t *testing.T) {
	const path = "/api/v1/nodes/fleet-007"
	c.must(t, http.MethodPatch, path, object{"metadata": object{"labels": object{"also": "overlap"}}}, nil)
	pool := aPool("overlap", "gvisor")
	pool["spec"].(object)["nodeSelector"] = object{"also": "overlap"}
	c.must(t, http.MethodPost, poolPath, pool, nil)
	c.refused(t, "overlap", "Ready", "fleet-007; tell the pools apart")
	c.must(t, http.MethodDelete, poolPath+"/overlap", nil, nil)
	c.gone(t, poolPath+"/overlap", runtimePath+"/gvisor-overlap")
}

// overheads has a pool want another overhead for the class that all pools share.
func (c *crew) overheads(t *testing.T) {
	pool := aPool("costly", "gvisor")
	pool["spec"].(object)["cri"] = object{"name": "containerd", "containerRuntimes": []object{{"type": "gvisor", "providerConfig": object{"overhead": object{"memory": "64Mi"}}}}}
	c.must(t, http.MethodPost, poolPath, pool, nil)
	c.refused(t, "costly", "Valid", "WorkerPool fleet gives it, memory=32Mi, and this pool wants memory=64Mi")
	if got := c.ask(t, http.MethodGet, classPath+"/gvisor", nil); !strings.Contains(string(got.body), `"memory":"32Mi"`) {
		t.Errorf("the class is not as the older pool wants it: %s", got)
	}
	c.asks(t, "costly", object{"type": "gvisor"})
	c.ready(t, "costly")
	c.must(t, http.MethodDelete, poolPath+"/costly", nil, nil)
	c.gone(t, poolPath+"/costly", runtimePath+"/gvisor-costly")
}

// gone waits until objects are not there any more.
func (c *crew) gone(t *testing.T, paths ...string) {
	t.Helper()
	eventually(t, func() error {
		for _, path := range paths {
			if got := c.ask(t, http.MethodGet, path, nil); got.code != http.StatusNotFound {
				return fmt.Errorf("%s is still there: %s", path, got)
			}
		}
		return nil
	})
}

// hold has pods on some nodes say nothing, and those on all others what they are to.
func (c *crew) hold(nodes ...string) {
	waiting := map[string]bool{}
	for _, n := range nodes {
		waiting[n] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = waiting
}

// late are nodes that are born with a taint.
var late = []string{"late-0", "late-1"}

// taint has nodes that are born with a taint keep it until the last of their runtimes is
// there. The taints of others stay.
func (c *crew) taint(t *testing.T) {
	starting := corev1.Taint{Key: "e2e.fairlead.run/starting", Effect: corev1.TaintEffectNoSchedule}
	for _, name := range late {
		c.registerNode(t, name, kindOf{labels: map[string]string{"group": "late"}, handlers: []string{"", "runc"}, taints: []corev1.Taint{starting, kept}})
	}
	c.whole.Cleanup(func() {
		if _, err := node.Kubectl(context.Background(), append([]string{"delete", "node", "--wait=false"}, late...)...); err != nil {
			t.Error(err)
		}
	})
	c.hold(late[1])
	pool := aPool("late", "gvisor", "kata-containers")
	pool["spec"].(object)["startupTaint"] = object{"key": starting.Key, "effect": starting.Effect}
	c.must(t, http.MethodPost, poolPath, pool, nil)
	stands := func(want map[string]bool) error {
		for _, n := range c.nodes(t, "group=late") {
			has := map[string]bool{}
			for _, one := range n.Spec.Taints {
				has[one.Key] = true
			}
			if has[starting.Key] != want[n.Name] || !has[kept.Key] {
				return fmt.Errorf("node %s has taints %+v, and labels %v", n.Name, n.Spec.Taints, n.Labels)
			}
			all := n.Labels[readyLabel] == "true" && n.Labels["ready.fairlead.run/kata-containers"] == "true"
			if !has[starting.Key] && !all {
				t.Errorf("node %s has lost the taint with labels %v", n.Name, n.Labels)
			}
		}
		return nil
	}
	eventually(t, func() error { return stands(map[string]bool{late[1]: true}) })
	c.hold()
	eventually(t, func() error { return stands(nil) })
	c.ready(t, "late")
}

// verbs are those of a control plane that moves: what is there stays, and is taken over.
func (c *crew) verbs(t *testing.T) {
	const path = runtimePath + "/gvisor-late"
	order := func(what string, want gardener.OperationType, finalizers int) {
		t.Helper()
		asked := time.Now().UTC()
		c.must(t, http.MethodPatch, path, object{"metadata": object{"annotations": object{
			gardener.AnnotationOperation: what, gardener.AnnotationTimestamp: asked.Format(time.RFC3339Nano),
		}}}, nil)
		eventually(t, func() error {
			var got gardener.ContainerRuntime
			c.must(t, http.MethodGet, path, nil, &got)
			last := got.Status.LastOperation
			if last == nil || last.Type != want || last.State != gardener.StateSucceeded || last.LastUpdateTime.Time.Before(asked) || got.Annotations[gardener.AnnotationOperation] != "" || len(got.Finalizers) != finalizers {
				return fmt.Errorf("after %s: %+v %v %v", what, last, got.Annotations, got.Finalizers)
			}
			return nil
		})
		if n := len(c.nodes(t, readyLabel+"=true,group=late")); n != len(late) {
			t.Errorf("after %s %d nodes are ready", what, n)
		}
	}
	order(gardener.OrderMigrate, gardener.OperationMigrate, 0)
	order(gardener.OrderRestore, gardener.OperationRestore, 1)
	c.ready(t, "late")
}

// force takes a pool away whose nodes do not answer. What others have stays.
func (c *crew) force(t *testing.T) {
	c.hold(late...)
	c.must(t, http.MethodPatch, poolPath+"/late", object{"metadata": object{"annotations": object{gardener.AnnotationForce: "true"}}}, nil)
	c.must(t, http.MethodDelete, poolPath+"/late", nil, nil)
	c.gone(t, poolPath+"/late", runtimePath+"/gvisor-late", runtimePath+"/kata-containers-late", classPath+"/kata-qemu")
	c.bare(t, "late")
	c.hold()
	if got := c.ask(t, http.MethodGet, classPath+"/gvisor", nil); !got.ok() {
		t.Errorf("the class of another pool has gone: %s", got)
	}
	if n := len(c.nodes(t, readyLabel+"=true,group=fleet")); n != fleetSize {
		t.Errorf("%d nodes of another pool are ready", n)
	}
}

// bare fails if a node of a group still has a label of the operator's.
func (c *crew) bare(t *testing.T, group string) {
	t.Helper()
	if err := c.plain(t, group); err != nil {
		t.Error(err)
	}
}

// end takes everything away, which a pod holds up.
func (c *crew) end(t *testing.T) {
	c.namespaceFor(t, "users", nil)
	user := gated("user", object{"runtimeClassName": "gvisor"})
	c.must(t, http.MethodPost, podsOf("users"), user, nil)
	c.must(t, http.MethodDelete, poolPath+"/fleet", nil, nil)
	eventually(t, func() error {
		var got gardener.ContainerRuntime
		c.must(t, http.MethodGet, runtimePath+"/gvisor-fleet", nil, &got)
		if e := got.Status.LastError; e == nil || !slices.Contains(e.Codes, gardener.CodeCleanup) || !strings.Contains(e.Description, "users/user") {
			return fmt.Errorf("%+v", got.Status)
		}
		return nil
	})
	if got := c.ask(t, http.MethodGet, classPath+"/gvisor", nil); !got.ok() {
		t.Errorf("the class has gone under a pod: %s", got)
	}
	c.must(t, http.MethodDelete, podsOf("users")+"/user", object{"gracePeriodSeconds": 0}, nil)
	c.gone(t, poolPath+"/fleet", runtimePath+"/gvisor-fleet", classPath+"/gvisor")
	var sets appsv1.DaemonSetList
	eventually(t, func() error {
		if c.must(t, http.MethodGet, setPath, nil, &sets); len(sets.Items) > 0 {
			return fmt.Errorf("%d DaemonSets are still there", len(sets.Items))
		}
		return nil
	})
	c.bare(t, "fleet")
}
