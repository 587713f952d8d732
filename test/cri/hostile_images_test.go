package cri

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/images"
	"fairlead.run/test/node"
)

// hostileImage is one whose author means harm. OUTSIDE in what links lead to,
// and in scripts, is a folder of the host.
type hostileImage struct {
	files   map[string]images.File
	config  ocispec.ImageConfig
	change  func(*runtimeapi.ContainerConfig)
	script  string // says "ran" and no more, if all is well; default: just that
	instead string // what it may say in place of "ran"
	refuse  string // part of the refusal, where it must be refused
}

func link(to string) images.File { return images.File{Symlink: to} }

// numbered are n texts, each with its number.
func numbered(n int, format string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(format, i)
	}
	return out
}

func hostileImages() map[string]hostileImage {
	web := ocispec.ImageConfig{User: "web"}
	volumes := map[string]struct{}{}
	for _, v := range numbered(1500, "/volume%d") {
		volumes[v] = struct{}{}
	}
	return map[string]hostileImage{
		"proc is a link":               {files: map[string]images.File{"proc": link("OUTSIDE/folder")}, refuse: "no folder at /proc"},
		"proc is a file":               {files: map[string]images.File{"proc": {}}, refuse: "no folder at /proc"},
		"dev is a link":                {files: map[string]images.File{"dev": link("OUTSIDE/folder")}, refuse: "no folder at /dev"},
		"dev is a link to the root":    {files: map[string]images.File{"dev": link("/")}, refuse: "no folder at /dev"},
		"sys is a link":                {files: map[string]images.File{"sys": link("OUTSIDE/folder")}, refuse: "no folder at /sys"},
		"shm is a link":                {files: map[string]images.File{"dev/shm": link("OUTSIDE/folder")}},
		"etc is a link":                {files: map[string]images.File{"etc": link("OUTSIDE")}, config: web, refuse: "/etc/passwd"},
		"passwd is a link":             {files: map[string]images.File{"etc/passwd": link("OUTSIDE/passwd")}, config: web, refuse: "/etc/passwd"},
		"passwd is a link with dots":   {files: map[string]images.File{"etc/passwd": link("../../../../../../../..OUTSIDE/passwd")}, config: web, refuse: "/etc/passwd"},
		"passwd is a link to proc":     {files: map[string]images.File{"etc/passwd": link("/proc/self/root/OUTSIDE/passwd")}, config: web, refuse: "/etc/passwd"},
		"passwd is a link to itself":   {files: map[string]images.File{"etc/passwd": link("passwd")}, config: web, refuse: "/etc/passwd"},
		"passwd is a device":           {files: map[string]images.File{"etc/passwd": {Device: "c 1:5"}}, config: web, refuse: "/etc/passwd"},
		"passwd is a pipe":             {files: map[string]images.File{"etc/passwd": {Device: "p"}}, config: web, refuse: "/etc/passwd"},
		"group is a pipe":              {files: map[string]images.File{"etc/passwd": {Body: []byte("web:x:5:6::/:\n")}, "etc/group": {Device: "p"}}, config: web, refuse: "/etc/group"},
		"files of the pod are links":   {files: map[string]images.File{"etc/hosts": link("OUTSIDE/victim"), "etc/hostname": link("OUTSIDE/new"), "etc/resolv.conf": link("OUTSIDE/folder/new")}},
		"working folder behind a link": {files: map[string]images.File{"work": link("OUTSIDE")}, config: ocispec.ImageConfig{WorkingDir: "/work/new"}},
		"working folder of the host":   {config: ocispec.ImageConfig{WorkingDir: "/proc/self/fd/7"}, refuse: "leads out"},
		"working folder through proc":  {files: map[string]images.File{"work": link("/proc/self/fd/7")}, config: ocispec.ImageConfig{WorkingDir: "/work"}, script: "cat victim passwd 2>/dev/null; echo ran"},
		"volume over a link":           {files: map[string]images.File{"data": link("OUTSIDE/folder")}, config: ocispec.ImageConfig{Volumes: map[string]struct{}{"/data": {}}}, script: "ls /data/; echo ran"},
		"mount over a link": {files: map[string]images.File{"data": link("OUTSIDE/folder")}, change: func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/data/new", HostPath: "/usr", Readonly: true}}
		}},
		"devices of the host": {
			files:  map[string]images.File{"memory": {Device: "c 1:1", Mode: 0o666}, "log": {Device: "c 1:11", Mode: 0o666}, "disk": {Device: "b 7:0", Mode: 0o666}},
			script: "for d in memory log disk; do if head -c 1 /$d >/dev/null 2>&1; then echo opened $d; fi; done; echo ran",
		},
		"very many variables":     {config: ocispec.ImageConfig{Env: numbered(30_000, "A%d="+strings.Repeat("x", 100))}, instead: "rgument list too long"},
		"a very long variable":    {config: ocispec.ImageConfig{Env: []string{"A=" + strings.Repeat("x", 1<<20)}}, refuse: "too long"},
		"variables that are none": {config: ocispec.ImageConfig{Env: numbered(100_000, "none%d")}},
		"a very long program": {config: ocispec.ImageConfig{Entrypoint: []string{"/" + strings.Repeat("x", 1<<20)}}, change: func(c *runtimeapi.ContainerConfig) {
			c.Command = nil
		}, refuse: "too long"},
		"very many words": {config: ocispec.ImageConfig{Entrypoint: append([]string{"sh", "-c", "echo ran"}, slices.Repeat([]string{"x"}, 700_000)...)}, change: func(c *runtimeapi.ContainerConfig) {
			c.Command = nil
		}, refuse: "too long"},
		"very many volumes": {config: ocispec.ImageConfig{Volumes: volumes}, refuse: "1500 volumes"},
	}
}

// folderOf is everything of a folder, with what it is and has in it.
func folderOf(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		body := []byte{}
		if info.Mode().IsRegular() {
			body, err = os.ReadFile(path)
		}
		fmt.Fprintf(&b, "%s %s %d:%d %s %q\n", path, info.Mode(), st.Uid, st.Gid, info.ModTime(), body)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// refusal checks that an error says whose fault it is, in words for people.
func refusal(t *testing.T, handler string, err error) {
	t.Helper()
	st := status.Convert(err)
	byRuntime := st.Code() == codes.Internal && strings.Contains(st.Message(), "with handler "+handler+": ")
	if !notTheDaemonsFault[st.Code()] && !byRuntime || len(st.Message()) > longestMessage || strings.Contains(st.Message(), "panic") {
		t.Errorf("%s %.2000q", st.Code(), st.Message())
	}
}

// tryHostile makes and runs a container of the image, or is told why not.
func tryHostile(t *testing.T, s *node.Sandbox, handler string, cfg *runtimeapi.ContainerConfig) (output string, err error) {
	t.Helper()
	id, err := s.TryCreate(cfg)
	if err != nil {
		refusal(t, handler, err)
		return "", err
	}
	c := &node.Container{Sandbox: s, ID: id, Config: cfg}
	if err := c.TryStart(); err != nil {
		refusal(t, handler, err)
		if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_EXITED || len(st.Message) > longestMessage {
			t.Errorf("after a start that was refused: %s, a message of %d bytes", st.State, len(st.Message))
		}
		return "", err
	}
	c.Wait()
	return c.Log(), nil
}

// Whatever an image has in place of what a container needs, it is refused with
// the reason, or runs inside its root: nothing of the host is read, made or
// changed, and nothing is left.
func TestHostileImages(t *testing.T) {
	outside := t.TempDir()
	for name, body := range map[string]string{"passwd": "web:x:1234:1234::/:/bin/sh\n", "group": "web:x:1234:\n", "victim": "secret", "folder/file": "secret"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(outside, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(outside, name), []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	before := folderOf(t, outside)
	all := hostileImages()
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		for name, img := range all {
			t.Run(name, func(t *testing.T) {
				outer := n.T
				n.T = t
				defer func() { n.T = outer }()
				output, err := tryHostile(t, n.RunPod(h), h, img.push(t, n, name, outside))
				switch {
				case err != nil && !strings.Contains(err.Error(), img.refuse):
					t.Errorf("refused without %q: %.1000v", img.refuse, err)
				case err == nil && img.refuse != "":
					t.Errorf("it was not refused, and printed %.1000q", output)
				case err == nil && strings.TrimSpace(output) != "ran" && (img.instead == "" || !strings.Contains(output, img.instead)):
					t.Errorf("it printed %.1000q", output)
				}
				if after := folderOf(t, outside); after != before {
					t.Errorf("before:\n%safter:\n%s", before, after)
					before = after
				}
				n.RemoveAll()
				node.Eventually(t, "nothing of the pod is left", func() bool { return len(n.OfPods()) == 0 })
			})
		}
		removeImages(t, n)
		n.Pull(node.Busybox)
	})
}

// push puts the image onto the node, and returns a container of it.
func (h hostileImage) push(t *testing.T, n *node.Node, name, outside string) *runtimeapi.ContainerConfig {
	t.Helper()
	inside := func(s string) string { return strings.ReplaceAll(s, "OUTSIDE", outside) }
	files := map[string]images.File{}
	for at, f := range h.files {
		f.Symlink = inside(f.Symlink)
		files[at] = f
	}
	h.config.Env = append([]string{"PATH=/bin:/usr/bin"}, h.config.Env...)
	ref, err := node.PushImage("hostile/"+strings.ReplaceAll(name, " ", "-")+":1", h.config, images.Layer{Files: files, Sparse: true})
	if err != nil {
		t.Fatal(err)
	}
	n.Pull(ref)
	script := "echo ran"
	if h.script != "" {
		script = inside(h.script)
	}
	cfg := node.Script(script)
	cfg.Image.Image = ref
	if h.change != nil {
		h.change(cfg)
	}
	return cfg
}

// removeImages removes all images and wants nothing of them on the disk.
func removeImages(t *testing.T, n *node.Node) {
	t.Helper()
	list, err := n.Images.ListImages(n.Ctx(), &runtimeapi.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list.Images {
		if _, err := n.Images.RemoveImage(n.Ctx(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: i.Id}}); err != nil {
			t.Fatal(err)
		}
	}
	if left := n.OfImages(); len(left) > 0 {
		t.Errorf("left of images: %v", left)
	}
}

// A user file of gigabytes, of which hardly a byte is on the disk, costs nobody
// but its own container.
func TestHugeUserFiles(t *testing.T) {
	const size = 4 << 30
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		for _, name := range []string{"passwd", "group"} {
			ref, err := node.PushImage("hostile/huge-"+name+":1", ocispec.ImageConfig{User: "web", Env: []string{"PATH=/bin"}}, images.Layer{
				Files: map[string]images.File{"etc/passwd": {Body: []byte("web:x:5:6::/:\n")}, "etc/group": {Body: []byte("web:x:6:\nmore:x:7:web\n")}, "huge": {Body: []byte(name)}},
			})
			if err != nil {
				t.Fatal(err)
			}
			n.Pull(ref)
			found, err := filepath.Glob(filepath.Join(n.Root, "snapshots/snapshots/*/fs/huge"))
			if err != nil || len(found) == 0 {
				t.Fatalf("no layer has the file: %v", err)
			}
			for _, f := range found {
				if b, err := os.ReadFile(f); err != nil || string(b) != name {
					continue
				}
				if err := os.Truncate(filepath.Join(filepath.Dir(f), "etc", name), size); err != nil {
					t.Fatal(err)
				}
			}
			s := n.RunPod(h)
			cfg := node.Script("echo ran")
			cfg.Image.Image = ref
			if out, err := tryHostile(t, s, h, cfg); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "/etc/"+name+" in") || !strings.Contains(err.Error(), "larger than") {
				t.Errorf("%s: %v %q", name, err, out)
			}
			// Who asks for numbers alone needs no such file, but runtimes read it.
			cfg = node.Script("echo ran")
			cfg.Image.Image = ref
			cfg.Linux.SecurityContext.RunAsUser = &runtimeapi.Int64Value{Value: 5}
			cfg.Linux.SecurityContext.RunAsGroup = &runtimeapi.Int64Value{Value: 6}
			cfg.Linux.SecurityContext.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
			if out, err := tryHostile(t, s, h, cfg); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "/etc/"+name+" in") {
				t.Errorf("%s, by numbers: %v %q", name, err, out)
			}
			s.Remove()
		}
	})
}

// An image of very many files is mounted and run like any other.
func TestVeryManyFiles(t *testing.T) {
	const files = 100_000
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range files {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("many/%d/%d", i%100, i), Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	ref, err := node.PushImage("hostile/many:1", ocispec.ImageConfig{Env: []string{"PATH=/bin"}}, images.Layer{Tarball: b.Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	n := node.Start(t, "", node.Plain)
	n.Pull(ref)
	for _, h := range node.Handlers {
		must(t, n.Inside(h, "find /many -type f | wc -l", func(c *containerConfig) { c.Image.Image = ref }), fmt.Sprint(files))
	}
	removeImages(t, n)
}

// A layer that unpacks to more than it may is refused by name, before it has
// filled anything.
func TestLayerLimits(t *testing.T) {
	n := node.Start(t, "[images]\nmax_layer_bytes = 16777216\nmax_layer_entries = 2000\n")
	bomb := images.Layer{Files: map[string]images.File{"zeros": {Body: make([]byte, 17<<20)}}}
	many := images.Layer{Files: map[string]images.File{}}
	for _, name := range numbered(2001, "f%d") {
		many.Files[name] = images.File{}
	}
	for key, l := range map[string]images.Layer{"max_layer_bytes": bomb, "max_layer_entries": many} {
		img, err := images.Build(images.Spec{Layers: []images.Layer{l}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = n.TryPull(node.Registry.Push("hostile/limits:1", img))
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "images."+key) || !strings.Contains(err.Error(), img.Layers()[0].Digest.String()) {
			t.Errorf("%s: %v", key, err)
		}
		if left := n.OfImages(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}
