package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"sigs.k8s.io/yaml"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
)

const recipe = `{
  "apiVersion": "payload.fairlead.run/v1alpha1", "kind": "RuntimePayload", "type": "stand-in", "version": "1.2+3", "os": "linux",
  "architectures": ["amd64", "arm64"],
  "handlers": [{"name": "stand-in", "containerd": {"runtimeType": "io.containerd.runc.v2", "runtimePath": "bin/shim"}}],
  "checks": [{"name": "version", "command": ["bin/shim", "-v"]}]
}`

// stage writes inputs in this order, so that folders list them in another one, and
// with times and modes that are none of the image's business.
func stage(t *testing.T, backwards bool) (o options) {
	t.Helper()
	dir := t.TempDir()
	files := []struct {
		path, text string
		mode       os.FileMode
	}{
		{"programs/amd64/fairlead", "program for amd64", 0o755},
		{"programs/arm64/fairlead", "program for arm64", 0o700},
		{"programs/amd64/fairlead-operator", "operator for amd64", 0o755},
		{"programs/arm64/fairlead-operator", "operator for arm64", 0o755},
		{"payload/payload.json", recipe, 0o644},
		{"payload/configs/shim.toml", "program = \"${PAYLOAD}/bin/shim\"\n", 0o600},
		{"payload/all/LICENSE", "license", 0o600},
		{"payload/amd64/bin/shim", "shim for amd64", 0o755},
		{"payload/arm64/bin/shim", "shim for arm64", 0o775},
		{"payload/amd64/share/a/kernel-6.1", strings.Repeat("kernel", 10_000), 0o644},
	}
	if backwards {
		slices.Reverse(files)
	}
	for i, f := range files {
		path := filepath.Join(dir, f.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(f.text), f.mode); err != nil {
			t.Fatal(err)
		}
		at := time.Unix(int64(i)*1e6, 0)
		if backwards {
			at = time.Unix(int64(i)*1e7, 0)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("kernel-6.1", filepath.Join(dir, "payload/amd64/share/a/kernel")); err != nil {
		t.Fatal(err)
	}
	return options{
		programs: filepath.Join(dir, "programs"), payloads: []string{filepath.Join(dir, "payload")},
		archs: []string{"amd64", "arm64"}, version: "v7", output: filepath.Join(dir, "output"),
	}
}

func runWith(t *testing.T, o options) {
	t.Helper()
	if err := run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// tree is every file below a folder, by path.
func tree(t *testing.T, folder string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		out[inside(folder, path)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The same content makes the same bytes, whatever else is different.
func TestReproducible(t *testing.T) {
	first, second := stage(t, false), stage(t, true)
	runWith(t, first)
	runWith(t, second)
	runWith(t, second) // and over what is there
	a, b := tree(t, first.output), tree(t, second.output)
	if !slices.Equal(slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b))) {
		t.Fatalf("%v\n%v", slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)))
	}
	for name := range a {
		if a[name] != b[name] {
			t.Errorf("%s differs", name)
		}
	}
	for _, want := range []string{"fairlead.tar", "fairlead-stand-in.tar", "digests", "layout/index.json", "layout/oci-layout"} {
		if a[want] == "" {
			t.Errorf("there is no %s", want)
		}
	}
	// And other content makes others: the comparison is no comparison of nothing.
	if err := os.WriteFile(filepath.Join(second.programs, "arm64/fairlead"), []byte("another"), 0o755); err != nil {
		t.Fatal(err)
	}
	runWith(t, second)
	if got := tree(t, second.output)["digests"]; got == a["digests"] {
		t.Errorf("another program has the same digests: %s", got)
	}
}

// content is the files of an image as a node sees them.
func content(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	flat := mutate.Extract(img)
	defer flat.Close()
	out := map[string]string{}
	for r := tar.NewReader(flat); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(epoch) || h.Uname != "" {
			t.Errorf("%s: %+v", h.Name, h)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		wants := int64(0o644)
		if strings.HasPrefix(h.Name, "fairlead") || strings.HasSuffix(h.Name, "shim") {
			wants = 0o755
		}
		if h.Mode != wants {
			t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
		out[h.Name] = string(body)
	}
}

// images are those in an index, by architecture.
func images(t *testing.T, index v1.ImageIndex) map[string]v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]v1.Image{}
	for _, d := range manifest.Manifests {
		one, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		out[d.Platform.Architecture] = one
	}
	return out
}

// What is pushed is what was written, and has what it is to have.
func TestImages(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	o := stage(t, false)
	o.registry = strings.TrimPrefix(server.URL, "http://") + "/project/"
	runWith(t, o)
	written, err := layout.ImageIndexFromPath(filepath.Join(o.output, layoutFolder))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(written); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(tree(t, o.output)["digests"]) {
		image, digest, _ := strings.Cut(strings.TrimSpace(line), " ")
		tag, err := name.NewTag(o.registry + image)
		if err != nil {
			t.Fatal(err)
		}
		pushed, err := remote.Index(tag)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := pushed.Digest(); err != nil || got.String() != digest {
			t.Errorf("%s is pushed as %s, %v, and written as %s", image, got, err, digest)
		}
		if err := validate.Index(pushed); err != nil {
			t.Errorf("%s: %v", image, err)
		}
		for arch, one := range images(t, pushed) {
			holds(t, image, arch, one)
		}
	}
}

func holds(t *testing.T, image, arch string, one v1.Image) {
	t.Helper()
	config, err := one.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	files := content(t, one)
	if config.Architecture != arch || !config.Created.Equal(epoch) || files["fairlead"] != "program for "+arch {
		t.Errorf("%s: %+v %v", image, config, files)
	}
	if image == "fairlead:v7" {
		if len(files) != 2 || files["fairlead-operator"] != "operator for "+arch || config.Config.User != nobody || !slices.Equal(config.Config.Entrypoint, []string{"/fairlead"}) {
			t.Errorf("%s: %+v %v", image, config.Config, files)
		}
		return
	}
	if image != "fairlead-stand-in:v7-1.2_3" {
		t.Errorf("what is %s?", image)
	}
	manifest, err := payload.DecodePayload([]byte(files[payload.ManifestName]))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{payload.ManifestName: true, "fairlead": true}
	for _, f := range manifest.Files {
		if f.Arch != "" && f.Arch != arch {
			continue
		}
		body, found := files[f.Source]
		sum := sha256.Sum256([]byte(body))
		if !found || int64(len(body)) != f.Size || hex.EncodeToString(sum[:]) != f.SHA256 {
			t.Errorf("%s for %s: %+v is %d bytes there", image, arch, f, len(body))
		}
		listed[f.Source] = true
	}
	for name := range files {
		if !listed[name] {
			t.Errorf("%s for %s has %s, which the manifest does not", image, arch, name)
		}
	}
	if arch == "amd64" && (!slices.ContainsFunc(manifest.Files, func(f payload.File) bool {
		return f.Path == "share/a/kernel" && f.Source == "amd64/share/a/kernel-6.1"
	}) || files["amd64/share/a/kernel"] != "") {
		t.Errorf("a link is not what it leads to: %+v", manifest.Files)
	}
}

// A payload is made for those of its architectures that are asked for, and the
// object that tells a cluster of it has the digest and the manifest.
func TestRuntimePayload(t *testing.T) {
	o := stage(t, false)
	o.archs = []string{"amd64"}
	server := httptest.NewServer(registry.New())
	defer server.Close()
	o.registry = strings.TrimPrefix(server.URL, "http://") + "/project"
	runWith(t, o)
	files := tree(t, o.output)
	var object v1alpha1.RuntimePayload
	if err := yaml.UnmarshalStrict([]byte(files["fairlead-stand-in.yaml"]), &object); err != nil {
		t.Fatal(err)
	}
	m := &object.Spec.Manifest
	if errs := m.Validate(nil); len(errs) > 0 || object.Name != m.Type || object.Kind != "RuntimePayload" || object.APIVersion != "fairlead.run/v1alpha1" {
		t.Errorf("%v %+v", errs, object)
	}
	if !slices.Equal(m.Architectures, []string{"amd64"}) || len(m.Configs) != 1 || m.Configs[0].Path != "shim.toml" || !strings.Contains(m.Configs[0].Content, "${PAYLOAD}") {
		t.Errorf("%+v", m)
	}
	at, err := name.NewDigest(object.Spec.Image)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(at)
	if err != nil {
		t.Fatal(err)
	}
	one := images(t, index)
	var inside payload.RuntimePayload
	if err := json.Unmarshal([]byte(content(t, one["amd64"])[payload.ManifestName]), &inside); err != nil || len(one) != 1 || !reflect.DeepEqual(&inside, m) {
		t.Errorf("%v: the image of %d has %+v, and the object %+v", err, len(one), inside, m)
	}
}

// Both images have the program in one layer, which registries and nodes keep once.
func TestLayersAreShared(t *testing.T) {
	o := stage(t, false)
	runWith(t, o)
	written, err := layout.ImageIndexFromPath(filepath.Join(o.output, layoutFolder))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := written.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 {
		t.Fatalf("%v %+v", err, manifest)
	}
	first := map[string]v1.Hash{}
	for _, d := range manifest.Manifests {
		index, err := written.ImageIndex(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		for arch, one := range images(t, index) {
			layers, err := one.Layers()
			if err != nil {
				t.Fatal(err)
			}
			digest, err := layers[0].Digest()
			if err != nil {
				t.Fatal(err)
			}
			if before, ok := first[arch]; ok && before != digest {
				t.Errorf("for %s the program is %s and %s", arch, before, digest)
			}
			first[arch] = digest
		}
	}
}

// An archive is a layout that names its image.
func TestArchive(t *testing.T) {
	o := stage(t, false)
	runWith(t, o)
	text := tree(t, o.output)["fairlead.tar"]
	var names []string
	for r := tar.NewReader(bytes.NewReader([]byte(text))); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Name != "index.json" {
			continue
		}
		var index v1.IndexManifest
		if err := json.NewDecoder(r).Decode(&index); err != nil || len(index.Manifests) != 1 || index.Manifests[0].Annotations["io.containerd.image.name"] != "fairlead:v7" {
			t.Errorf("%v %+v", err, index)
		}
	}
	if !slices.Contains(names, "index.json") || !slices.Contains(names, "oci-layout") || !slices.Contains(names, "blobs/sha256/") {
		t.Errorf("the archive has %v", names)
	}
}

func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name, says string
		spoil      func(t *testing.T, o *options)
	}{
		{"no version", "-version", func(_ *testing.T, o *options) { o.version = "" }},
		{"a tag that is none", "v7+x", func(_ *testing.T, o *options) { o.version, o.registry = "v7+x", "127.0.0.1:1" }},
		{"no program", "mips64le", func(_ *testing.T, o *options) { o.archs, o.payloads = []string{"mips64le"}, nil }},
		{"a payload for other architectures", "images are wanted for [riscv64]", func(t *testing.T, o *options) {
			o.archs = []string{"riscv64"}
			if err := os.Rename(filepath.Join(o.programs, "arm64"), filepath.Join(o.programs, "riscv64")); err != nil {
				t.Fatal(err)
			}
		}},
		{"a program that is missing", "arm64", func(t *testing.T, o *options) { remove(t, o.programs, "arm64") }},
		{"configs by hand", "take them out", func(t *testing.T, o *options) { rewrite(t, o, `"handlers"`, `"configs": [{}], "handlers"`) }},
		{"no files of an architecture", "arm64", func(t *testing.T, o *options) { remove(t, o.payloads[0], "arm64") }},
		{"no manifest", payload.ManifestName, func(t *testing.T, o *options) { remove(t, o.payloads[0], payload.ManifestName) }},
		{"an unknown field", "handler", func(t *testing.T, o *options) { rewrite(t, o, `"handlers"`, `"handler"`) }},
		{"files by hand", "take them out", func(t *testing.T, o *options) { rewrite(t, o, `"handlers"`, `"files": [{}], "handlers"`) }},
		{"a handler whose program is not there", "runtimePath", func(t *testing.T, o *options) { rewrite(t, o, `"bin/shim"}`, `"bin/shin"}`) }},
		{"a link that leads out", "out of the payload", func(t *testing.T, o *options) {
			if err := os.Symlink("/etc/hostname", filepath.Join(o.payloads[0], "all/name")); err != nil {
				t.Fatal(err)
			}
		}},
		{"a link to a folder", "no regular file", func(t *testing.T, o *options) {
			if err := os.Symlink("share/a", filepath.Join(o.payloads[0], "amd64/b")); err != nil {
				t.Fatal(err)
			}
		}},
		{"a file for all that one has, too", "Duplicate", func(t *testing.T, o *options) {
			if err := os.MkdirAll(filepath.Join(o.payloads[0], "all/bin"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(o.payloads[0], "all/bin/shim"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := stage(t, false)
			tt.spoil(t, &o)
			err := run(context.Background(), o)
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want something about %s", err, tt.says)
			}
			left, err := filepath.Glob(filepath.Join(o.output, ".*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left are %v, %v", left, err)
			}
		})
	}
}

// What deploy/payloads says fits the files that its page names.
func TestRecipes(t *testing.T) {
	for kind, files := range map[string][]string{
		"gvisor":          {"all/LICENSE", "amd64/runsc", "amd64/containerd-shim-runsc-v1", "arm64/runsc", "arm64/containerd-shim-runsc-v1"},
		"kata-containers": {"amd64/bin/containerd-shim-kata-v2", "amd64/bin/qemu-system-x86_64", "configs/configuration-qemu.toml"},
	} {
		recipe, err := filepath.Abs("../../deploy/payloads/" + kind)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(recipe)); err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		manifest := filepath.Join(dir, payload.ManifestName)
		if _, err := readPayload(dir, []string{"amd64", "arm64"}); err == nil || !strings.Contains(err.Error(), "version") {
			t.Errorf("%s has a version already: %v", kind, err)
		}
		text, err := os.ReadFile(manifest)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.Replace(text, []byte(`"version": ""`), []byte(`"version": "1"`), 1)
		if err := os.WriteFile(manifest, text, 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := readPayload(dir, []string{"amd64", "arm64"}); err != nil || got.manifest.Type != kind || len(got.manifest.Configs) != 1 {
			t.Errorf("%s: %v %+v", kind, err, got)
		}
	}
}

func remove(t *testing.T, folder, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(folder, name)); err != nil {
		t.Fatal(err)
	}
}

func rewrite(t *testing.T, o *options, from, to string) {
	t.Helper()
	text := strings.Replace(recipe, from, to, 1)
	if text == recipe {
		t.Fatalf("%s is not there", from)
	}
	if err := os.WriteFile(filepath.Join(o.payloads[0], payload.ManifestName), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
