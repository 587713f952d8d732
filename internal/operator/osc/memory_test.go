package osc

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
)

// big is a payload of 50 entries: 46 files, two configurations and two handlers, with
// names as long as those of Kata Containers.
func big(version string) *Order {
	o := &Order{
		Image: "europe-docker.pkg.dev/project/releases/fairlead-kata-containers@sha256:" + strings.Repeat(version, 64), Arch: "amd64", BinaryPath: "/usr/bin",
		Payload: &payload.RuntimePayload{Type: "kata-containers", Version: "3.2" + version + ".0"},
	}
	p := o.Payload
	for i := range 46 {
		p.Files = append(p.Files, payload.File{Path: fmt.Sprintf("share/kata-containers/a-file-of-some-length-%02d.img", i), Mode: "0644", SHA256: strings.Repeat("ab", 32)})
	}
	for _, name := range []string{"qemu", "clh"} {
		config := "configuration-" + name + ".toml"
		p.Configs = append(p.Configs, payload.Config{Path: config, Content: strings.Repeat("# a line of 40 bytes, as in the others.\n", 700)}) // 28 KB, as upstream's
		p.Handlers = append(p.Handlers, payload.Handler{Name: "kata-" + name, Containerd: &payload.ContainerdHandler{
			RuntimeType: "io.containerd.kata-" + name + ".v2", RuntimePath: "bin/containerd-shim-kata-v2",
			Options: &payload.ContainerdOptions{TypeURL: "containerd.cri.runtimeoptions.v1.Options", ConfigPath: "${CONFIG}/" + config},
		}})
	}
	return o
}

// stateOf is what is kept of a pool with some objects, once they have had two releases.
func stateOf(t *testing.T, objects int) []byte {
	t.Helper()
	has := map[string]Memory{}
	for i := range objects {
		var config map[string]any
		if err := json.Unmarshal([]byte(`{"spec":{"files":[],"criConfig":{"name":"containerd","containerd":{}}}}`), &config); err != nil {
			t.Fatal(err)
		}
		for _, version := range []string{"1", "2"} {
			o := big(version)
			files, err := o.Files()
			if err != nil {
				t.Fatal(err)
			}
			plugins, err := o.Plugins()
			if err != nil {
				t.Fatal(err)
			}
			with := Entries{Base: Base("/usr/bin", "kata-containers"), Handlers: []string{"kata-qemu", "kata-clh"}, Files: files, Plugins: plugins}
			if err := Put(config, with); err != nil {
				t.Fatal(err)
			}
			has[fmt.Sprintf("cloud-config-worker-1-%d-original", i)] = with.Of(config)
		}
	}
	text, err := Encode(has)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// What is kept in status.state goes into etcd with the object, which takes requests of
// 1.5 MiB. The numbers are in docs/operator.md.
func TestStateIsSmall(t *testing.T) {
	one, three := len(stateOf(t, 1)), len(stateOf(t, 3))
	t.Logf("a payload of 50 entries, and the release before: %d bytes in one OperatingSystemConfig, %d in three", one, three)
	if one > 200<<10 || three > 3*one {
		t.Errorf("%d and %d bytes", one, three)
	}
}
