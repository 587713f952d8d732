package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/monitor/client"
	"fairlead.run/internal/sandbox"
)

// makeDirs makes the state and root directories, closed to everybody but root.
// Those who go through the state directory to the folder of a pod with a user
// namespace still may.
func makeDirs(cfg *config.Config) error {
	for _, d := range []struct {
		flag, path string
		others     fs.FileMode
	}{{"--state", cfg.State, 0o011}, {"--root", cfg.Root, 0}} {
		if err := os.MkdirAll(d.path, 0o700); err != nil {
			return fmt.Errorf("make the directory of %s: %w", d.flag, err)
		}
		st, err := os.Stat(d.path)
		if err == nil {
			err = os.Chmod(d.path, 0o700|st.Mode().Perm()&d.others)
		}
		if err != nil {
			return fmt.Errorf("close the directory of %s to others: %w", d.flag, err)
		}
	}
	return nil
}

// systemdCgroups resolves the cgroup driver: what the configuration says, else
// systemd where it is in charge of a host with cgroup v2 alone.
func systemdCgroups(cfg *config.Config) bool {
	switch cfg.Cgroup.Driver {
	case "systemd":
		return true
	case "cgroupfs":
		return false
	}
	_, err := os.Stat("/run/systemd/system")
	return err == nil && unifiedCgroups()
}

// unifiedCgroups says whether the host has cgroup v2 alone.
func unifiedCgroups() bool {
	var st unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// monitorProgram finds fairlead-monitor: as configured, beside this program, or
// on PATH.
func monitorProgram(cfg *config.Config) (string, error) {
	if cfg.Monitor.Path != "" {
		return cfg.Monitor.Path, nil
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "fairlead-monitor")
		if st, err := os.Stat(beside); err == nil && st.Mode().IsRegular() {
			return beside, nil
		}
	}
	path, err := exec.LookPath("fairlead-monitor")
	if err != nil {
		return "", fmt.Errorf("find fairlead-monitor: it is neither beside this program nor on PATH; install it, or name it as monitor.path or by --monitor: %w", errdefs.ErrNotFound)
	}
	return path, nil
}

// monitorCgroup names the monitor's cgroup. Monitors of several state
// directories have one each: a shared one would stay for as long as any of them.
func monitorCgroup(state string) string { return client.DefaultCgroup + mark(state) }

// PodCgroup names the cgroup of pods that name no parent. Those of several
// state directories are apart, so that an audit of one does not take the pods
// of another for leftovers.
func PodCgroup(state string) string { return sandbox.DefaultCgroup + mark(state) }

// pluginSocket is where NRI plugins connect: as configured, where they look for a
// runtime, or in a state directory that is not the node's.
func pluginSocket(cfg *config.Config) string {
	switch {
	case cfg.NRI.Socket != "":
		return cfg.NRI.Socket
	case mark(cfg.State) == "":
		return "/var/run/nri/nri.sock"
	}
	return filepath.Join(cfg.State, "nri.sock")
}

// mark tells a state directory from others, and is "" for the default one.
func mark(state string) string {
	if state == config.Default().State {
		return ""
	}
	sum := sha256.Sum256([]byte(state))
	return "-" + hex.EncodeToString(sum[:4])
}
