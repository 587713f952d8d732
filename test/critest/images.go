package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/test/images"
)

// staging is where the suite's own images are; the others are upstream's for all tests.
const staging = "k8s-staging-cri-tools/"

// pause is what containerd starts in each pod. No spec pulls or removes it.
const pause = "registry.k8s.io/critest/pause:1"

// users and groups are as upstream's busybox has them, as far as specs know them.
const users = `root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
www-data:x:33:33:www-data:/var/www:/bin/false
nobody:x:65534:65534:nobody:/home:/bin/false
`

const groups = `root:x:0:
daemon:x:1:
www-data:x:33:
users:x:100:
nogroup:x:65534:
`

// member is who has a group from the image itself.
const (
	member      = "default-user:x:1000:1000::/home/default-user:/bin/sh\n"
	memberGroup = "default-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n"
)

// push fills the registry with stand-ins for the images that the specs pull,
// under their names. There is none for test-image-digest: only upstream's own
// image has the digest that its spec asks for.
func push(ctx context.Context, r *images.Registry, busybox, standin string) error {
	base, err := busyboxLayers(ctx, busybox)
	if err != nil {
		return fmt.Errorf("make the image of busybox: %w", err)
	}
	program, err := os.ReadFile(standin)
	if err != nil {
		return err
	}
	tools, err := images.Layer{Files: map[string]images.File{
		"usr/local/bin/nginx": {Body: program, Mode: 0o755}, "usr/local/bin/httpd": {Symlink: "nginx"},
		"usr/local/bin/ipcs": {Symlink: "nginx"}, "usr/local/bin/pgrep": {Symlink: "nginx"},
	}}.Packed()
	if err != nil {
		return fmt.Errorf("make the layer of tools: %w", err)
	}
	for name, spec := range standIns(append(base, tools), program) {
		img, err := images.Build(spec)
		if err != nil {
			return fmt.Errorf("build the image %s: %w", name, err)
		}
		r.Push(name, img)
		if name == staging+"test-image-tags:1" {
			r.Push(staging+"test-image-tags:2", img)
			r.Push(staging+"test-image-tags:3", img)
		}
	}
	return nil
}

// standIns are the images by their names, without the registry.
func standIns(base []images.Layer, program []byte) map[string]images.Spec {
	all := map[string]images.Spec{}
	// The variable makes images of one content different ones.
	add := func(name string, change func(*images.Spec)) {
		s := images.Spec{Layers: slices.Clone(base), Config: ocispec.ImageConfig{
			Cmd: []string{"sh"}, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin:/sbin", "STANDIN=" + name},
		}}
		if change != nil {
			change(&s)
		}
		all[name] = s
	}
	entry := func(argv ...string) func(*images.Spec) {
		return func(s *images.Spec) { s.Config.Entrypoint, s.Config.Cmd = argv, nil }
	}
	user := func(name string) func(*images.Spec) {
		return func(s *images.Spec) { s.Config.User = name }
	}
	add("e2e-test-images/busybox:1.29-2", nil)
	add("e2e-test-images/nginx:1.14-2", entry("/usr/local/bin/nginx"))
	add("e2e-test-images/httpd:2.4.39-4", entry("/usr/local/bin/httpd"))
	add(staging+"hostnet-nginx-"+arch()+":latest", entry("/usr/local/bin/nginx", "12003"))
	add("e2e-test-images/nonewprivs:1.3", func(s *images.Spec) {
		s.Layers = append(s.Layers, images.Layer{Files: map[string]images.File{"usr/local/bin/nnp": {Body: program, Mode: 0o4755}}})
		s.Config.Cmd = []string{"nnp"}
	})
	for _, name := range []string{
		"test-image-1:latest", "test-image-2:latest", "test-image-3:latest", "test-image-tags:1",
		"test-image-latest:latest", "test-image-tag:test", "test-image-tag:all",
	} {
		add(staging+name, nil)
	}
	for name, who := range map[string]string{
		"uid": "1002", "username": "www-data", "uid-group": "1003:users", "username-group": "www-data:100",
	} {
		add(staging+"test-image-user-"+name+":latest", user(who))
	}
	add(staging+"test-image-predefined-group:latest", func(s *images.Spec) {
		s.Layers = append(s.Layers, images.Layer{Files: map[string]images.File{
			"etc/passwd": {Body: []byte(users + member)}, "etc/group": {Body: []byte(groups + memberGroup)},
		}})
		s.Config.User = "1000"
	})
	for _, name := range []string{"pause:3.9", "critest/pause:1"} {
		add(name, func(s *images.Spec) {
			s.Layers = []images.Layer{{Files: map[string]images.File{"pause": {Body: program, Mode: 0o755}}}}
			s.Config.Entrypoint, s.Config.Cmd = []string{"/pause"}, nil
		})
	}
	return all
}

// busyboxLayers are a busybox with the libraries that it is linked to, a link
// for each of its tools, and the folders and users that specs expect. It is not
// the static one, whose shell runs its own tools whatever becomes of their files.
func busyboxLayers(ctx context.Context, path string) ([]images.Layer, error) {
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	list, err := exec.CommandContext(ctx, path, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for its tools: %w", path, err)
	}
	files := map[string]images.File{
		"bin/busybox": {Body: program, Mode: 0o755},
		"etc/passwd":  {Body: []byte(users)}, "etc/group": {Body: []byte(groups)},
		"root": {Dir: true, Mode: 0o700}, "tmp": {Dir: true, Mode: 0o1777}, "sbin": {Symlink: "bin"},
	}
	for _, dir := range []string{"dev", "proc", "sys", "home/default-user", "run", "usr/bin", "var/lib", "var/log", "var/run", "mnt"} {
		files[dir] = images.File{Dir: true}
	}
	for tool := range strings.FieldsSeq(string(list)) {
		name := "bin/" + tool
		switch {
		case tool == "nginx" || tool == "httpd" || tool == "busybox": // ours are elsewhere
		case name < "bin/busybox": // a hard link comes after its target in the archive
			files[name] = images.File{Symlink: "busybox"}
		default:
			files[name] = images.File{Hardlink: "bin/busybox"}
		}
	}
	libraries, err := exec.CommandContext(ctx, "ldd", path).Output()
	if err != nil {
		return nil, fmt.Errorf("ask for the libraries of %s: %w", path, err)
	}
	for _, lib := range linked(string(libraries)) {
		body, err := os.ReadFile(lib)
		if err != nil {
			return nil, err
		}
		files[strings.TrimPrefix(lib, "/")] = images.File{Body: body, Mode: 0o755}
	}
	l, err := images.Layer{Files: files}.Packed()
	return []images.Layer{l}, err
}

// linked are the files in what ldd says: "name => /path (0x7f...)", and the
// loader as "/path (0x7f...)".
func linked(ldd string) []string {
	var out []string
	for word := range strings.FieldsSeq(ldd) {
		if strings.HasPrefix(word, "/") {
			out = append(out, word)
		}
	}
	return out
}
