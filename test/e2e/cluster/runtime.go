package cluster

import (
	"context"
	"fmt"
	"path/filepath"
)

// Runtime is a CRI implementation.
type Runtime string

// The runtimes.
const (
	Fairlead   Runtime = "fairlead"
	Containerd Runtime = "containerd"
	CRIO       Runtime = "crio"
)

// pauseImage is what containerd and CRI-O start in each pod.
const pauseImage = "registry.invalid/e2e/pause:1"

// TestHandler is the handler of upstream's RuntimeClass specs.
const TestHandler = "test-handler"

const fairleadConfig = `version = 1
root = %[1]q
state = %[2]q
default_handler = %[3]q

[handlers.runc]
[handlers.crun]
[handlers.%[4]s]
path = "runc"

[cgroup]
driver = %[6]q

[network]
bridge = "e2e0"
ipv4 = %[5]q

[log]
level = "debug"
`

// containerdConfig names the handlers as fairleadConfig does. A pod without CNI
// has no network at all there, so it uses the usual plugins.
const containerdConfig = `version = 3
root = %[1]q
state = %[2]q

[grpc]
  address = %[3]q

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = %[4]q

[plugins."io.containerd.cri.v1.images".registry]
  config_path = "/etc/containerd/certs.d"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  options = {SystemdCgroup = %[6]t}

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.%[5]s]
  runtime_type = "io.containerd.runc.v2"
  options = {SystemdCgroup = %[6]t}
`

// crioConfig names the handlers as fairleadConfig does. What it keeps in /run is below
// that of the node.
const crioConfig = `[crio]
root = %[1]q
runroot = %[2]q
storage_driver = "overlay"

[crio.api]
listen = %[3]q

[crio.runtime]
cgroup_manager = %[4]q
conmon_cgroup = "pod"
default_runtime = "runc"
hooks_dir = []

[crio.runtime.runtimes.runc]
runtime_path = %[6]q
[crio.runtime.runtimes.%[5]s]
runtime_path = %[6]q

[crio.image]
pause_image = %[7]q

[crio.network]
plugin_dirs = ["/usr/lib/cni"]

[crio.nri]
enable_nri = false
`

// crioRunc is runc for a machine whose root lacks CAP_SYS_RESOURCE, and so may not lower
// an oom_score_adj: containerd hands on what it has itself and has restrict_oom_score_adj.
const crioRunc = `#!/bin/sh
last=
for arg; do
	file=$arg/config.json
	case $last in -p | --process) file=$arg ;; esac
	[ ! -f "$file" ] || sed -i 's/"oomScoreAdj": *-[0-9]*/"oomScoreAdj":0/; s/"CAP_SYS_RESOURCE",//g' "$file"
	last=$arg
done
exec runc "$@"
`

// anyImage has CRI-O take images without signatures.
const anyImage = `{"default": [{"type": "insecureAcceptAnything"}]}`

// crioMirror does as mirror. There is no word for all registries.
const crioMirror = `[[registry]]
prefix = "*.%[1]s"
[[registry.mirror]]
location = %[2]q
insecure = true
`

// crioPlain has it speak HTTP with a registry that a spec runs on the node, as
// containerd does with all that are on localhost.
const crioPlain = `[[registry]]
location = "localhost:5000"
insecure = true
`

const conflist = `{
  "cniVersion": "1.0.0",
  "name": "e2e",
  "plugins": [
    {
      "type": "bridge", "bridge": "e2e0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
      "ipam": {
        "type": "host-local", "ranges": [[{"subnet": %q}]],
        "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/cni-addresses"
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

// mirror sends every pull to the registry of the test.
const mirror = `[host."http://%[1]s"]
  capabilities = ["pull", "resolve"]
`

// told is a file that upstream's RuntimeClass specs look into for the name of a
// handler. They know of the files of containerd and CRI-O alone.
const told = "/etc/crio/crio.conf"

func (c *Cluster) state() string { return filepath.Join(c.node.memory, stateFolder) }

// stateFolder is one of arena.StateFolders, so that the arena removes the
// cgroup of its monitor.
const stateFolder = "builtin"

// containerdSocket is where operating systems have it, and whoever installs runtimes
// looks for it.
const containerdSocket = "/run/containerd/containerd.sock"

func (c *Cluster) socket() string {
	if c.cfg.Runtime == Containerd {
		return containerdSocket
	}
	return filepath.Join(c.state(), string(c.cfg.Runtime)+".sock")
}

func (c *Cluster) runtime(ctx context.Context) (err error) {
	root := filepath.Join(c.node.disk, "root")
	files := map[string]string{}
	var argv []string
	switch c.cfg.Runtime {
	case Fairlead:
		files["/etc/fairlead/config.toml"] = fmt.Sprintf(fairleadConfig, root, c.state(), c.cfg.Handler, TestHandler, podRange, c.node.driver())
		files["/etc/fairlead/certs.d/_default/hosts.toml"] = c.Mirror()
		argv = []string{filepath.Join(c.cfg.Fairlead, "fairlead"), "runtime"}
	case Containerd:
		files["/etc/containerd/config.toml"] = fmt.Sprintf(containerdConfig, root, c.state(), c.socket(), pauseImage, TestHandler, c.node.systemd)
		files["/etc/containerd/certs.d/_default/hosts.toml"] = c.Mirror()
		files["/etc/cni/net.d/10-e2e.conflist"] = fmt.Sprintf(conflist, podRange)
		argv = []string{filepath.Join(c.cfg.Peers, "containerd")}
	case CRIO:
		eased := filepath.Join(c.node.memory, "crio-runc")
		files[eased] = crioRunc
		files[told] = fmt.Sprintf(crioConfig, root, filepath.Join(c.state(), "storage"), c.socket(), c.node.driver(), TestHandler, eased, pauseImage)
		files["/etc/containers/policy.json"] = anyImage
		files["/etc/containers/registries.conf"] = fmt.Sprintf(crioMirror, "io", c.registry.Host()) + fmt.Sprintf(crioMirror, "invalid", c.registry.Host()) + crioPlain
		files["/etc/cni/net.d/10-e2e.conflist"] = fmt.Sprintf(conflist, podRange)
		argv = []string{filepath.Join(c.cfg.Peers, "crio")}
	default:
		return fmt.Errorf("runtime %q is unknown; there are %s, %s and %s", c.cfg.Runtime, Fairlead, Containerd, CRIO)
	}
	if c.cfg.Runtime != CRIO {
		files[told] = "# For the specs of RuntimeClass: runtimes." + TestHandler + "\n"
	}
	for file, text := range files {
		if err := c.node.Write(file, text); err != nil {
			return err
		}
	}
	c.Daemon, err = c.startOn(ctx, c.node, argv, c.RuntimeServes)
	return err
}

// RuntimeEndpoint is where the runtime is asked, on the node.
func (c *Cluster) RuntimeEndpoint() string { return "unix://" + c.socket() }

// RuntimeServes says why the runtime cannot be asked yet.
func (c *Cluster) RuntimeServes(context.Context) error { return c.node.Accepts("unix", c.socket()) }
