package runner

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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

// maxMessage bounds a termination message, as the kubelet does.
const maxMessage = 4096

func (w *worker) terminationFile(ct *corev1.Container, attempt uint32) string {
	return filepath.Join(w.dirs.Memory, "termination", fmt.Sprintf("%s.%d", ct.Name, attempt))
}

// addTermination mounts the file that a container may leave its last words in.
func (w *worker) addTermination(ct *corev1.Container, attempt uint32, mounts []*runtimeapi.Mount) ([]*runtimeapi.Mount, error) {
	path := ct.TerminationMessagePath
	if path == "" {
		path = corev1.TerminationMessagePathDefault
	}
	file := w.terminationFile(ct, attempt)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		return nil, err
	}
	if err := os.Chmod(file, 0o666); err != nil { // any user of the container writes it
		return nil, err
	}
	return append(mounts, &runtimeapi.Mount{ContainerPath: path, HostPath: file, SelinuxRelabel: true}), nil
}

// terminationMessage reads it back. It is a container's own text: bounded, and
// on one line.
func (w *worker) terminationMessage(c *container) string {
	text := head(w.terminationFile(c.spec, c.attempt))
	if text == "" && c.spec.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError && c.exit.GetExitCode() != 0 {
		text = w.lastLogLines(c)
	}
	return strings.Join(strings.Fields(text), " ")
}

func head(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxMessage))
	if err != nil {
		return ""
	}
	return string(data)
}
