package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/test/apiserver"
	"fairlead.run/test/node"
)

// apiPods are those of the API server; the others are what a node needs beside them.
var (
	apiPods   = apiserver.Resource{Path: "api/v1/pods", Kind: "Pod", Namespaced: true}
	apiEvents = apiserver.Resource{Path: "api/v1/events", Kind: "Event", Namespaced: true}
	apiNodes  = apiserver.Resource{Path: "api/v1/nodes", Kind: "Node"}
	apiLeases = apiserver.Resource{Path: "apis/coordination.k8s.io/v1/leases", Kind: "Lease", Namespaced: true}
	apiAll    = []apiserver.Resource{
		apiPods, apiEvents, apiNodes, apiLeases,
		{Path: "api/v1/configmaps", Kind: "ConfigMap", Namespaced: true},
		{Path: "api/v1/secrets", Kind: "Secret", Namespaced: true},
		{Path: "api/v1/services", Kind: "Service", Namespaced: true},
		{Path: "apis/node.k8s.io/v1/runtimeclasses", Kind: "RuntimeClass"},
		{Path: "apis/storage.k8s.io/v1/csinodes", Kind: "CSINode"},
	}
)

// cluster is a node with an agent of its own process and an API server in the test's:
// whatever is killed, the other two are there.
type cluster struct {
	*node.Node
	api  *apiserver.Server
	root string // of the agent
	port int    // of its API
	file string // of --kubelet-config, which says what flags would; empty for these

	agent *exec.Cmd
	ended chan struct{}
	log   *node.Buffer
	// mended is closed when the API server does again what it should.
	mended chan struct{}

	mu     sync.Mutex
	number int // of the last pod
}

// startCluster has a node with an agent that runs. root is the agent's folder; empty for one
// in the node's own.
func startCluster(t *testing.T, root string, options ...node.Option) *cluster {
	t.Helper()
	c := newCluster(t, root, options...)
	c.startAgent()
	t.Cleanup(c.endAgent)
	return c
}

// newCluster has one whose agent is not started yet.
func newCluster(t *testing.T, root string, options ...node.Option) *cluster {
	t.Helper()
	c := &cluster{root: root, log: &node.Buffer{}, mended: make(chan struct{})}
	t.Cleanup(c.dropCgroups) // the last: what is left of pods by then is too much
	c.Node = node.Start(t, "", append(options, node.Plain)...)
	if root == "" {
		c.root = c.Dir + "/agent"
	}
	c.api = apiserver.New(t, apiAll...)
	c.port = freePort(t)
	kubeconfig := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: %q}}]\n"+
		"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\n", c.api.Config().Host)
	if err := os.WriteFile(c.Dir+"/kubeconfig", []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Pull(node.Busybox)
	return c
}

// freePort is one of the machine that nobody has at the moment.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().(*net.TCPAddr).Port
}

// flags are those of the agent that a file may say, too.
func (c *cluster) flags() []string {
	if c.file != "" {
		return []string{"--kubelet-config", c.file}
	}
	return []string{
		"--container-runtime-endpoint", "unix://" + c.Socket(), "--address", "127.0.0.1", "--port", fmt.Sprint(c.port), "--healthz-port", "0",
		"--anonymous-auth", "--always-allow", "--pod-logs-dir", c.Logs, "--cgroup-root", c.cgroup(), "--eviction-hard", "", "--image-gc-high-threshold", "100",
	}
}

func (c *cluster) startAgent() {
	c.T.Helper()
	cmd := exec.Command(c.Program(), append([]string{
		"node", "--kubeconfig", c.Dir + "/kubeconfig", "--root", c.root, "--state", c.Dir + "/agentrun", "--cert-dir", c.Dir + "/pki",
		"--hostname-override", "chaos", "--node-ip", "192.0.2.1",
	}, c.flags()...)...)
	cmd.Stderr = c.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		c.T.Fatal(err)
	}
	ended := make(chan struct{})
	c.agent, c.ended = cmd, ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
}

// cgroup is above those of the pods.
func (c *cluster) cgroup() string { return "/" + c.Bridge }

// dropCgroups removes what the agent has made above the cgroups of pods, which are all
// gone by now.
func (c *cluster) dropCgroups() {
	if c.Node == nil {
		return // it was never started
	}
	for _, path := range slices.Backward(c.cgroups()) {
		if strings.Contains(path, "/pod") {
			c.T.Errorf("the cgroup of a pod is left: %s", path)
		}
		if err := os.Remove(path); err != nil {
			c.T.Errorf("remove a cgroup: %v", err)
		}
	}
}

// cgroups are all that there are from the one above those of the pods on, each after the
// one that it is in.
func (c *cluster) cgroups() (out []string) {
	for _, top := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		found, _ := filepath.Glob(top + c.cgroup()) // the pattern is sound
		for _, dir := range found {
			_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					out = append(out, path)
				}
				return nil
			})
		}
	}
	return out
}

func (c *cluster) killAgent() {
	c.T.Helper()
	if err := c.agent.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.T.Fatal(err)
	}
	<-c.ended
}

// endAgent deletes all pods, waits until they are gone and nothing of them is left, and
// ends the agent.
func (c *cluster) endAgent() {
	for name := range c.all() {
		c.remove(name)
	}
	if !c.T.Failed() {
		c.eventually("all pods are gone", func() bool { return len(c.all()) == 0 })
		c.wantNothingLeft()
	}
	c.killAgent()
	if c.T.Failed() {
		text := c.log.String()
		c.T.Logf("agent:\n%s\nevents:\n%s", text[max(0, len(text)-6000):], strings.Join(c.told(), "\n"))
	}
}

// eventually is node.Eventually that says how the pods are.
func (c *cluster) eventually(what string, ok func() bool) {
	c.T.Helper()
	for end := time.Now().Add(2 * node.Patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			var b strings.Builder
			for name, p := range c.all() {
				fmt.Fprintf(&b, "%s: %s deleted %v ready %v %+v\n", name, p.Status.Phase, p.DeletionTimestamp != nil, isReady(p), p.Status.ContainerStatuses)
			}
			c.T.Fatalf("%s: it is not so:\n%s", what, b.String())
		}
	}
}

// put creates a pod of one container that runs until it is told to end, or what change
// makes of it.
func (c *cluster) put(name string, change ...func(*corev1.Pod)) {
	c.mu.Lock()
	c.number++
	uid := fmt.Sprintf("0d6f7a0c-2c2f-4a8e-9d0a-%012d", c.number)
	c.mu.Unlock()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid), CreationTimestamp: metav1.Now()}}
	p.Spec = corev1.PodSpec{
		NodeName: "chaos", RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: new(int64(2)), DNSPolicy: corev1.DNSDefault,
		Containers: []corev1.Container{{Name: "main", Image: node.Busybox, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sh", "-c", "trap exit TERM; sleep 1000000 & wait"}}},
	}
	for _, f := range change {
		f(p)
	}
	c.api.Put(apiPods, p)
}

// remove asks a pod to go, as the API server does.
func (c *cluster) remove(name string) {
	p := c.all()[name]
	if p == nil || p.DeletionTimestamp != nil {
		return
	}
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, p.Spec.TerminationGracePeriodSeconds
	c.api.Put(apiPods, p)
}

// all are the pods as the API server has them, by name.
func (c *cluster) all() map[string]*corev1.Pod {
	out := map[string]*corev1.Pod{}
	for name, o := range c.api.All(apiPods) {
		p := &corev1.Pod{}
		decode(c.T, o, p)
		out[strings.TrimPrefix(name, "default/")] = p
	}
	return out
}

// told are all events, as "pod reason: message".
func (c *cluster) told() []string {
	var out []string
	for _, o := range c.api.All(apiEvents) {
		e := &corev1.Event{}
		decode(c.T, o, e)
		out = append(out, fmt.Sprintf("%s %s: %s", e.InvolvedObject.Name, e.Reason, e.Message))
	}
	return out
}

func decode(t *testing.T, o apiserver.Object, into any) {
	t.Helper()
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func isReady(p *corev1.Pod) bool {
	for _, cond := range p.Status.Conditions {
		if cond.Type == corev1.PodReady {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return false
}

// ready says whether these pods are.
func (c *cluster) ready(names ...string) bool {
	all := c.all()
	for _, name := range names {
		if p := all[name]; p == nil || !isReady(p) {
			return false
		}
	}
	return true
}

// runs is the container of a pod that runs, and how often it was restarted; empty if
// none does.
func runs(p *corev1.Pod) string {
	if p == nil || len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].State.Running == nil {
		return ""
	}
	s := p.Status.ContainerStatuses[0]
	return fmt.Sprintf("%s restarted %d times", s.ContainerID, s.RestartCount)
}
