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
)

// pauseImage is what containerd starts in each pod.
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

func (c *Cluster) socket() string {
	return filepath.Join(c.state(), string(c.cfg.Runtime)+".sock")
}

func (c *Cluster) runtime(ctx context.Context) (err error) {
	root := filepath.Join(c.node.disk, "root")
	var path, text string
	var argv []string
	switch c.cfg.Runtime {
	case Fairlead:
		path = "/etc/fairlead/config.toml"
		text = fmt.Sprintf(fairleadConfig, root, c.state(), c.cfg.Handler, TestHandler, podRange, c.node.driver())
		argv = []string{filepath.Join(c.cfg.Fairlead, "fairlead"), "runtime"}
	case Containerd:
		path = "/etc/containerd/config.toml"
		text = fmt.Sprintf(containerdConfig, root, c.state(), c.socket(), pauseImage, TestHandler, c.node.systemd)
		argv = []string{filepath.Join(c.cfg.Peers, "containerd")}
		if err := c.node.Write("/etc/cni/net.d/10-e2e.conflist", fmt.Sprintf(conflist, podRange)); err != nil {
			return err
		}
	default:
		return fmt.Errorf("runtime %q is unknown; there are %s and %s", c.cfg.Runtime, Fairlead, Containerd)
	}
	for file, text := range map[string]string{
		path: text,
		told: "# For the specs of RuntimeClass: runtimes." + TestHandler + "\n",
		filepath.Join(filepath.Dir(path), "certs.d/_default/hosts.toml"): c.Mirror(),
	} {
		if err := c.node.Write(file, text); err != nil {
			return err
		}
	}
	c.Daemon, err = c.startOn(ctx, c.node, argv, c.connects)
	return err
}

// connects says whether the runtime's socket is served.
func (c *Cluster) connects(context.Context) error { return c.node.Accepts("unix", c.socket()) }
