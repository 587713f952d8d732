package runner

import (
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/lastwords"
	"fairlead.run/internal/node/podspec"
)

const hostsPath = "/etc/hosts"

func (w *worker) hostsFile() string { return filepath.Join(w.dirs.Memory, "hosts") }

// writeHosts writes the pod's hosts file.
func (w *worker) writeHosts() error {
	var node []byte
	if w.spec.Pod.Spec.HostNetwork {
		var err error
		if node, err = os.ReadFile(hostsPath); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	if err := os.MkdirAll(w.dirs.Memory, 0o700); err != nil {
		return err
	}
	return os.WriteFile(w.hostsFile(), podspec.Hosts(w.spec, node), 0o644)
}

// addHosts mounts the hosts file unless the container brings its own.
func (w *worker) addHosts(mounts []*runtimeapi.Mount) []*runtimeapi.Mount {
	for _, m := range mounts {
		if m.GetContainerPath() == hostsPath {
			return mounts
		}
	}
	return append(mounts, &runtimeapi.Mount{ContainerPath: hostsPath, HostPath: w.hostsFile(), SelinuxRelabel: true})
}

// lastWords is where an attempt leaves what is to be said about its end.
func (w *worker) lastWords(ct *corev1.Container, attempt uint32) lastwords.Note {
	return lastwords.Note{Container: ct, Folder: filepath.Join(w.dirs.Memory, "termination"), Attempt: attempt}
}

// terminationMessage is what it left, on one line.
func (w *worker) terminationMessage(c *container) string {
	log := filepath.Join(w.spec.LogDir, podspec.Attempt{Container: c.spec, Number: c.attempt}.LogPath())
	return lastwords.OneLine(w.lastWords(c.spec, c.attempt).Read(c.exit.GetExitCode(), log))
}
