package run

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/test/images"
)

// registry serves private/busybox:1 to whoever has the password of user captain.
func registry(t *testing.T) *images.Registry {
	t.Helper()
	layer, err := images.Busybox()
	if err != nil {
		t.Fatal(err)
	}
	img, err := images.Build(images.Spec{Layers: []images.Layer{layer}, Config: ocispec.ImageConfig{Env: []string{"PATH=/bin"}}})
	if err != nil {
		t.Fatal(err)
	}
	r := images.NewRegistry()
	t.Cleanup(r.Close)
	r.Push("private/busybox:1", img)
	r.RequireBasic("captain", "secret")
	return r
}

// TestUpCredentialProvider pulls with what a plugin knows, which is asked once for two
// pods, and refuses the image to nobody who has the plugin.
func TestUpCredentialProvider(t *testing.T) {
	r, m := registry(t), newMachine(t)
	plugin := `#!/bin/sh
echo asked >> ` + m.dir + `/asked
cat > /dev/null
echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Registry","cacheDuration":"1h",` +
		`"auth":{"` + r.Host() + `":{"username":"captain","password":"secret"}}}'
`
	config := "kind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/v1\nproviders:\n" +
		"- {name: plugin, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: ['" + r.Host() + "'], defaultCacheDuration: 1m}\n"
	if err := os.Mkdir(filepath.Join(m.dir, "plugins"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.dir, "plugins/plugin"), []byte(plugin), 0o700); err != nil {
		t.Fatal(err)
	}
	j := m.up("--image-credential-provider-config", m.write("providers.yaml", config), "--image-credential-provider-bin-dir", m.dir+"/plugins", "--serialize-image-pulls",
		"--image-pull-credentials-verification-policy", "AlwaysVerify")
	var text strings.Builder
	for _, name := range []string{"a", "b"} {
		fmt.Fprintf(&text, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: '%s/private/busybox:1', command: [sleep, '1000']}]}\n---\n", name, r.Host())
	}
	m.want(0, "apply", "-f", m.write("pods.yaml", text.String()))
	m.await("both pods", func(pods map[string]corev1.Pod) bool { return ready(pods["a"]) && ready(pods["b"]) })
	if asked := readFile(t, m.dir+"/asked"); asked != "asked\n" {
		t.Errorf("the plugin was asked %d times", strings.Count(asked, "\n"))
	}
	m.want(0, "delete", "-f", m.dir+"/pods.yaml")
	m.await("no pods", func(pods map[string]corev1.Pod) bool { return len(pods) == 0 })
	j.signal(syscall.SIGINT)
	j.ends(0)
}

// TestUpGarbage has a disk that counts as full: the image that nobody uses goes, and
// the one of a pod, of whatever kind, stays.
func TestUpGarbage(t *testing.T) {
	m := newMachine(t)
	layer, err := images.Busybox()
	if err != nil {
		t.Fatal(err)
	}
	img, err := images.Build(images.Spec{Layers: []images.Layer{layer}, Config: ocispec.ImageConfig{Env: []string{"PATH=/bin"}, Labels: map[string]string{"of": "nobody"}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(m.dir, "idle.tar")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := images.WriteOCI(f, images.Named{Image: img, Names: []string{"localhost/idle:1"}}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	m.want(0, "run", "-d", "-f", m.write("run.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: detached}\nspec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: "+image+", command: [sleep, '1000']}]}\n"))
	m.want(0, "image", "import", path)
	j := m.up("--image-gc-high-threshold", "1", "--image-gc-low-threshold", "0", "--minimum-image-ttl-duration", "0s")
	for end := time.Now().Add(patience); strings.Contains(m.want(0, "image", "ls").out, "localhost/idle"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the image that nobody uses is there: %s\n%s", m.want(0, "image", "ls").out, j.err)
		}
	}
	if out := m.want(0, "image", "ls").out; !strings.Contains(out, "busybox") {
		t.Errorf("the image of a pod was removed: %s\n%s", out, j.err)
	}
	j.signal(syscall.SIGINT)
	j.ends(0)
	m.want(0, "rm", "detached")
}
