package operator

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"fairlead.run/api/v1alpha1"
)

// system is an operating system with a CRI runtime.
type system struct {
	cri            v1alpha1.CRIName
	image, release string
	binaries       string
	// config is what the runtime reads, and line how it is started.
	config, line string
	// sealed says that /usr is read-only.
	sealed bool
}

// writable is where the installer writes to, of the configuration.
func (o system) writable() string {
	if o.cri == v1alpha1.CRICRIO {
		return "etc/crio/crio.conf"
	}
	return "etc/containerd/config.toml"
}

// programs are those of the runtime; without them the test skips.
func (o system) programs(t *testing.T) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this is not root")
	}
	if o.cri == v1alpha1.CRICRIO {
		dir := os.Getenv("FAIRLEAD_TEST_CRIO")
		runc, err := exec.LookPath("runc")
		nsenter, failed := exec.LookPath("nsenter") // CRI-O enters namespaces for networks by it
		if dir == "" || errors.Join(err, failed) != nil {
			t.Skip("FAIRLEAD_TEST_CRIO names no folder of CRI-O's programs, or runc or nsenter is not here; make crio builds the former, and make test-installer names them")
		}
		return []string{filepath.Join(dir, "crio"), filepath.Join(dir, "conmon"), filepath.Join(dir, "pinns"), runc, nsenter}
	}
	containerd := os.Getenv("FAIRLEAD_TEST_CONTAINERD")
	if containerd == "" {
		t.Skip("FAIRLEAD_TEST_CONTAINERD names no containerd 2; make test-installer has it")
	}
	return []string{containerd}
}

const containerdConfig = `# of ops
version = 3
imports = ["/opt/site/*.toml"]
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "native"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
`

const crioConfig = `# of ops
[crio]
storage_driver = "vfs"
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
default_runtime = "runc"
disable_hostport_mapping = true
[crio.runtime.runtimes.runc]
[crio.runtime.runtimes.foreign]
runtime_path = "/usr/bin/runc"
[crio.nri]
enable_nri = false
`
