package cri

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/images"
	"fairlead.run/test/node"
)

// pullData pulls an image that is only data, of as many layers as are given.
func pullData(n *node.Node, name string, layers ...images.Layer) (id string) {
	n.T.Helper()
	img, err := images.Build(images.Spec{Layers: layers})
	if err != nil {
		n.T.Fatal(err)
	}
	return n.Pull(node.Registry.Push(name, img))
}

func layerOf(files map[string]images.File) images.Layer { return images.Layer{Files: files} }

func text(s string) images.File { return images.File{Body: []byte(s)} }

// volumeLayers are an image with two layers, links that lead out of it, and a
// program.
func volumeLayers() []images.Layer {
	return []images.Layer{
		layerOf(map[string]images.File{
			"data/below": text("below\n"), "data/gone": text("gone\n"), "data/changed": text("old\n"),
			"data/owned": {Body: []byte("x"), UID: 7, GID: 8, Mode: 0o640},
		}),
		layerOf(map[string]images.File{
			"data/above": text("above\n"), "data/.wh.gone": {}, "data/changed": text("new\n"),
			"run":    {Body: []byte("#!/bin/sh\necho ran\n"), Mode: 0o755},
			"inside": {Symlink: "/data"}, "outside": {Symlink: "../../../../../../etc"}, "up": {Symlink: "../../../../../.."}, "dangling": {Symlink: "/none"},
			"pid": {Symlink: "/proc/self/root"},
		}),
	}
}

func imageMount(id, at string, change ...func(*runtimeapi.Mount)) *runtimeapi.Mount {
	m := &runtimeapi.Mount{ContainerPath: at, Readonly: true, Image: &runtimeapi.ImageSpec{Image: id}}
	for _, f := range change {
		f(m)
	}
	return m
}

func part(path string) func(*runtimeapi.Mount) {
	return func(m *runtimeapi.Mount) { m.ImageSubPath = path }
}

// An image is seen as a container made from it would see it, cannot be written
// to, and its programs run unless the caller says otherwise.
func TestImageVolume(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		two := pullData(n, "test/volume:2", volumeLayers()...)
		one := pullData(n, "test/volume:1", layerOf(map[string]images.File{"only": text("single\n")}))
		none := pullData(n, "test/volume:0")
		got := n.Inside(h, `
			cat /two/data/below /two/data/above /two/data/changed /one/only; ls /two/data
			stat -c '%n %u:%g %a' /two/data/owned
			touch /two/new 2>&1; touch /one/new 2>&1; rm /two/run 2>&1; echo x 2>&1 > /two/data/below
			/two/run; /tied/run 2>&1; cat /tied/data/below
			echo none=$(ls -a /none | wc -l)
		`, mounts(
			imageMount(two, "/two"), imageMount(one, "/one"), imageMount(none, "/none"),
			imageMount(two, "/tied", func(m *runtimeapi.Mount) { m.MountOptions = []string{"noexec", "nosuid", "nodev"} }),
		))
		mustContain(t, got, "below", "above", "new", "single", "changed", "/two/data/owned 7:8 640", "ran", "none=2",
			"touch: /two/new: Read-only file system", "touch: /one/new: Read-only file system", "rm: can't remove '/two/run': Read-only file system")
		if strings.Contains(got, "gone") || strings.Count(got, "ran\n") != 1 || !strings.Contains(got, "/tied/run: Permission denied") {
			t.Errorf("%q", got)
		}
	})
}

func TestImageVolumeParts(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		id := pullData(n, "test/volume:2", volumeLayers()...)
		// Links stay in the image, as chroot would have it.
		must(t, n.Inside(h, "cat /a/above; cat /b/below; cat /c/data/changed; cat /d/data/changed; cat /e/changed; touch /a/new 2>&1 || true", mounts(
			imageMount(id, "/a", part("data")), imageMount(id, "/b", part("inside")), imageMount(id, "/c", part("up")),
			imageMount(id, "/d", part("/")), imageMount(id, "/e", part("./data/../data/")),
		)), "above\nbelow\nnew\nnew\nnew\ntouch: /a/new: Read-only file system")
		s := n.RunPod(h)
		for path, says := range map[string]string{
			"none": "is not in image", "data/none/deep": "is not in image", "dangling": "is not in image", "outside": "is not in image",
			"pid": "is not in image", "run": "is no folder in image", "data/above/x": "not a directory", strings.Repeat("a", 300): "file name too long",
		} {
			cfg := node.Script("true")
			mounts(imageMount(id, "/v"), imageMount(id, "/w", part(path)))(cfg)
			_, err := s.TryCreate(cfg)
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "ImageVolumeMountFailed: mounts[1].image_sub_path") {
				t.Errorf("%.20s: %v", path, err)
			}
		}
		wantNoContainers(t, n)
	})
}

// wantNoContainers wants neither containers nor anything of one.
func wantNoContainers(t *testing.T, n *node.Node) {
	t.Helper()
	l, err := n.Runtime.ListContainers(n.Ctx(), &runtimeapi.ListContainersRequest{})
	if err != nil || len(l.Containers) > 0 {
		t.Errorf("containers are left: %v, %v", l.GetContainers(), err)
	}
	for _, what := range n.OfPods() {
		if strings.Contains(what, "containers/") {
			t.Errorf("left: %s", what)
		}
	}
	if out, err := n.CLI("fsck"); err != nil {
		t.Errorf("fsck: %v: %s", err, out)
	}
}

func TestImageVolumeRefused(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		id := pullData(n, "test/volume:2", volumeLayers()...)
		none := "sha256:" + strings.Repeat("0", 64)
		s := n.RunPod(h, privilegedPod)
		for name, tt := range map[string]struct {
			m    *runtimeapi.Mount
			code codes.Code
			says string
		}{
			"missing by id":   {imageMount(none, "/v"), codes.NotFound, "ImageVolumeMountFailed: mounts[0].image"},
			"missing by name": {imageMount(node.Registry.Host()+"/test/none:1", "/v"), codes.NotFound, "pull or import it first"},
			"no name":         {imageMount("UPPER/not valid!", "/v"), codes.InvalidArgument, "ImageVolumeMountFailed: mounts[0].image"},
			"writable":        {imageMount(id, "/v", func(m *runtimeapi.Mount) { m.Readonly = false }), codes.InvalidArgument, "mounts[0].readonly"},
			"host path":       {imageMount(id, "/v", func(m *runtimeapi.Mount) { m.HostPath = "/tmp" }), codes.InvalidArgument, "mounts[0].host_path"},
			"propagated out": {
				imageMount(id, "/v", func(m *runtimeapi.Mount) { m.Propagation = runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL }),
				codes.InvalidArgument, "mounts[0].propagation",
			},
			"over /proc":   {imageMount(id, "/proc"), codes.InvalidArgument, "mounts[0].container_path"},
			"over all":     {imageMount(id, "/"), codes.InvalidArgument, "mounts[0].container_path"},
			"wrong option": {imageMount(id, "/v", func(m *runtimeapi.Mount) { m.MountOptions = []string{"suid"} }), codes.InvalidArgument, "mounts[0].mount_options[0]"},
		} {
			cfg := node.Script("true")
			cfg.Linux.SecurityContext.Privileged = true
			mounts(tt.m)(cfg)
			if _, err := s.TryCreate(cfg); status.Code(err) != tt.code || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		wantNoContainers(t, n)
		// What a kubelet sends with every volume means nothing here, and harms nothing.
		cfg := node.Script("cat /v/data/above; touch /v/x 2>&1 || true")
		mounts(imageMount(id, "/v", func(m *runtimeapi.Mount) {
			m.SelinuxRelabel, m.RecursiveReadOnly = true, true
		}), imageMount(id, "/w", func(m *runtimeapi.Mount) {
			m.Propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		}))(cfg)
		c := s.Start(cfg)
		c.Wait()
		must(t, c.Log(), "above\ntouch: /v/x: Read-only file system")
		s.Remove()
	})
}

// The status names the image by the id that PullImage gave, however it was
// asked for, and says the rest as it was asked for.
func TestImageVolumeStatus(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		id := pullData(n, "test/volume:2", volumeLayers()...)
		name := node.Registry.Host() + "/test/volume:2"
		s := n.RunPod(h)
		cfg := node.Script("sleep 1000")
		mounts(&runtimeapi.Mount{HostPath: hostDir(t), ContainerPath: "/host"}, imageMount(id, "/a"), imageMount(name, "/b", part("data")))(cfg)
		m := s.Create(cfg).Status().Mounts
		if len(m) != 3 || m[0].Image != nil || m[1].Image.GetImageRef() != id || m[1].Image.Image != id || m[2].Image.GetImageRef() != id ||
			m[2].Image.Image != name || m[2].ImageSubPath != "data" || m[1].HostPath != "" || !m[1].Readonly {
			t.Errorf("%v", m)
		}
		s.Remove()
	})
}

// An image that is removed stays under the container that has it as a volume,
// also for a daemon that starts anew, and goes with it. Nobody else gets it.
func TestImageVolumeOutlivesItsImage(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		id := pullData(n, "test/volume:2", volumeLayers()...)
		before := n.OfImages()
		s := n.RunPod(h)
		cfg := node.Script("sleep 1000")
		mounts(imageMount(id, "/v", part("data")))(cfg)
		waiting := node.Script("cat /w/data/above; sleep 1000")
		mounts(imageMount(id, "/w"))(waiting)
		c, w := s.Start(cfg), s.Create(waiting)
		remove := func() {
			t.Helper()
			if _, err := n.Images.RemoveImage(n.Ctx(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: id}}); err != nil {
				t.Fatal(err)
			}
		}
		remove()
		must(t, c.Exec("cat", "/v/above", "/v/below"), "above\nbelow")
		late := node.Script("true")
		mounts(imageMount(id, "/v"))(late)
		if _, err := s.TryCreate(late); status.Code(err) != codes.NotFound {
			t.Errorf("a removed image was mounted: %v", err)
		}
		n.Kill(syscall.SIGKILL)
		n.Start()
		remove() // and collects what nobody uses
		must(t, c.Exec("cat", "/v/above", "/v/below"), "above\nbelow")
		if err := w.TryStart(); err != nil {
			t.Fatal(err)
		}
		node.Eventually(t, "the output of the one that had not started", func() bool { return strings.Contains(w.Log(), "above") })
		if out, err := n.CLI("fsck"); err != nil {
			t.Errorf("fsck: %v: %s", err, out)
		}
		s.Remove()
		// It took a configuration, a manifest and two layers as blobs, and two folders.
		id = pullData(n, "test/other:1", layerOf(map[string]images.File{"x": text("x")}))
		remove() // of whatever image, frees what nobody uses
		if after := n.OfImages(); len(after) != len(before)-6 {
			t.Errorf("left of images: %v, before %v", after, before)
		}
	})
}

// In a pod with a user namespace what belongs to root in the image belongs to
// the pod's root, whether the mount says so or not.
func TestImageVolumeInUserNamespace(t *testing.T) {
	underEachMapped(t, func(t *testing.T, n *node.Node, h string) {
		id := pullData(n, "test/volume:2", volumeLayers()...)
		one := pullData(n, "test/volume:1", layerOf(map[string]images.File{"only": text("single\n"), "closed/file": text("closed\n"), "closed": {Dir: true, Mode: 0o700}}))
		got := insideMapped(n, h, `
			stat -c '%n %u:%g' /a/data/owned /a/run /b/below /c/only /d/file
			cat /d/file; /a/run; touch /a/new 2>&1 || true
		`, mounts(
			imageMount(id, "/a", func(m *runtimeapi.Mount) { m.UidMappings, m.GidMappings = mappings(), mappings() }),
			imageMount(id, "/b", part("data")), imageMount(one, "/c"), imageMount(one, "/d", part("closed")),
		))
		mustContain(t, got, "/a/data/owned 7:8", "/a/run 0:0", "/b/below 0:0", "/c/only 0:0", "/d/file 0:0", "closed", "ran", "touch: /a/new: Read-only file system")
	})
}

// Many containers may show one image, and a container many.
func TestImageVolumesAtOnce(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		var all []*runtimeapi.Mount
		want := ""
		for i := range 20 {
			id := pullData(n, fmt.Sprintf("test/many:%d", i), layerOf(map[string]images.File{"own": text(fmt.Sprintln(i))}))
			all = append(all, imageMount(id, fmt.Sprintf("/m/%d", i)))
			want += fmt.Sprintln(i)
		}
		s := n.RunPod(h)
		var started []*node.Container
		for range 3 {
			cfg := node.Script("sleep 1000")
			cfg.Mounts = all
			started = append(started, s.Start(cfg))
		}
		for _, c := range started {
			must(t, c.Exec("sh", "-c", "for i in $(seq 0 19); do cat /m/$i/own; done"), want)
		}
		started[0].Remove()
		must(t, started[1].Exec("cat", "/m/7/own"), "7")
		s.Remove()
	})
}
