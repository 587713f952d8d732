package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/lastwords"
	"fairlead.run/internal/node/podspec"
)

const hostsPath = "/etc/hosts"

func (w *worker) hostsFile() string { return filepath.Join(w.dirs.Memory, "hosts") }

// writeHosts writes the pod's hosts file: for a pod on the node's network the
// node's own, and the pod's aliases in any case.
func (w *worker) writeHosts() error {
	pod := w.spec.Pod
	var b strings.Builder
	if pod.Spec.HostNetwork {
		node, err := os.ReadFile(hostsPath)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		b.Write(node)
	} else {
		b.WriteString("# Written for this pod by fairlead.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nff02::1\tip6-allnodes\nff02::2\tip6-allrouters\n")
		for _, ip := range w.spec.IPs {
			fmt.Fprintf(&b, "%s\t%s\n", ip, podspec.Hostname(pod))
		}
	}
	for i, a := range pod.Spec.HostAliases {
		if i == 0 {
			b.WriteString("\n# From spec.hostAliases.\n")
		}
		fmt.Fprintf(&b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
	}
	if err := os.MkdirAll(w.dirs.Memory, 0o700); err != nil {
		return err
	}
	return os.WriteFile(w.hostsFile(), []byte(b.String()), 0o644)
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
