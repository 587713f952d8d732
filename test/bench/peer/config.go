package peer

import (
	"fmt"
	"os"
	"path/filepath"
)

// conflist is the network of all that use CNI: a bridge with masquerading, and
// host ports. Where addresses are kept is each daemon's own.
const conflist = `{
  "cniVersion": "1.0.0",
  "name": "bench",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "bench0",
      "isGateway": true,
      "ipMasq": true,
      "hairpinMode": true,
      "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": "10.88.0.0/16"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": %q
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

// hosts says that the registry speaks plain HTTP, in the form that both read.
const hosts = `server = "http://` + RegistryAddress + `"

[host."http://` + RegistryAddress + `"]
  capabilities = ["pull", "resolve"]
`

// mirror sends every pull there, whatever registry the name of an image says.
const mirror = `[host."http://` + RegistryAddress + `"]
  capabilities = ["pull", "resolve"]
`

func (c Config) writeConflist(kind Kind) error {
	data := fmt.Sprintf(conflist, c.dir(kind, "addresses"))
	return write(filepath.Join(c.dir(kind, "net.d"), "10-bench.conflist"), data)
}

func (c Config) writeHosts(kind Kind) error {
	if c.Mirror {
		if err := write(filepath.Join(c.dir(kind, "certs.d"), "_default", "hosts.toml"), mirror); err != nil {
			return err
		}
	}
	return write(filepath.Join(c.dir(kind, "certs.d"), RegistryAddress, "hosts.toml"), hosts)
}

func write(path, data string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(data), 0o644)
}

// containerdConfig leaves everything as it comes, but for places, the two
// runtimes, the pause image, the OOM scores where this host forbids them, and
// labels where SELinux is enabled: Fairlead gives them there by itself.
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
  restrict_oom_score_adj = %[11]t
  enable_selinux = %[12]t

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = [%[7]q]
  conf_dir = %[8]q

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
    BinaryName = %[9]q

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.crun]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.crun.options]
    BinaryName = %[10]q
`

// crunLink puts a link to crun beside the program that containerd starts in its
// place, and returns the path of that.
func (c Config) crunLink() (string, error) {
	path := c.dir(Containerd, "crun")
	program, err := os.ReadFile(c.Programs["crun-1.1"])
	if err != nil {
		return "", fmt.Errorf("read the program that makes crun suit containerd: %w", err)
	}
	if err := os.WriteFile(path, program, 0o755); err != nil {
		return "", err
	}
	return path, os.Symlink(c.Programs["crun"], path+".real")
}

// mayLowerOOMScore says whether processes may get the scores that containerd
// gives to pause processes. A container without CAP_SYS_RESOURCE forbids it.
func mayLowerOOMScore() bool {
	const file = "/proc/self/oom_score_adj"
	before, err := os.ReadFile(file)
	if err != nil || os.WriteFile(file, []byte("-998"), 0) != nil {
		return false
	}
	return os.WriteFile(file, before, 0) == nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (c Config) containerd() (argv []string, socket string, err error) {
	file := c.dir(Containerd, "config.toml")
	socket = filepath.Join(c.state(Containerd), "containerd.sock")
	crun, err := c.crunLink()
	if err != nil {
		return nil, "", err
	}
	data := fmt.Sprintf(containerdConfig,
		c.dir(Containerd, "root"), filepath.Join(c.state(Containerd), "state"), socket, c.dir(Containerd, "opt"),
		c.PauseImage, c.dir(Containerd, "certs.d"),
		c.Plugins, c.dir(Containerd, "net.d"), c.Programs["runc"], crun,
		!mayLowerOOMScore(), exists("/sys/fs/selinux/enforce"))
	if c.NRITimeout != 0 {
		data += fmt.Sprintf("\n[plugins.\"io.containerd.nri.v1.nri\"]\n  plugin_request_timeout = %q\n", c.NRITimeout)
	}
	if c.Programs["runsc"] != "" {
		// Its shim finds runsc on PATH, beside containerd.
		data += "\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runsc]\n  runtime_type = \"io.containerd.runsc.v1\"\n"
	}
	return []string{c.Programs["containerd"], "--config", file}, socket, write(file, data)
}

const fairleadConfig = `version = 1
root = %[1]q
state = %[2]q

[handlers.runc]
path = %[3]q

[handlers.crun]
path = %[4]q

[cgroup]
driver = "cgroupfs"

[network]
conf_dir = %[5]q
bin_dirs = [%[6]q]
bridge = "bench0"
ipv4 = "10.88.0.0/16"

[images]
certs_dirs = [%[7]q]

[log]
level = %[8]q
format = "json"
`

func (c Config) fairlead(kind Kind) (argv []string, socket string, err error) {
	level := "warn"
	if c.Stages {
		level = "debug"
	}
	file := c.dir(kind, "config.toml")
	data := fmt.Sprintf(fairleadConfig,
		c.dir(kind, "root"), c.state(kind), c.Programs["runc"], c.Programs["crun"],
		c.dir(kind, "net.d"), c.Plugins, c.dir(kind, "certs.d"), level)
	if c.NRITimeout != 0 {
		data += fmt.Sprintf("\n[nri]\nrequest_timeout = %q\n", c.NRITimeout)
	}
	if runsc := c.Programs["runsc"]; runsc != "" {
		data += fmt.Sprintf("\n[handlers.runsc]\npath = %q\n", runsc)
	}
	return []string{c.Programs["fairlead"], "runtime", "--config", file}, filepath.Join(c.state(kind), "fairlead.sock"), write(file, data+c.Handlers)
}
