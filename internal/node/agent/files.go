package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/lastwords"
	"fairlead.run/internal/node/logs/rotate"
	"fairlead.run/internal/node/podspec"
)

const hostsPath = "/etc/hosts"

func (w *worker) hostsFile() string { return filepath.Join(w.dirs.Memory, "hosts") }

// writeHosts writes the pod's hosts file. Containers that have it mounted see the
// change.
func (w *worker) writeHosts() error {
	node, err := os.ReadFile(hostsPath)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.MkdirAll(w.dirs.Memory, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(w.hostsFile(), podspec.Hosts(w.spec, node), 0o644); err != nil {
		return fmt.Errorf("write its hosts file: %w", err)
	}
	return nil
}

// mounts are what a container has mounted: volumes, the hosts file unless it brings
// its own, and the file for its last words.
func (w *worker) mounts(ctx context.Context, ct *corev1.Container, attempt uint32) ([]*runtimeapi.Mount, error) {
	mounts, err := w.volumes.Mounts(ctx, ct)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(mounts, func(m *runtimeapi.Mount) bool { return m.GetContainerPath() == hostsPath }) {
		mounts = append(mounts, &runtimeapi.Mount{ContainerPath: hostsPath, HostPath: w.hostsFile(), SelinuxRelabel: true})
	}
	words, err := w.note(ct, attempt).Mount()
	if err != nil {
		return nil, err
	}
	return podspec.Mapped(w.spec, append(mounts, words)), nil
}

func (w *worker) note(ct *corev1.Container, attempt uint32) lastwords.Note {
	return lastwords.Note{Container: ct, Folder: filepath.Join(w.dirs.Memory, "termination"), Attempt: attempt}
}

// lastWords is what an attempt that has ended has left; empty for one that has not.
func (w *worker) lastWords(name string, s *runtimeapi.ContainerStatus) string {
	ct := podspec.ContainerOf(w.pod, name)
	if ct == nil || s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		return ""
	}
	return w.note(ct, s.GetMetadata().GetAttempt()).Read(s.GetExitCode(), s.GetLogPath())
}

// dropOld removes the logs and last words of all attempts but the last two, which are
// those that somebody can ask for. It goes by the files: the attempts themselves may be
// gone with their sandbox.
func (w *worker) dropOld() error {
	var errs []error
	for name, c := range w.view.Containers {
		n := c.Now.GetMetadata().GetAttempt()
		if n < 2 || c.Kept == n-1 {
			continue
		}
		ct := &corev1.Container{Name: name}
		log := podspec.Attempt{Container: ct}.LogPath()
		err := errors.Join(rotate.RemoveBefore(filepath.Join(w.spec.LogDir, filepath.Dir(log)), n-1), w.note(ct, n-1).RemoveBefore())
		if errs = append(errs, err); err == nil {
			c.Kept = n - 1
		}
	}
	return errors.Join(errs...)
}
