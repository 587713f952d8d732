package cri

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/images"
	"fairlead.run/test/node"
)

func marked(t *testing.T, arch, text string) *images.Image {
	t.Helper()
	base, err := images.Busybox()
	if err != nil {
		t.Fatal(err)
	}
	img, err := images.Build(images.Spec{
		Arch: arch, Layers: []images.Layer{base, {Files: map[string]images.File{"mark": {Body: []byte(text)}}}},
		Config: ocispec.ImageConfig{Env: []string{"PATH=/bin"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestHostsTOMLNamesAMirror(t *testing.T) {
	certs := t.TempDir()
	dir := filepath.Join(certs, "mirrored.example")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	hosts := fmt.Sprintf("server = \"https://mirrored.example\"\n[host.\"http://%s\"]\ncapabilities = [\"pull\", \"resolve\"]\n", node.Registry.Host())
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(hosts), 0o644); err != nil {
		t.Fatal(err)
	}
	node.Registry.Push("team/mirrored:1", marked(t, "", "from the mirror"))
	n := node.Start(t, fmt.Sprintf("[images]\ncerts_dirs = [%q]\n", certs))
	n.Pull("mirrored.example/team/mirrored:1")
	for _, h := range node.Handlers {
		must(t, n.Inside(h, "cat /mark", func(c *containerConfig) { c.Image.Image = "mirrored.example/team/mirrored:1" }), "from the mirror")
	}
}

func TestIndexGivesTheNodesPlatform(t *testing.T) {
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	both, err := images.Index(marked(t, other, "other"), marked(t, "", "own"))
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := images.Index(marked(t, other, "other"))
	if err != nil {
		t.Fatal(err)
	}
	ref, none := node.Registry.Push("team/both:1", both), node.Registry.Push("team/foreign:1", foreign)
	n := node.Start(t, "")
	n.Pull(ref)
	for _, h := range node.Handlers {
		must(t, n.Inside(h, "cat /mark", func(c *containerConfig) { c.Image.Image = ref }), "own")
	}
	if _, err := n.TryPull(none); err == nil || !strings.Contains(err.Error(), runtime.GOARCH) {
		t.Errorf("an index without this platform: %v", err)
	}
}

func TestSchemaOneIsRefused(t *testing.T) {
	body, err := json.Marshal(map[string]any{"schemaVersion": 1, "name": "team/old", "tag": "1", "architecture": "amd64"})
	if err != nil {
		t.Fatal(err)
	}
	n := node.Start(t, "")
	for i, mediaType := range []string{
		"application/vnd.docker.distribution.manifest.v1+json",
		"application/vnd.docker.distribution.manifest.v1+prettyjws",
	} {
		ref := node.Registry.PushManifest(fmt.Sprintf("team/old%d:1", i), mediaType, body)
		if _, err := n.TryPull(ref); err == nil || !strings.Contains(err.Error(), "schema 1") {
			t.Errorf("%s: %v", mediaType, err)
		}
	}
}

// A registry that sends other bytes than it promised is not believed, and the
// same pull succeeds once it is sound again.
func TestCorruptLayer(t *testing.T) {
	own := images.NewRegistry()
	defer own.Close()
	img := marked(t, "", "sound")
	ref := own.Push("team/app:1", img)
	bad := img.Layers()[1].Digest
	own.Inject(images.Fault{Path: bad.String(), Corrupt: true})
	n := node.Start(t, "")
	if _, err := n.TryPull(ref); err == nil || !strings.Contains(err.Error(), bad.Encoded()[:12]) {
		t.Errorf("the error names the layer: %v", err)
	}
	if list, err := n.Images.ListImages(n.Ctx(), &runtimeapi.ListImagesRequest{}); err != nil || len(list.Images) != 0 {
		t.Errorf("%+v %v", list, err)
	}
	own.Heal()
	n.Pull(ref)
	must(t, n.Inside("", "cat /mark", func(c *containerConfig) { c.Image.Image = ref }), "sound")
}
