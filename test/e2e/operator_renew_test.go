package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gardener "fairlead.run/api/gardener/v1alpha1"
)

const leasePath = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

// beat renews the leases of nodes, as kubelets do. Without them the controller of nodes
// says after a minute that nodes are gone, and that their pods are not ready.
func (c *crew) beat(ctx context.Context, nodes []corev1.Node) {
	now := time.Now()
	if now.Sub(c.beaten) < 10*time.Second {
		return
	}
	c.beaten = now
	spec := object{"leaseDurationSeconds": 40, "renewTime": now.UTC().Format(metav1.RFC3339Micro)}
	for i := range nodes {
		name := nodes[i].Name
		spec["holderIdentity"] = name
		got, err := c.do(ctx, http.MethodPatch, leasePath+"/"+name, object{"spec": spec})
		if err == nil && got.code == http.StatusNotFound {
			_, _ = c.do(ctx, http.MethodPost, leasePath, object{"metadata": object{"name": name}, "spec": spec})
		}
	}
}

// renew changes both payloads of a pool of 200 nodes at the same time, and kills the
// operator on the way: never are more nodes without a ready pod of each type than may be.
func (c *crew) renew(t *testing.T) {
	c.asks(t, "fleet", object{"type": "gvisor"}, object{"type": "kata-containers"})
	c.ready(t, "fleet")
	watched := c.watchInstallers(t)
	for _, typ := range []string{"gvisor", "kata-containers"} {
		c.must(t, http.MethodPatch, payloadPath+"/"+typ, object{"spec": object{
			"image": "registry.example/" + typ + "@sha256:" + strings.Repeat("cd", 32), "manifest": object{"version": "2"},
		}}, nil)
	}
	eventually(t, func() error { return c.verified(t, "gvisor-fleet", 1) })
	// One that hangs takes its place, is told of, and holds up no others.
	c.hold("fleet-100")
	if err := c.process.Stop(); err != nil { // by SIGTERM, so that it gives up its Lease
		t.Fatal(err)
	}
	if err := c.process.Start(); err != nil {
		t.Fatal(err)
	}
	for _, typ := range []string{"gvisor", "kata-containers"} {
		eventually(t, func() error { return c.verified(t, typ+"-fleet", fleetSize-1) })
	}
	c.hold()
	c.ready(t, "fleet")
	for _, typ := range []string{"gvisor", "kata-containers"} {
		if err := c.verified(t, typ+"-fleet", fleetSize); err != nil {
			t.Error(err)
		}
	}
	if peak := watched(); peak > atOnce || peak < 2 {
		t.Errorf("%d nodes were worked on at once, of %d that may be", peak, atOnce)
	} else {
		t.Logf("at most %d nodes were worked on at once, of %d that may be", peak, atOnce)
	}
	c.asks(t, "fleet", object{"type": "gvisor"})
	c.gone(t, runtimePath+"/kata-containers-fleet")
}

// verified says that release 2 is not yet on so many nodes.
func (c *crew) verified(t *testing.T, name string, nodes int) error {
	t.Helper()
	var got gardener.ContainerRuntime
	c.must(t, http.MethodGet, runtimePath+"/"+name, nil, &got)
	if got.Status.LastOperation == nil {
		return fmt.Errorf("ContainerRuntime %s: %+v", name, got.Status)
	}
	says, n := got.Status.LastOperation.Description, 0
	_, text, is := strings.Cut(says, " 2 was verified on ")
	if _, err := fmt.Sscanf(text, "%d of", &n); !is || err != nil || n < nodes {
		return fmt.Errorf("ContainerRuntime %s: %s", name, says)
	}
	return nil
}

// watchInstallers sees every version of the pods that install, in the order in which
// they came, and tells on how many nodes one was missing or not ready at the same time.
func (c *crew) watchInstallers(t *testing.T) (end func() (peak int)) {
	t.Helper()
	path := podsOf(operatorNamespace) + "?labelSelector=operator.fairlead.run/work=install"
	var list corev1.PodList
	c.must(t, http.MethodGet, path, nil, &list)
	ready := readiness{}
	for i := range list.Items {
		ready.see("ADDED", &list.Items[i])
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	peak := 0
	go func() {
		var err error
		peak, err = c.peakOf(ctx, path+"&watch=1&resourceVersion="+list.ResourceVersion, ready)
		ended <- err
	}()
	return func() int {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return peak
	}
}

// readiness has the pods that are ready, by nodes and their types.
type readiness map[string]map[string]string

func (r readiness) see(what string, p *corev1.Pod) {
	n, typ := p.Spec.NodeName, p.Labels["operator.fairlead.run/type"]
	if n == "" {
		return
	}
	if r[n] == nil {
		r[n] = map[string]string{"gvisor": "", "kata-containers": ""}
	}
	switch good := what != "DELETED" && p.DeletionTimestamp == nil && isReady(p); {
	case good:
		r[n][typ] = p.Name
	case r[n][typ] == p.Name:
		r[n][typ] = ""
	}
}

// busy is how many nodes lack a pod.
func (r readiness) busy() (n int) {
	for _, types := range r {
		for _, pod := range types {
			if pod == "" {
				n++
				break
			}
		}
	}
	return n
}

func (c *crew) peakOf(ctx context.Context, path string, ready readiness) (peak int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.host+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if peak = ready.busy(); peak > 0 || len(ready) != fleetSize {
		return 0, fmt.Errorf("%d nodes of %d lack pods before anything has begun", peak, len(ready))
	}
	for all := json.NewDecoder(answer.Body); ; {
		var e struct {
			Type   string
			Object corev1.Pod
		}
		if err := all.Decode(&e); err != nil {
			if ctx.Err() == nil {
				return peak, fmt.Errorf("watch pods: %w", err)
			}
			return peak, nil
		}
		if e.Type == "ERROR" {
			return peak, errors.New("the watch of pods has ended")
		}
		ready.see(e.Type, &e.Object)
		peak = max(peak, ready.busy())
	}
}
