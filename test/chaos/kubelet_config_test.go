package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// nodeObject is what the API server has of the node; nil if it has none.
func (c *cluster) nodeObject() *corev1.Node {
	c.T.Helper()
	o := c.api.Get(apiNodes, "chaos")
	if o == nil {
		return nil
	}
	text, err := json.Marshal(o)
	out := &corev1.Node{}
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		c.T.Fatal(err)
	}
	return out
}

// TestKubeletConfiguration starts a node with the file that a kubelet had on the machine, and
// looks at what of it can be seen: nothing of that does a flag say.
func TestKubeletConfiguration(t *testing.T) {
	c := newCluster(t, "")
	health := freePort(t)
	resolv := c.Dir + "/resolv.conf"
	if err := os.WriteFile(resolv, []byte("nameserver 192.0.2.53\nsearch file.example\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.file = c.Dir + "/kubelet.yaml"
	if err := os.WriteFile(c.file, fmt.Appendf(nil, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: %d
healthzBindAddress: 127.0.0.1
healthzPort: %d
authentication: {anonymous: {enabled: true}, webhook: {cacheTTL: 0s, enabled: true}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://%s
podLogsDir: %s
cgroupRoot: %s
resolvConf: %s
maxPods: 2
evictionHard: {memory.available: 123Mi}
imageGCHighThresholdPercent: 100
failSwapOn: false
`, c.port, health, c.Socket(), c.Logs, c.cgroup(), resolv), 0o600); err != nil {
		t.Fatal(err)
	}
	c.startAgent()
	t.Cleanup(c.endAgent)

	c.eventually("the node is there", func() bool { return c.nodeObject() != nil })
	n := c.nodeObject()
	if got := n.Status.DaemonEndpoints.KubeletEndpoint.Port; int(got) != c.port {
		t.Errorf("the node is asked at port %d, want %d", got, c.port)
	}
	if got := n.Status.Allocatable.Pods().Value(); got != 2 {
		t.Errorf("the node takes %d pods, want 2", got)
	}
	kept := n.Status.Capacity.Memory().DeepCopy()
	kept.Sub(*n.Status.Allocatable.Memory())
	for what, pages := range n.Status.Capacity {
		if strings.HasPrefix(string(what), corev1.ResourceHugePagesPrefix) {
			kept.Sub(pages)
		}
	}
	if kept.Value() != 123<<20 {
		t.Errorf("%s of memory is kept back for evictions, want 123Mi", kept.String())
	}
	c.eventually("/healthz is served", func() bool {
		answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", health))
		if err != nil {
			return false
		}
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		return err == nil && answer.StatusCode == http.StatusOK && string(text) == "ok"
	})

	c.put("asks", func(p *corev1.Pod) {
		p.Spec.Containers[0].Command = []string{"sh", "-c", "cat /etc/resolv.conf > /dev/termination-log; trap exit TERM; sleep 1000000 & wait"}
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.ActiveDeadlineSeconds = new(int64(3)) // it ends then, and says what it has read
	})
	c.eventually("what a pod reads in its resolv.conf is told", func() bool {
		p := c.all()["asks"]
		if p == nil || len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Terminated == nil {
			return false
		}
		said := p.Status.ContainerStatuses[0].State.Terminated.Message
		if !strings.Contains(said, "nameserver 192.0.2.53") || !strings.Contains(said, "file.example") {
			t.Fatalf("the pod's resolv.conf is %q", said)
		}
		return true
	})
	c.remove("asks")
	c.eventually("it is gone, and makes room", func() bool { return c.all()["asks"] == nil })
	for _, name := range []string{"a", "b"} {
		c.put(name)
	}
	c.eventually("as many pods run as there may", func() bool { return isReady(c.all()["a"]) && isReady(c.all()["b"]) })
	c.put("c")
	c.eventually("one more is refused", func() bool {
		p := c.all()["c"]
		return p != nil && p.Status.Phase == corev1.PodFailed && p.Status.Reason == "OutOfpods"
	})
	if _, err := os.Stat(c.Logs + "/default_a_" + string(c.all()["a"].UID)); err != nil {
		t.Errorf("the logs of a pod: %v", err)
	}
	if log := c.log.String(); !strings.Contains(log, "fields of --kubelet-config") || !strings.Contains(log, "failSwapOn") {
		t.Errorf("nobody is told of what the file says and the node does not have:\n%s", log)
	}
}
