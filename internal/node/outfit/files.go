package outfit

import (
	"bytes"
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

// Agents before this one have left both in the folder on the tmpfs, where containers that
// they have started still have them.
func (p *Pod) hostsFile() string    { return filepath.Join(p.Dirs.Files(), "hosts") }
func (p *Pod) earlierHosts() string { return filepath.Join(p.Dirs.Memory, "hosts") }
func (p *Pod) words() string        { return filepath.Join(p.Dirs.Files(), "termination") }
func (p *Pod) earlierWords() string { return filepath.Join(p.Dirs.Memory, "termination") }

// WriteHosts writes the pod's hosts file. Containers that have it mounted see the
// change.
func (p *Pod) WriteHosts() error {
	node, err := os.ReadFile(hostsPath)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.MkdirAll(p.Dirs.Files(), 0o700); err != nil {
		return err
	}
	text := podspec.Hosts(p.Spec, node)
	for _, file := range []string{p.hostsFile(), p.earlierHosts()} {
		has, err := os.ReadFile(file)
		if err == nil && bytes.Equal(has, text) || errors.Is(err, os.ErrNotExist) && file == p.earlierHosts() {
			continue
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return fmt.Errorf("write its hosts file: %w", err)
		}
	}
	return nil
}

// Shrink gives back what containers have written into the files that they have from the
// node, once nothing of the pod runs any more. Last words stay, as far as they are told.
func (p *Pod) Shrink() error {
	errs := []error{lastwords.Shrink(p.words(), p.earlierWords())}
	for _, file := range []string{p.hostsFile(), p.earlierHosts()} {
		if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// mounts are what a container has mounted: volumes, the hosts file unless it brings
// its own, and the file for its last words.
func (p *Pod) mounts(ctx context.Context, ct *corev1.Container, attempt uint32) ([]*runtimeapi.Mount, error) {
	mounts, err := p.Volumes().Mounts(ctx, ct)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(mounts, func(m *runtimeapi.Mount) bool { return m.GetContainerPath() == hostsPath }) {
		// It may not be that of this sandbox: an agent was killed, or had no room for it.
		if err := p.WriteHosts(); err != nil {
			return nil, err
		}
		mounts = append(mounts, &runtimeapi.Mount{ContainerPath: hostsPath, HostPath: p.hostsFile(), SelinuxRelabel: true})
	}
	words, err := p.note(ct, attempt).Mount()
	if err != nil {
		return nil, err
	}
	return podspec.Mapped(p.Spec, append(mounts, words)), nil
}

func (p *Pod) note(ct *corev1.Container, attempt uint32) lastwords.Note {
	return lastwords.Note{Container: ct, Folder: p.words(), Earlier: p.earlierWords(), Attempt: attempt}
}

// LastWords is what an attempt that has ended has left; empty for one that has not.
func (p *Pod) LastWords(name string, s *runtimeapi.ContainerStatus) string {
	ct := podspec.ContainerOf(p.Spec.Pod, name)
	if ct == nil || s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		return ""
	}
	return p.note(ct, s.GetMetadata().GetAttempt()).Read(s.GetExitCode(), s.GetLogPath())
}

// DropBefore removes the logs and last words of all attempts at a container before that
// one. It goes by the files: the attempts themselves may be gone with their sandbox.
func (p *Pod) DropBefore(name string, attempt uint32) error {
	ct := &corev1.Container{Name: name}
	log := podspec.Attempt{Container: ct}.LogPath()
	return errors.Join(rotate.RemoveBefore(filepath.Join(p.Spec.LogDir, filepath.Dir(log)), attempt), p.note(ct, attempt).RemoveBefore())
}

// NextLog is the number of the first attempt at a container that has no log yet.
func (p *Pod) NextLog(name string) uint32 {
	log := podspec.Attempt{Container: &corev1.Container{Name: name}}.LogPath()
	return rotate.Next(filepath.Join(p.Spec.LogDir, filepath.Dir(log)))
}
