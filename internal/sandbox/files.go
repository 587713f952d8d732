package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/filelabel"
	"fairlead.run/internal/pod"
)

var fileWritten = failpoint.Register("sandbox.file-written")

// fileMode lets everybody in the pod read its files, whoever they run as.
const fileMode = 0o644

// WriteFiles writes resolv.conf, hosts and hostname, gives them and /dev/shm the
// pod's SELinux label, and sets what kernel parameters had to wait for the pod's
// network interfaces.
func (d *Driver) WriteFiles(_ context.Context, r *pod.Record) error {
	if err := d.writeFiles(r); err != nil {
		return fmt.Errorf("write the files of pod %s: %w", r.ID.Short(), err)
	}
	return nil
}

func (d *Driver) writeFiles(r *pod.Record) error {
	dir := r.Sandbox.FilesDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	p, err := d.plan(&r.Config)
	if err != nil {
		return err
	}
	node, err := nodeResolver(r.Config.HostNetwork(), nodeResolvConf, systemdResolvConf)
	if err != nil {
		return err
	}
	resolver, err := resolvConf(r.Config.DNS, node)
	if err != nil {
		return err
	}
	names := hosts(p.hostname, r.Sandbox.IPs)
	if r.Config.HostNetwork() {
		if names, err = hostsOfNode(nodeHosts); err != nil {
			return err
		}
	}
	for name, content := range map[string][]byte{
		pod.FileResolvConf: resolver, pod.FileHosts: names, pod.FileHostname: []byte(p.hostname + "\n"),
	} {
		if err := replace(filepath.Join(dir, name), content); err != nil {
			return err
		}
		path := filepath.Join(dir, name)
		if err := errors.Join(own(path, &r.Config), filelabel.Set(path, r.Labels.Mount)); err != nil {
			return err
		}
		if err := failpoint.Hit(fileWritten); err != nil {
			return err
		}
	}
	if r.Sandbox.Shm != "" {
		if err := filelabel.Set(r.Sandbox.Shm, r.Labels.Mount); err != nil {
			return err
		}
	}
	return late(p.sysctls, r.Sandbox.NetNS)
}

// replace writes a file that containers may have mounted. One that is right is
// left alone: a new file under the name would not be the one that they see.
func replace(name string, content []byte) error {
	old, err := os.ReadFile(name)
	if err == nil && string(old) == string(content) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return atomicfile.Write(name, content, fileMode)
}

// own gives a file to the pod's root.
func own(name string, c *pod.Config) error {
	if c.UserNamespace() == nil {
		return nil
	}
	uid, gid := c.Root()
	return os.Lchown(name, int(uid), int(gid))
}

// late sets the parameters of network interfaces, which are there by now.
func late(all []sysctl, ns string) error {
	var waiting []sysctl
	for _, s := range all {
		if s.waits() {
			waiting = append(waiting, s)
		}
	}
	if len(waiting) == 0 || ns == "" {
		return nil
	}
	return inNetwork(ns, func() error {
		for _, s := range waiting {
			if err := s.set(); err != nil {
				return err
			}
		}
		return nil
	})
}
