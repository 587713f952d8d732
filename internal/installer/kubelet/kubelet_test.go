package kubelet

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
)

func TestFind(t *testing.T) {
	for name, c := range map[string]struct {
		line, config string
		want         Kubelet
		problems     string
	}{
		"flags":            {"kubelet --container-runtime=remote --container-runtime-endpoint unix:///a.sock --container-log-max-files=3", "", Kubelet{Endpoint: "unix:///a.sock", Runtime: "remote", LogSize: "10Mi", LogFiles: 3}, ""},
		"file":             {"kubelet --config=/kubelet.yaml", "containerRuntimeEndpoint: unix:///b.sock\ncontainerLogMaxSize: 1Mi\n", Kubelet{Endpoint: "unix:///b.sock", LogSize: "1Mi", LogFiles: 5}, ""},
		"both":             {"kubelet --config=/kubelet.yaml --container-runtime-endpoint=/c.sock", "containerRuntimeEndpoint: /b.sock\n", Kubelet{Endpoint: "/c.sock", LogSize: "10Mi", LogFiles: 5}, ""},
		"nothing":          {"kubelet", "", Kubelet{Endpoint: "unix:///run/containerd/containerd.sock", LogSize: "10Mi", LogFiles: 5}, ""},
		"old":              {"kubelet --container-runtime=remote", "", Kubelet{Runtime: "remote", LogSize: "10Mi", LogFiles: 5}, "not told"},
		"docker":           {"kubelet --container-runtime=docker --container-runtime-endpoint=/c.sock", "", Kubelet{Endpoint: "/c.sock", Runtime: "docker", LogSize: "10Mi", LogFiles: 5}, "takes remote"},
		"no logs":          {"kubelet --container-runtime-endpoint=/c.sock --feature-gates=A=true,CRIContainerLogRotation=false", "", Kubelet{Endpoint: "/c.sock", LogSize: "10Mi", LogFiles: 5, RotationOff: true}, "does not rotate"},
		"no limit":         {"kubelet --config=/kubelet.yaml", "containerRuntimeEndpoint: /b.sock\ncontainerLogMaxSize: \"-1\"\n", Kubelet{Endpoint: "/b.sock", LogSize: "-1", LogFiles: 5}, "containerLogMaxSize is -1"},
		"in two words":     {"kubelet --container-runtime-endpoint /c.sock --container-log-max-size -1 --v 2", "", Kubelet{Endpoint: "/c.sock", LogSize: "-1", LogFiles: 5}, "does not rotate"},
		"no limit by flag": {"kubelet --container-runtime-endpoint=/c.sock --container-log-max-size=-1", "", Kubelet{Endpoint: "/c.sock", LogSize: "-1", LogFiles: 5}, "does not rotate"},
		"one file":         {"kubelet --config /kubelet.yaml", "containerRuntimeEndpoint: /b.sock\ncontainerLogMaxFiles: 1\n", Kubelet{Endpoint: "/b.sock", LogSize: "10Mi", LogFiles: 1}, "takes 2"},
	} {
		root := t.TempDir()
		proc := filepath.Join(root, "proc")
		for file, text := range map[string]string{
			"proc/1/comm": "init\n", "proc/7/comm": "kubelet\n", "proc/7/cmdline": strings.ReplaceAll(c.line, " ", "\x00") + "\x00", "kubelet.yaml": c.config,
		} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := Find(proc, root)
		c.want.PID, c.want.Root = 7, root
		if err != nil || got != c.want {
			t.Errorf("%s: %+v %v, want %+v", name, got, err, c.want)
		}
		if all := strings.Join(got.Problems(), "\n"); (all == "") != (c.problems == "") || !strings.Contains(all, c.problems) {
			t.Errorf("%s: %s", name, all)
		}
	}
	// A container sees the kubelet's file in the root directory of its process alone.
	proc := t.TempDir()
	for file, text := range map[string]string{"7/comm": "kubelet\n", "7/cmdline": "kubelet\x00--config=/kubelet.yaml\x00", "7/root/kubelet.yaml": "containerRuntimeEndpoint: /d.sock\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(proc, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Find(proc, t.TempDir()); err != nil || got.Endpoint != "/d.sock" {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := Find(t.TempDir(), "/"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("without a kubelet: %v", err)
	}
}

// Drop-ins are merged over the file, sorted by name, and flags are taken over them.
func TestDropIns(t *testing.T) {
	const containerd = "unix:///run/containerd/containerd.sock"
	for name, c := range map[string]struct {
		flags string
		files map[string]string
		want  Kubelet
	}{
		"one alone":                              {"", map[string]string{"d/10.conf": "containerRuntimeEndpoint: /a.sock\n"}, Kubelet{Endpoint: "/a.sock", LogSize: "10Mi", LogFiles: 5}},
		"over the file":                          {"--config=/k.yaml", map[string]string{"k.yaml": "containerRuntimeEndpoint: /a.sock\ncontainerLogMaxSize: 1Mi\n", "d/10.conf": "containerRuntimeEndpoint: /b.sock\n"}, Kubelet{Endpoint: "/b.sock", LogSize: "1Mi", LogFiles: 5}},
		"the last":                               {"", map[string]string{"d/20.conf": "containerRuntimeEndpoint: /b.sock\n", "d/10.conf": "containerRuntimeEndpoint: /a.sock\ncontainerLogMaxFiles: 3\n"}, Kubelet{Endpoint: "/b.sock", LogSize: "10Mi", LogFiles: 3}},
		"in folders":                             {"", map[string]string{"d/20/x.conf": "containerRuntimeEndpoint: /b.sock\n", "d/10.conf": "containerRuntimeEndpoint: /a.sock\n"}, Kubelet{Endpoint: "/b.sock", LogSize: "10Mi", LogFiles: 5}},
		"of other names":                         {"", map[string]string{"d/10.yaml": "containerRuntimeEndpoint: /a.sock\n", "d/20.conf.bak": "[[["}, Kubelet{Endpoint: containerd, LogSize: "10Mi", LogFiles: 5}},
		"below flags":                            {"--container-runtime-endpoint=/c.sock", map[string]string{"d/10.conf": "containerRuntimeEndpoint: /a.sock\n"}, Kubelet{Endpoint: "/c.sock", LogSize: "10Mi", LogFiles: 5}},
		"null":                                   {"", map[string]string{"d/10.conf": "containerRuntimeEndpoint: /a.sock\n", "d/20.conf": "containerRuntimeEndpoint: null\n"}, Kubelet{Endpoint: containerd, LogSize: "10Mi", LogFiles: 5}},
		"gates are added up":                     {"", map[string]string{"d/10.conf": "featureGates: {CRIContainerLogRotation: false}\n", "d/20.conf": "featureGates: {Other: true}\n"}, Kubelet{Endpoint: containerd, LogSize: "10Mi", LogFiles: 5, RotationOff: true}},
		"a folder that is not seen":              {"", nil, Kubelet{Unseen: "/d", LogSize: "10Mi", LogFiles: 5}},
		"a file that is not seen":                {"--config=/k.yaml", map[string]string{"d/10.conf": ""}, Kubelet{Unseen: "/k.yaml", LogSize: "10Mi", LogFiles: 5}},
		"a file that is not seen, and an answer": {"--config=/k.yaml", map[string]string{"d/10.conf": "containerRuntimeEndpoint: /a.sock\n"}, Kubelet{Endpoint: "/a.sock", Unseen: "/k.yaml", LogSize: "10Mi", LogFiles: 5}},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := read(0, append([]string{"kubelet", "--config-dir", "/d"}, strings.Fields(c.flags)...), root)
		c.want.Root = root
		if err != nil || got != c.want {
			t.Errorf("%s: %+v %v, want %+v", name, got, err, c.want)
		}
		if all := strings.Join(got.Problems(), ""); strings.Contains(all, got.Unseen+" is not seen") != (got.Endpoint == "") || strings.Contains(all, "not told") {
			t.Errorf("%s: %q", name, all)
		}
	}
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "10.conf"), []byte("[[["), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := read(0, []string{"kubelet", "--config-dir=/"}, root); err == nil || !strings.Contains(err.Error(), "10.conf") {
		t.Errorf("garbage: %v", err)
	}
}
