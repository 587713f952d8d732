package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/test/bench/arena"
	"fairlead.run/test/bench/report"
	"fairlead.run/test/e2e/cluster"
	"fairlead.run/test/images"
)

// The images, by names that every node takes to the registry of the cluster.
const (
	workload = "bench/idle:1"
	pause    = "bench/pause:1"
	registry = "registry.invalid/"
)

// start starts the cluster and its nodes.
func (b *bench) start(ctx context.Context, a arena.Arena) (err error) {
	b.cluster, err = cluster.Start(ctx, cluster.Config{
		Arena: a, Programs: b.o.programs, Fairlead: b.o.fairlead, Peers: b.o.peers, Output: b.o.output, Patience: b.plan.patience,
	})
	if err != nil {
		return err
	}
	if err := b.images(); err != nil {
		return err
	}
	for _, n := range []struct {
		node
		state string
		run   func(context.Context, *node) error
	}{
		{node{variant: report.NodeFairlead, name: "fairlead", ip: "10.214.0.12"}, "cni", b.fairlead},
		{node{variant: report.NodeKubelet, name: "kubelet", ip: "10.214.0.11"}, "containerd", b.kubelet},
	} {
		made, err := newNode(a, n.node, n.state)
		if err != nil {
			return err
		}
		b.nodes = append(b.nodes, made)
		if err := n.run(ctx, made); err != nil {
			return fmt.Errorf("start node %s: %w", n.name, err)
		}
		if err := await(ctx, b.plan.patience, func() error { return b.ready(ctx, made) }); err != nil {
			return fmt.Errorf("start node %s, which says why in %s: %w", n.name, b.o.output, err)
		}
		b.say("node %s is ready", n.name)
	}
	b.watch, err = newWatch(ctx, b.cluster.Kubeconfig)
	return err
}

func (b *bench) stop() error {
	var errs []error
	if b.watch != nil {
		b.watch.stop()
	}
	for _, n := range b.nodes {
		errs = append(errs, n.end())
	}
	if b.cluster != nil {
		errs = append(errs, b.cluster.Stop())
	}
	return errors.Join(errs...)
}

func (b *bench) images() error {
	program, err := os.ReadFile(filepath.Join(b.o.peers, "idle"))
	if err != nil {
		return err
	}
	for name, entry := range map[string]string{workload: "idle", pause: "pause"} {
		spec := images.Spec{
			Layers: []images.Layer{{Files: map[string]images.File{entry: {Body: program, Mode: 0o755}}}},
			Config: ocispec.ImageConfig{Entrypoint: []string{"/" + entry}},
		}
		if err := b.cluster.Push(name, spec); err != nil {
			return err
		}
	}
	return nil
}

// ready says why pods could not run on a node yet.
func (b *bench) ready(ctx context.Context, n *node) error {
	out, err := b.cluster.Kubectl(ctx, "get", "node", n.name, "-o",
		`jsonpath={range .status.conditions[?(@.type=="Ready")]}{.status} {.message}{end} {.spec.taints}`)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(out, "True ") || strings.Contains(out, "NoSchedule") {
		return errors.New("the node says " + out)
	}
	_, err = b.cluster.Kubectl(ctx, "get", "serviceaccount", "default")
	return err
}

// conflist is the network of pods, for both. Addresses are the node's own.
const conflist = `{
  "cniVersion": "1.0.0",
  "name": "bench",
  "plugins": [
    {
      "type": "bridge", "bridge": "bench0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
      "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": %q}
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

const containerdConfig = `version = 3
root = %[1]q
state = %[2]q

[grpc]
  address = %[3]q

[debug]
  level = "warn"

[plugins."io.containerd.internal.v1.opt"]
  path = %[4]q

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = %[5]q

[plugins."io.containerd.cri.v1.images".registry]
  config_path = %[6]q

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = [%[7]q]
  conf_dir = %[8]q

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
    BinaryName = %[9]q
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupRoot: %[1]q
containerRuntimeEndpoint: %[2]q
podLogsDir: %[3]q
volumePluginDir: %[4]q
resolvConf: %[5]q
clusterDomain: cluster.local
clusterDNS: ["10.96.0.10"]
serializeImagePulls: false
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
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

const fairleadConfig = `version = 1
root = %[1]q
state = %[2]q

[handlers.runc]
path = %[3]q

[cgroup]
driver = "cgroupfs"

[network]
conf_dir = %[4]q
bin_dirs = [%[5]q]

[images]
certs_dirs = [%[6]q]

[log]
level = "warn"
`

// on is a file or folder of a node on disk.
func (n *node) on(name string) string { return filepath.Join(n.disk, name) }

// common writes what both kinds of nodes need.
func (b *bench) common(n *node) (kubeconfig string, err error) {
	for path, text := range map[string]string{
		"net.d/10-bench.conflist": fmt.Sprintf(conflist, filepath.Join(n.memory, "addresses")), "certs.d/_default/hosts.toml": b.cluster.Mirror(),
		"certs.d/" + silentName + "/hosts.toml": silentHosts,
		"resolv.conf":                           "nameserver " + cluster.HostAddress + "\n",
	} {
		if err := n.write(path, text); err != nil {
			return "", err
		}
	}
	return b.cluster.User("node-"+n.name, "system:node:"+n.name, "system:nodes")
}

func (n *node) write(path, text string) error {
	path = n.on(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// kubelet starts containerd and a kubelet.
func (b *bench) kubelet(ctx context.Context, n *node) error {
	kubeconfig, err := b.common(n)
	if err != nil {
		return err
	}
	n.socket = filepath.Join(n.memory, "containerd.sock")
	err = n.write("containerd.toml", fmt.Sprintf(containerdConfig, n.on("root"), filepath.Join(n.memory, "state"), n.socket, n.on("opt"),
		registry+pause, n.on("certs.d"), b.o.plugins, n.on("net.d"), filepath.Join(b.o.peers, "runc")))
	if err != nil {
		return err
	}
	if n.main, err = n.launch(b.o, filepath.Join(b.o.peers, "containerd"), "--config", n.on("containerd.toml")); err != nil {
		return err
	}
	err = await(ctx, b.plan.patience, func() error {
		c, err := net.Dial("unix", n.socket)
		if err == nil {
			err = c.Close()
		}
		return err
	})
	if err != nil {
		return err
	}
	err = n.write("kubelet.yaml", fmt.Sprintf(kubeletConfig, n.cgroup, "unix://"+n.socket, n.on("logs"), n.on("plugins"), n.on("resolv.conf")))
	if err != nil {
		return err
	}
	_, err = n.launch(b.o, filepath.Join(b.o.programs, "kubelet"), "--config", n.on("kubelet.yaml"), "--kubeconfig", kubeconfig,
		"--hostname-override", n.name, "--node-ip", n.ip, "--root-dir", n.on("kubelet"), "--cert-dir", n.on("pki"))
	return err
}

// fairlead starts fairlead node with the runtime in its process.
func (b *bench) fairlead(_ context.Context, n *node) error {
	kubeconfig, err := b.common(n)
	if err != nil {
		return err
	}
	err = n.write("fairlead.toml", fmt.Sprintf(fairleadConfig, n.on("root"), n.memory, filepath.Join(b.o.peers, "runc"), n.on("net.d"), b.o.plugins, n.on("certs.d")))
	if err != nil {
		return err
	}
	n.main, err = n.launch(b.o, filepath.Join(b.o.fairlead, "fairlead"), "node", "--config", n.on("fairlead.toml"), "--kubeconfig", kubeconfig,
		"--hostname-override", n.name, "--node-ip", n.ip, "--cluster-dns", "10.96.0.10", "--pod-logs-dir", n.on("logs"), "--cert-dir", n.on("pki"),
		"--cgroup-root", n.cgroup, "--enable-profiling", "--eviction-hard", "memory.available<50Mi", "--image-gc-high-threshold", "100", "--image-gc-low-threshold", "99")
	return err
}
