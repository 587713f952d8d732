package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/test/images"
)

// images fills the registry with stand-ins for the images that upstream's specs
// say they pull, under their names. One that has no stand-in is not there.
func (c *Cluster) images(ctx context.Context) error {
	// Where a guest reaches it, too.
	registry, err := images.NewRegistryAt(HostAddress + ":0")
	if err != nil {
		return fmt.Errorf("start a registry: %w", err)
	}
	c.registry = registry
	if c.cfg.Specs == "" {
		return nil
	}
	out, err := exec.CommandContext(ctx, c.program(c.cfg.Specs), "--list-images").Output()
	if err != nil {
		return fmt.Errorf("ask the specs for their images: %w", err)
	}
	all, err := c.standIns()
	if err != nil {
		return err
	}
	built := map[string]*images.Image{}
	for _, name := range append(strings.Fields(string(out)), pauseImage) {
		_, repo, _ := strings.Cut(name, "/")
		base, _, _ := strings.Cut(path.Base(repo), ":")
		spec, ok := all[base]
		if !ok {
			continue
		}
		if built[base] == nil {
			if built[base], err = images.Build(spec); err != nil {
				return fmt.Errorf("build the image %s: %w", base, err)
			}
		}
		c.registry.Push(repo, built[base])
	}
	return nil
}

// Push puts an image into the registry under a name without a registry's.
func (c *Cluster) Push(name string, spec images.Spec) error {
	image, err := images.Build(spec)
	if err != nil {
		return fmt.Errorf("build the image %s: %w", name, err)
	}
	c.registry.Push(name, image)
	return nil
}

// PushLayout puts an image of a folder in the OCI's layout into the registry, under a name
// without a registry's.
func (c *Cluster) PushLayout(name, folder, of string) error {
	desc := ocispec.Descriptor{Digest: digest.Digest(of)}
	image := &images.Image{Blobs: map[digest.Digest][]byte{}}
	found, err := filepath.Glob(filepath.Join(folder, "blobs/sha256/*"))
	if err != nil {
		return err
	}
	for _, file := range found {
		if image.Blobs[digest.NewDigestFromEncoded(digest.SHA256, filepath.Base(file))], err = os.ReadFile(file); err != nil {
			return err
		}
	}
	if err := json.Unmarshal(image.Blobs[desc.Digest], &desc); err != nil {
		return fmt.Errorf("read %s of the layout %s: %w", of, folder, err)
	}
	desc.Size = int64(len(image.Blobs[desc.Digest]))
	image.Desc = desc
	c.registry.Push(name, image)
	return nil
}

// Image is the full name of an image of the specs, by the last part of it.
func (c *Cluster) Image(ctx context.Context, base string) (string, error) {
	out, err := exec.CommandContext(ctx, c.program(c.cfg.Specs), "--list-images").Output()
	if err != nil {
		return "", fmt.Errorf("ask the specs for their images: %w", err)
	}
	found := ""
	for name := range strings.FieldsSeq(string(out)) {
		if got, _, _ := strings.Cut(path.Base(name), ":"); got == base {
			found = name // the newest is the last one
		}
	}
	if found == "" {
		return "", fmt.Errorf("the specs have no image %s", base)
	}
	return found, nil
}

// web is the stand-in for nginx and httpd, which takes the port as its argument.
const web = `#!/bin/sh
mkdir -p /var/run; echo $$ >/var/run/nginx.pid
exec httpd -f -v -p "${1:-80}" -h /www
`

// bash is the shell of most images. That of busybox drops variables whose names are
// not those of shell variables, and takes its own programs before those on PATH.
const bash = "/bin/bash-static"

// users are as upstream's agnhost has them, and its busybox.
const users = `root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
user-defined-in-image:x:1000:1000::/home:/bin/sh
nobody:x:65534:65534:nobody:/:/bin/false
`

const groups = `root:x:0:
daemon:x:1:
user-defined-in-image:x:1000:
group-defined-in-image:x:50000:user-defined-in-image
nogroup:x:65534:
`

// standIns are the images by the last part of their names.
func (c *Cluster) standIns() (map[string]images.Spec, error) {
	body := map[string][]byte{}
	for _, file := range []string{c.program("agnhost"), c.program("standin"), c.ca.file("localhost.crt"), c.ca.file("localhost.key"), bash} {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		body[filepath.Base(file)] = data
	}
	standin := body["standin"]
	busybox, err := images.Busybox()
	if err != nil {
		return nil, err
	}
	tools, err := images.Applets(busybox)
	if err != nil {
		return nil, err
	}
	maps.Copy(tools.Files, map[string]images.File{
		"usr/local/bin/curl": {Body: standin, Mode: 0o755}, "sbin": {Symlink: "bin"},
		"usr/local/bin/ipcmk": {Symlink: "curl"}, "usr/local/bin/nc": {Symlink: "curl"},
		"bin/bash": {Body: body["bash-static"], Mode: 0o755}, "bin/sh": {Symlink: "bash"},
		"etc/passwd": {Body: []byte(users)}, "etc/group": {Body: []byte(groups)},
	})
	common := []images.Layer{busybox, tools}
	for i := range common {
		if common[i], err = common[i].Packed(); err != nil {
			return nil, err
		}
	}
	with := func(files map[string]images.File, change func(*ocispec.ImageConfig)) images.Spec {
		s := images.Spec{Layers: common, Config: ocispec.ImageConfig{
			Cmd: []string{"sh"}, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
		}}
		if files != nil {
			s.Layers = append(slices.Clone(common), images.Layer{Files: files})
		}
		change(&s.Config)
		return s
	}
	pause := images.Spec{
		Layers: []images.Layer{{Files: map[string]images.File{"pause": {Body: standin, Mode: 0o755}}}},
		Config: ocispec.ImageConfig{Entrypoint: []string{"/pause"}},
	}
	test, err := served("var/registry/pause", pause, "testing")
	if err != nil {
		return nil, err
	}
	maps.Copy(test, map[string]images.File{
		"agnhost": {Body: body["agnhost"], Mode: 0o755}, "agnhost-2": {Symlink: "agnhost"}, "uploads": {Dir: true},
		"localhost.crt": {Body: body["localhost.crt"]}, "localhost.key": {Body: body["localhost.key"]},
	})
	base := with(nil, func(*ocispec.ImageConfig) {})
	server := with(map[string]images.File{
		"srv/web.sh": {Body: []byte(web), Mode: 0o755}, "www/index.html": {Body: []byte("<html>hello</html>\n")},
	}, func(c *ocispec.ImageConfig) { c.Entrypoint, c.Cmd = []string{"/srv/web.sh"}, nil })
	return map[string]images.Spec{
		"busybox": with(map[string]images.File{"bin/sh": {Symlink: "/usr/local/bin/curl"}}, func(*ocispec.ImageConfig) {}),
		"perl":    base, "ipc-utils": base, "glibc-dns-testing": base, "nginx": server, "httpd": server,
		"agnhost": with(test, func(c *ocispec.ImageConfig) { c.Entrypoint, c.Cmd = []string{"/agnhost"}, []string{"pause"} }),
		"nonroot": with(nil, func(c *ocispec.ImageConfig) { c.User = "1234" }),
		"nonewprivs": with(map[string]images.File{"usr/local/bin/nnp": {Body: standin, Mode: 0o4755}},
			func(c *ocispec.ImageConfig) { c.Cmd = []string{"nnp"} }),
		"pause": pause,
	}, nil
}

// served is the folder from which the registry of agnhost serves an image: the
// file of a tag says which manifest it is.
func served(dir string, spec images.Spec, tag string) (map[string]images.File, error) {
	image, err := images.Build(spec)
	if err != nil {
		return nil, err
	}
	files := map[string]images.File{dir + "/manifests/" + tag: {Body: []byte(image.Desc.Digest)}}
	for name, blob := range image.Blobs {
		folder := "/blobs/"
		if name == image.Desc.Digest {
			folder = "/manifests/"
		}
		hash := name.Encoded()
		files[path.Join(dir, folder, name.Algorithm().String(), hash[:2], hash, "data")] = images.File{Body: blob}
	}
	return files, nil
}
