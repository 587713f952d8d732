package run

import (
	"strings"
	"sync"
	"syscall"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/test/images"
)

// TestPull pulls from a registry that wants a password, which is in a Secret
// of the manifest.
func TestPull(t *testing.T) {
	registry := images.NewRegistry()
	closeRegistry := sync.OnceFunc(registry.Close)
	defer closeRegistry()
	layer, err := images.Busybox()
	if err != nil {
		t.Fatal(err)
	}
	img, err := images.Build(images.Spec{Layers: []images.Layer{layer}, Config: ocispec.ImageConfig{Env: []string{"PATH=/bin"}}})
	if err != nil {
		t.Fatal(err)
	}
	registry.Push("private/busybox:1", img)
	registry.RequireBasic("captain", "secret")
	m := newMachine(t)
	name := registry.Host() + "/private/busybox:1"
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  restartPolicy: Never\n" +
		"  containers: [{name: c, image: '" + name + "', command: [echo, hello]}]\n"
	r := m.wantWith(pod, 1, "run", "-f", "-")
	if !strings.Contains(r.err, "Pod default/a: container c: pull image "+name) || !strings.Contains(r.err, "pulling "+name) {
		t.Errorf("a pull without the password:\n%s", r.err)
	}
	secret := "  imagePullSecrets: [{name: s}]\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\ntype: kubernetes.io/dockerconfigjson\nstringData:\n" +
		"  .dockerconfigjson: '{\"auths\":{\"" + registry.Host() + "\":{\"auth\":\"Y2FwdGFpbjpzZWNyZXQ=\"}}}'\n"
	r = m.wantWith(pod+secret, 0, "run", "-f", "-")
	if r.out != "a/c | hello\n" || !strings.Contains(r.err, "pulled "+name) {
		t.Errorf("a pull with the password: %+v", r)
	}
	closeRegistry()
	if r := m.wantWith(pod+secret, 0, "run", "-f", "-"); strings.Contains(r.err, "pull") {
		t.Errorf("an image that is here was pulled again:\n%s", r.err)
	}
	always := strings.Replace(pod, "command:", "imagePullPolicy: Always, command:", 1)
	if r := m.wantWith(always, 1, "run", "-f", "-"); !strings.Contains(r.err, "imagePullPolicy: IfNotPresent would use it") {
		t.Errorf("a registry that is away: %s", r.err)
	}
}

// TestPullInTheTrace pulls an image for two pods, which is where the time of both
// starts went.
func TestPullInTheTrace(t *testing.T) {
	registry := images.NewRegistry()
	defer registry.Close()
	layer, err := images.Busybox()
	if err != nil {
		t.Fatal(err)
	}
	img, err := images.Build(images.Spec{Layers: []images.Layer{layer}, Config: ocispec.ImageConfig{Env: []string{"PATH=/bin"}}})
	if err != nil {
		t.Fatal(err)
	}
	registry.Push("busybox:1", img)
	m := newMachine(t)
	name, pods := registry.Host()+"/busybox:1", ""
	for _, pod := range []string{"a", "b"} {
		pods += "apiVersion: v1\nkind: Pod\nmetadata: {name: " + pod + "}\nspec:\n  terminationGracePeriodSeconds: 1\n" +
			"  containers: [{name: c, image: '" + name + "', command: [sh, -c, 'echo up; sleep 1000']}]\n---\n"
	}
	j := m.background("run", "-f", m.write("two.yaml", pods))
	j.await(j.out, "a/c")
	j.await(j.out, "b/c")
	for _, pod := range []string{"a", "b"} {
		r := m.want(0, "trace", pod)
		if n := strings.Count(r.out, "pull image"); n != 1 || !strings.Contains(r.out, name) || !strings.Contains(r.out, "fetch layers") {
			t.Errorf("the trace of %s has %d pulls:\n%s", pod, n, r.out)
		}
	}
	j.signal(syscall.SIGINT)
	j.ends(130)
}

// TestTakeOver ends the command that holds the daemon while another uses it.
func TestTakeOver(t *testing.T) {
	m := newMachine(t)
	first := m.background("run", "-f", m.dir+"/classes.yaml", "-f", m.write("a.yaml", serverOf("on-crun", "0")))
	first.await(first.err, "web-1")
	second := m.background("run", "-f", m.dir+"/classes.yaml", "-f", m.write("b.yaml", strings.ReplaceAll(serverOf("on-runc", "0"), "name: web", "name: other")))
	second.await(second.err, "other-1")
	first.signal(syscall.SIGINT)
	first.ends(130)
	if r := m.want(0, "ps"); strings.Contains(r.out, "web-") || strings.Count(r.out, "Running") != 2 {
		t.Errorf("the second run's pods after the first has ended:\n%s", r.out)
	}
	second.signal(syscall.SIGINT)
	second.ends(130)
}

// TestPullForAnotherPlatform pulls the variant that is asked for.
func TestPullForAnotherPlatform(t *testing.T) {
	registry := images.NewRegistry()
	defer registry.Close()
	variants := map[string]*images.Image{}
	for _, arch := range []string{"amd64", "arm64"} {
		img, err := images.Build(images.Spec{Arch: arch, Config: ocispec.ImageConfig{Env: []string{"ARCH=" + arch}}})
		if err != nil {
			t.Fatal(err)
		}
		variants[arch] = img
	}
	index, err := images.Index(variants["amd64"], variants["arm64"])
	if err != nil {
		t.Fatal(err)
	}
	registry.Push("variants:1", index)
	m, name := newMachine(t), registry.Host()+"/variants:1"
	for _, arch := range []string{"amd64", "arm64"} {
		if r := m.wantWith("", 0, "image", "pull", "--platform", "linux/"+arch, name); strings.TrimSpace(r.out) != variants[arch].ID {
			t.Errorf("for %s: got %s, want %s", arch, r.out, variants[arch].ID)
		}
	}
	for platform, words := range map[string]string{"linux/s390x": "linux/s390x", "nonsense/": "platform"} {
		if r := m.wantWith("", 1, "image", "pull", "--platform", platform, name); !strings.Contains(r.err, words) {
			t.Errorf("for %s: %s", platform, r.err)
		}
	}
}
