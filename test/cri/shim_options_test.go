package cri

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// What is configured of a shim takes effect on it and on what it runs, and has
// none on a handler beside it that is without.
func TestShimOptions(t *testing.T) {
	dir, group := t.TempDir(), shimCgroup(t)
	below := filepath.Join(dir, "below")
	if err := os.WriteFile(below, []byte("#!/bin/sh\necho \"$@\" >> "+dir+"/calls\nexec runc \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	program := shimProgram(t, "containerd-shim-runc-v2")
	renamed := filepath.Join(dir, "containerd-shim-renamed")
	if err := os.Symlink(program, renamed); err != nil {
		t.Fatal(err)
	}
	n := node.Start(t, fmt.Sprintf(`
[handlers.plain] # found by its runtime_type on PATH
type = "shim"
runtime_type = "io.containerd.runc.v2"

[handlers.shim]
type = "shim"
runtime_type = "io.containerd.runc.v2"
path = %q
pod_annotations = ["io.example.pod/*"]
container_annotations = ["io.example.container"]
privileged_without_host_devices = true
snapshotter = "overlayfs"
[handlers.shim.options]
BinaryName = %q
Root = %q
NoPivotRoot = true
NoNewKeyring = true
ShimCgroup = %q
`, renamed, below, filepath.Join(dir, "root"), group), node.WithEnv("PATH="+filepath.Dir(program)+":"+os.Getenv("PATH")))
	n.Pull(node.Busybox)
	_ = os.Remove(filepath.Join(dir, "calls")) // those of the trial
	plain, set := startAnnotated(n, "plain"), startAnnotated(n, "shim")
	calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
	for _, want := range []string{"--root " + filepath.Join(dir, "root"), "--no-pivot", "--no-new-keyring", " " + set.ID} {
		if !strings.Contains(string(calls), want) {
			t.Errorf("the OCI runtime below was not called with %q: %s", want, calls)
		}
	}
	if strings.Contains(string(calls), plain.ID) {
		t.Error("the program of one handler was called for another")
	}
	for c, mine := range map[*node.Container]bool{plain: false, set: true} {
		want := []string{}
		if mine {
			want = []string{"io.example.container", "io.example.pod/a"}
		}
		if got := exampleAnnotations(t, n, c); !slices.Equal(got, want) {
			t.Errorf("annotations that reach the runtime: %v, not %v", got, want)
		}
		// A device of the host that no runtime makes by itself.
		if got := strings.TrimSpace(c.Exec("sh", "-c", "test -e /dev/kmsg && echo there || echo none")); (got == "none") != mine {
			t.Errorf("a privileged container finds /dev/kmsg %s", got)
		}
		if got := inCgroup(t, shimOf(t, n, c), group); got != mine {
			t.Errorf("the shim is in the cgroup: %t", got)
		}
	}
	n.RemoveAll()
}

func startAnnotated(n *node.Node, handler string) *node.Container {
	s := n.RunPod(handler, func(p *runtimeapi.PodSandboxConfig) {
		p.Annotations = map[string]string{"io.example.pod/a": "1", "io.example.podlike": "2"}
		p.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{Privileged: true}
	})
	cfg := node.Script(forever)
	cfg.Annotations = map[string]string{"io.example.container": "1", "io.example.other": "2"}
	cfg.Linux.SecurityContext.Privileged = true
	return s.Start(cfg)
}

// exampleAnnotations are those in the specification that a runtime was given.
func exampleAnnotations(t *testing.T, n *node.Node, c *node.Container) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(n.State, "containers", c.ID, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var spec struct{ Annotations map[string]string }
	if err := json.Unmarshal(data, &spec); err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for name := range spec.Annotations {
		if strings.HasPrefix(name, "io.example.") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// shimOf is the process of the shim of a container's pod.
func shimOf(t *testing.T, n *node.Node, c *node.Container) int {
	t.Helper()
	for _, pid := range shimPIDs(t, n) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
		if strings.Contains(string(line), c.Sandbox.ID) {
			return pid
		}
	}
	t.Fatalf("pod %s has no shim", c.Sandbox.ID)
	return 0
}

// shimCgroup makes a cgroup, in a hierarchy of version 1 if there is one.
func shimCgroup(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	name := "fairlead-shims-" + strings.ToLower(filepath.Base(t.TempDir()))
	top := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(top, "memory", "tasks")); err == nil {
		top = filepath.Join(top, "memory")
	}
	name = fmt.Sprintf("%s-%d", name, os.Getpid())
	if err := os.Mkdir(filepath.Join(top, name), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		node.Eventually(t, "the end of the shims in the cgroup", func() bool { return os.Remove(filepath.Join(top, name)) == nil })
	})
	return "/" + name
}

func inCgroup(t *testing.T, pid int, group string) bool {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(data), group)
}
