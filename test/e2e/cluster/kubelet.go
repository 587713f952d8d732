package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"fairlead.run/test/e2e/machine"
)

// kubeletConfig leaves everything as it comes, but for places, cgroup v1, which
// this kind of machine may have, and evictions, for which a shared machine's disk
// is no reason.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
port: 10250
healthzPort: 10248
failCgroupV1: false
failSwapOn: false
cgroupRoot: %[2]q
containerRuntimeEndpoint: %[3]q
staticPodPath: %[4]q
podLogsDir: /var/log/pods
volumePluginDir: %[5]q
resolvConf: %[6]q
clusterDomain: cluster.local
clusterDNS: ["10.96.0.10"]
serializeImagePulls: false
tlsCertFile: %[7]q
tlsPrivateKeyFile: %[8]q
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[9]q}
authorization: {mode: Webhook}
evictionHard:
  memory.available: 50Mi
  nodefs.available: "0%%"
  nodefs.inodesFree: "0%%"
  imagefs.available: "0%%"
  imagefs.inodesFree: "0%%"
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
`

// StaticPods is the folder of the kubelet's static pods.
const StaticPods = "/etc/kubernetes/manifests"

// Agent is what makes a machine a node.
type Agent string

// The agents.
const (
	Kubelet      Agent = "kubelet"
	FairleadNode Agent = "fairlead"
)

func (c *Cluster) agent(ctx context.Context) error {
	if err := c.cgroups(); err != nil {
		return err
	}
	switch c.cfg.Agent {
	case "", Kubelet:
		return c.kubelet(ctx)
	case FairleadNode:
		return c.fairleadNode(ctx)
	}
	return fmt.Errorf("agent %q is unknown; there are %s and %s", c.cfg.Agent, Kubelet, FairleadNode)
}

// fairleadNode has fairlead node do what a kubelet does, by the socket of the runtime.
func (c *Cluster) fairleadNode(ctx context.Context) error {
	memory := c.node.memory
	argv := []string{
		filepath.Join(c.cfg.Fairlead, "fairlead"), "node", "--root", filepath.Join(c.node.disk, "agent"), "--state", filepath.Join(memory, "agent"),
		"--container-runtime-endpoint", "unix://" + c.socket(), "--kubeconfig", c.ca.file("node.kubeconfig"),
		"--hostname-override", NodeName, "--node-ip", c.node.address, "--address", c.node.address,
		"--tls-cert-file", c.ca.file("kubelet.crt"), "--tls-private-key-file", c.ca.file("kubelet.key"), "--client-ca-file", c.ca.file("ca.crt"),
		"--cgroup-root", c.node.cgroup, "--eviction-hard", "memory.available<50Mi", "--cluster-dns", "10.96.0.10", "--pod-logs-dir", "/var/log/pods", "--cert-dir", filepath.Join(memory, "pki"),
		"--pod-manifest-path", StaticPods,
	}
	c.Kubelet = &Process{machine.Program{
		Name: "fairlead-node", Argv: argv, Env: c.environment(c.node), Output: filepath.Join(c.cfg.Output, "fairlead-node.log"),
	}, c.node}
	return c.begin(ctx, c.Kubelet, c.NodeReady)
}

func (c *Cluster) kubelet(ctx context.Context) (err error) {
	memory := c.node.memory
	config, resolv := filepath.Join(memory, "kubelet.yaml"), filepath.Join(memory, "resolv.conf")
	if err := c.node.Write(resolv, "nameserver "+HostAddress+"\n"); err != nil {
		return err
	}
	// The kubelet wants the folder, and passes over this file.
	if err := c.node.Write(filepath.Join(StaticPods, ".folder"), ""); err != nil {
		return err
	}
	text := fmt.Sprintf(kubeletConfig, c.node.address, c.node.cgroup, "unix://"+c.socket(), StaticPods,
		filepath.Join(memory, "volumeplugins"), resolv, c.ca.file("kubelet.crt"), c.ca.file("kubelet.key"), c.ca.file("ca.crt"))
	if err := c.node.Write(config, text); err != nil {
		return err
	}
	c.Kubelet, err = c.startOn(ctx, c.node, []string{
		c.program("kubelet"), "--config", config, "--kubeconfig", c.ca.file("node.kubeconfig"),
		"--hostname-override", NodeName, "--node-ip", c.node.address, "--v", "2",
	}, c.NodeReady)
	return err
}

// PodCgroup is where the kubelet makes a pod's cgroup, in every hierarchy.
func (c *Cluster) PodCgroup(uid, class string) string {
	class = strings.ToLower(class)
	if class == "guaranteed" {
		class = ""
	}
	if !c.node.systemd {
		return filepath.Join(c.node.cgroup, "kubepods", class, "pod"+uid)
	}
	// A slice is below those that its name begins with.
	path, name := filepath.Join(c.node.cgroup, "kubepods.slice"), "kubepods"
	if class != "" {
		name += "-" + class
		path = filepath.Join(path, name+".slice")
	}
	return filepath.Join(path, name+"-pod"+strings.ReplaceAll(uid, "-", "_")+".slice")
}

// NodeReady says why the node is not ready, if it is not, or why pods could not
// be made yet.
func (c *Cluster) NodeReady(ctx context.Context) error {
	out, err := c.Kubectl(ctx, "get", "node", NodeName, "-o",
		`jsonpath={range .status.conditions[?(@.type=="Ready")]}{.status} {.message}{end} {.spec.taints}`)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(out, "True ") || strings.Contains(out, "NoSchedule") {
		return errors.New("the node says " + out)
	}
	_, err = c.Kubectl(ctx, "get", "serviceaccount", "default")
	return err
}

// cgroups makes the cgroup of all pods in every hierarchy, where the kubelet
// expects it. The arena removes it. In a guest that is the topmost, which is there.
func (c *Cluster) cgroups() error {
	if c.cfg.Guest != "" {
		return nil
	}
	tops, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil {
		return err
	}
	if c.node.unified {
		tops = []string{"/sys/fs/cgroup/cgroup.procs"}
	}
	for _, top := range tops {
		if err := os.MkdirAll(filepath.Join(filepath.Dir(top), c.node.cgroup), 0o755); err != nil {
			return err
		}
	}
	return nil
}
