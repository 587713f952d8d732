package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// actAsPlugin in the environment makes this program a plugin that the daemon starts.
const actAsPlugin = "FAIRLEAD_TEST_PLUGIN"

// confessor writes its name to the file that its configuration names.
type confessor struct{}

func (confessor) Configure(_ context.Context, config, _, _ string) (api.EventMask, error) {
	return 0, os.WriteFile(config, []byte(os.Getenv(api.PluginIdxEnvVar)+"-"+os.Getenv(api.PluginNameEnvVar)), 0o600)
}

// RunPodSandbox is there because a plugin has to be told of something.
func (confessor) RunPodSandbox(context.Context, *api.PodSandbox) error { return nil }

func confess() error {
	s, err := stub.New(confessor{})
	if err != nil {
		return err
	}
	return s.Run(context.Background())
}

// configured is a configuration with keys that change what is seen from outside or
// inside, and the folder that it names.
func configured(t *testing.T) (dir, toml string) {
	t.Helper()
	dir = t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"plugins/10-confessor":      fmt.Sprintf("#!/bin/sh\n%s=1 exec %q\n", actAsPlugin, exe),
		"configs/10-confessor.conf": dir + "/confession",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir, fmt.Sprintf(`
default_handler = "changed"
[handlers.changed]
path = %[2]q
pod_annotations = ["seen.pod/*"]
container_annotations = ["seen.container"]
privileged_without_host_devices = true
[handlers.plain]
path = %[2]q
[handlers.wrong]
path = %[2]q
args = ["--of-the-configuration"]
[streaming]
token_ttl = "1s"
[containers]
max_log_line = 256
[nri]
plugin_dir = "%[1]s/plugins"
plugin_config_dir = "%[1]s/configs"
`, dir, node.Handlers[0])
}

// TestConfiguredKeys: each key of the configuration, and what is seen because of it.
func TestConfiguredKeys(t *testing.T) {
	dir, toml := configured(t)
	n := node.Start(t, toml)
	n.Pull(node.Busybox)
	for key, see := range map[string]func(*testing.T){
		"nri.plugin_dir and nri.plugin_config_dir": func(t *testing.T) {
			node.Eventually(t, "the plugin to be started and configured", func() bool {
				said, _ := os.ReadFile(dir + "/confession")
				return string(said) == "10-confessor"
			})
		},
		"handlers.NAME.args": func(t *testing.T) {
			_, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: n.PodConfig(), RuntimeHandler: "wrong"})
			if err == nil || !strings.Contains(err.Error(), "of-the-configuration") {
				t.Errorf("a program that is given an argument which it does not know: %v", err)
			}
		},
		"handlers.NAME.pod_annotations and container_annotations": func(t *testing.T) { seesAnnotations(t, n) },
		"handlers.NAME.privileged_without_host_devices": func(t *testing.T) {
			for handler, want := range map[string]string{"changed": "", "plain": "/dev/kmsg\n"} {
				privileged := func(p *runtimeapi.PodSandboxConfig) { p.Linux.SecurityContext.Privileged = true }
				must(t, n.Inside(handler, "ls /dev/kmsg 2>/dev/null || true", secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = true }), privileged), want)
			}
		},
		"containers.max_log_line": func(t *testing.T) {
			s := n.RunPod("plain")
			c := s.Start(node.Script("head -c 600 /dev/zero | tr '\\0' x; echo"))
			c.Wait()
			raw, err := os.ReadFile(c.LogPath())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for line := range strings.Lines(string(raw)) {
				f := strings.Fields(line)
				got = append(got, fmt.Sprintf("%s%d", f[2], len(f[3])))
			}
			must(t, strings.Join(got, " "), "P256 P256 F88")
			s.Remove()
		},
		"streaming.token_ttl": func(t *testing.T) {
			s := n.RunPod("plain")
			c := s.Start(node.Script("sleep 1000"))
			raw := c.ExecURL(&runtimeapi.ExecRequest{Cmd: []string{"true"}, Stdout: true})
			time.Sleep(1100 * time.Millisecond) // after which it is no more, on any machine
			e, err := node.SPDYExecutor(raw)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.StreamWithContext(n.Ctx(), remotecommand.StreamOptions{Stdout: io.Discard}); err == nil {
				t.Error("an address was good for longer than it may be")
			}
			s.Remove()
		},
	} {
		t.Run(key, func(t *testing.T) {
			outer := n.T
			n.T = t
			defer func() { n.T = outer }()
			see(t)
		})
	}
}

// seesAnnotations looks at what the runtime of a handler is told, and that of one
// which is told nothing.
func seesAnnotations(t *testing.T, n *node.Node) {
	t.Helper()
	for handler, want := range map[string]string{"changed": "of the pod,of the container,,", "plain": ",,,"} {
		s := n.RunPod(handler, func(p *runtimeapi.PodSandboxConfig) {
			p.Annotations = map[string]string{"seen.pod/a": "of the pod", "seen.pods": "hidden"}
		})
		cfg := node.Script("sleep 1000")
		cfg.Annotations = map[string]string{"seen.container": "of the container", "seen.container.too": "hidden"}
		c := s.Start(cfg)
		raw, err := os.ReadFile(filepath.Join(n.State, "containers", c.ID, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		var bundle struct{ Annotations map[string]string }
		if err := json.Unmarshal(raw, &bundle); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, k := range []string{"seen.pod/a", "seen.container", "seen.pods", "seen.container.too"} {
			got = append(got, bundle.Annotations[k])
		}
		must(t, strings.Join(got, ","), want)
		s.Remove()
	}
}
