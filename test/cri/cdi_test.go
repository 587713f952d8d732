package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// cdiNode is a node with CDI folders of its own and a device of each kind of
// edit in them. hook is the file that the device's hook makes on the host.
func cdiNode(t *testing.T, extra string) (n *node.Node, dirs [2]string, hook string) {
	t.Helper()
	base := t.TempDir()
	dirs = [2]string{base + "/etc", base + "/run"}
	hook = base + "/hooked"
	n = node.Start(t, fmt.Sprintf("[containers]\ncdi_spec_dirs = [%q, %q]\n%s", dirs[0], dirs[1], extra))
	n.Pull(node.Busybox)
	return n, dirs, hook
}

func writeCDI(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func withCDI(names ...string) func(*containerConfig) {
	return func(c *containerConfig) {
		for _, n := range names {
			c.CDIDevices = append(c.CDIDevices, &runtimeapi.CDIDevice{Name: n})
		}
	}
}

// What a file says of a device is in the container: variables, nodes, mounts
// and hooks, those of the device and those of all devices of the file.
func TestCDIDevices(t *testing.T) {
	n, dirs, hook := cdiNode(t, "")
	data := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(data, []byte("of the vendor"), 0o644); err != nil {
		t.Fatal(err)
	}
	writeCDI(t, dirs[0], "vendor.json", fmt.Sprintf(`{"cdiVersion":"0.6.0","kind":"vendor.example/gpu",
		"containerEdits":{"env":["VENDOR=here"]},
		"devices":[{"name":"gpu0","containerEdits":{
			"env":["GPU=0"],
			"deviceNodes":[{"path":"/dev/gpu0","hostPath":"/dev/zero","permissions":"rw"}],
			"mounts":[{"hostPath":%q,"containerPath":"/opt/vendor","options":["ro","bind"]}],
			"hooks":[{"hookName":"createRuntime","path":"/bin/sh","args":["sh","-c","echo hooked > %s"]}]}}]}`, data, hook))
	for _, h := range node.Handlers {
		out := n.Inside(h, `echo $VENDOR $GPU; cat /opt/vendor; echo; touch /opt/vendor 2>/dev/null && echo writable; stat -c '%F %t %T' /dev/gpu0; head -c 3 /dev/gpu0 | wc -c`,
			withCDI("vendor.example/gpu=gpu0"))
		must(t, out, "here 0\nof the vendor\ncharacter special file 1 5\n3\n")
		if made, err := os.ReadFile(hook); err != nil || string(made) != "hooked\n" {
			t.Errorf("%s: the hook made %q, %v", h, made, err)
		}
		if err := os.Remove(hook); err != nil {
			t.Error(err)
		}
	}
}

// A device that no file describes is refused with what there is, and a broken
// file harms nobody else.
func TestUnknownCDIDevice(t *testing.T) {
	n, dirs, _ := cdiNode(t, "")
	writeCDI(t, dirs[0], "broken.json", "{")
	s := n.RunPod("crun")
	ask := func(name string) error {
		cfg := node.Script("true")
		withCDI(name)(cfg)
		_, err := s.TryCreate(cfg)
		return err
	}
	err := ask("vendor.example/gpu=gpu0")
	for _, want := range []string{"vendor.example/gpu=gpu0", dirs[0], dirs[1], "broken.json"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if s.Start(node.Script("true")).Wait().ExitCode != 0 {
		t.Error("a broken file harms a container that asks for no device")
	}
	// A driver writes the file when the pod is there already.
	writeCDI(t, dirs[1], "vendor.yaml", "cdiVersion: 0.5.0\nkind: vendor.example/gpu\ndevices:\n- name: gpu0\n  containerEdits:\n    env: [GPU=0]\n")
	if err := ask("vendor.example/gpu=gpu0"); err != nil {
		t.Errorf("beside a broken file: %v", err)
	}
	if err := ask("vendor.example/gpu=gpu1"); err == nil || !strings.Contains(err.Error(), "of its kind there are vendor.example/gpu=gpu0") {
		t.Error(err)
	}
	s.Remove()
}

// Annotations name devices only for a handler whose configuration lets them.
func TestCDIAnnotations(t *testing.T) {
	n, dirs, _ := cdiNode(t, "[handlers.crun]\ncontainer_annotations = [\"cdi.k8s.io/*\"]\n[handlers.runc]\n")
	writeCDI(t, dirs[0], "vendor.json", `{"cdiVersion":"0.5.0","kind":"vendor.example/gpu","devices":[{"name":"gpu0","containerEdits":{"env":["GPU=0"]}}]}`)
	annotated := func(c *containerConfig) {
		c.Annotations = map[string]string{"cdi.k8s.io/vendor": "vendor.example/gpu=gpu0"}
	}
	must(t, n.Inside("crun", "echo is $GPU", annotated), "is 0\n")
	must(t, n.Inside("runc", "echo is $GPU", annotated), "is\n")
}
