package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"fairlead.run/api/v1alpha1"
)

// kataManifest is that of a stand-in for Kata: containerd's shim for runc by another
// name. It asks for a device, as Kata does, and one that every node has.
const kataManifest = `{
  "apiVersion": "payload.fairlead.run/v1alpha1", "kind": "RuntimePayload", "type": "kata-containers", "version": %q, "os": "linux", "architectures": [%q],
  "devices": ["/dev/null"],
  "handlers": [{"name": %q, "containerd": {"runtimeType": "io.containerd.kata-qemu.v2", "runtimePath": "bin/containerd-shim-kata-v2"}}],
  "checks": [{"name": "version", "command": ["bin/containerd-shim-kata-v2", "-v"]}]
}
`

// kataPayload is the folder of a payload, as build/images wants it.
func kataPayload(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "payload.json"), fmt.Sprintf(kataManifest, version, runtime.GOARCH, kataClass), 0o644)
	writeFile(t, filepath.Join(dir, "all/share/version"), version+"\n", 0o644)
	writeFile(t, filepath.Join(dir, runtime.GOARCH, "bin/containerd-shim-kata-v2"), mustRead(t, filepath.Join(*peers, "containerd-shim-runc-v2")), 0o755)
	return dir
}

// gvisorPayload is that of deploy with gVisor's programs, as make images has it.
func gvisorPayload(t *testing.T, version string) string {
	t.Helper()
	const from = "../../deploy/payloads/gvisor"
	dir := t.TempDir()
	manifest := strings.Replace(mustRead(t, from+"/payload.json"), `"version": ""`, fmt.Sprintf(`"version": %q`, version), 1)
	writeFile(t, filepath.Join(dir, "payload.json"), strings.Replace(manifest, `["amd64", "arm64"]`, fmt.Sprintf("[%q]", runtime.GOARCH), 1), 0o644)
	for _, folder := range []string{"all", "configs"} {
		if err := os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(from, folder))); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"runsc", "containerd-shim-runsc-v1"} {
		writeFile(t, filepath.Join(dir, runtime.GOARCH, program), mustRead(t, filepath.Join(*peers, program)), 0o755)
	}
	return dir
}

func writeFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)); err != nil {
		t.Fatal(err)
	}
}

// release makes images of payloads as make images does, has the registry of the cluster
// serve them, and is what the cluster has to be told of them.
func release(t *testing.T, payloads ...string) (objects string) {
	t.Helper()
	out, built := t.TempDir(), t.TempDir()
	if err := os.Symlink(*fairlead, filepath.Join(built, runtime.GOARCH)); err != nil {
		t.Fatal(err)
	}
	args := []string{"-programs", built, "-arch", runtime.GOARCH, "-version", "e2e", "-output", out}
	for _, dir := range payloads {
		args = append(args, "-payload", dir)
	}
	if said, err := exec.CommandContext(t.Context(), filepath.Join(*programs, "images"), args...).CombinedOutput(); err != nil {
		t.Fatalf("make images: %v: %s", err, said)
	}
	found, err := filepath.Glob(filepath.Join(out, "*.yaml"))
	if err != nil || len(found) != len(payloads) {
		t.Fatalf("images of %v: %v %v", payloads, found, err)
	}
	for _, file := range found {
		var told v1alpha1.RuntimePayload
		text := mustRead(t, file)
		if err := yaml.Unmarshal([]byte(text), &told); err != nil {
			t.Fatal(err)
		}
		name, digest, _ := strings.Cut(told.Spec.Image, "@")
		if err := node.PushLayout("library/"+name+":"+told.Spec.Manifest.Version, filepath.Join(out, "layout"), digest); err != nil {
			t.Fatal(err)
		}
		objects += "---\n" + text
	}
	return objects
}
