package spec

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func TestDefaultMounts(t *testing.T) {
	tc := plain(t)
	var got []string
	for _, m := range tc.spec(t).spec.Mounts {
		got = append(got, m.Destination+" "+m.Type)
	}
	same(t, "mounts", got, []string{
		"/proc proc", "/dev tmpfs", "/dev/pts devpts", "/dev/mqueue mqueue", "/sys sysfs", "/sys/fs/cgroup cgroup",
		"/etc/hostname bind", "/etc/hosts bind", "/etc/resolv.conf bind", "/dev/shm bind",
	})
	if m := mountAt(tc.spec(t), "/dev/shm"); m.Source != tc.record.Sandbox.Shm {
		t.Errorf("the pod's /dev/shm: %+v", m)
	}
	tc.c.Security.Namespaces.IPC = pod.NamespaceContainer
	if m := mountAt(tc.spec(t), "/dev/shm"); m.Type != "tmpfs" || !slices.Contains(m.Options, "mode=1777") {
		t.Errorf("a private /dev/shm: %+v", m)
	}
	tc.c.Security.Namespaces.IPC, tc.record.Config.Security.Namespaces.IPC = pod.NamespaceNode, pod.NamespaceNode
	tc.record.Sandbox.Shm, tc.record.Sandbox.IPCNS = "", ""
	if m := mountAt(tc.spec(t), "/dev/shm"); m.Source != "/dev/shm" {
		t.Errorf("the node's /dev/shm: %+v", m)
	}
	must(t, os.Remove(filepath.Join(tc.record.Sandbox.Dir, pod.FileHosts)))
	if m := mountAt(tc.spec(t), "/etc/hosts"); m != nil {
		t.Errorf("a file that nobody wrote: %+v", m)
	}
}

func TestRequestReplacesDefaults(t *testing.T) {
	dir := t.TempDir()
	for _, at := range []string{"/etc/hosts", "/etc/resolv.conf", "/etc/hostname/", "/dev/shm", "/sys/fs/cgroup", "/proc"} {
		dir := dir
		if at == "/proc" {
			dir = at // of the host; nothing else is taken there
		}
		tc := plain(t)
		tc.c.Mounts = []pod.Mount{{ContainerPath: at, HostPath: dir}}
		n := 0
		for _, m := range tc.spec(t).spec.Mounts {
			if m.Destination == path.Clean(at) {
				n++
				if m.Source != dir {
					t.Errorf("%s comes from %s", at, m.Source)
				}
			}
		}
		if n != 1 {
			t.Errorf("%d mounts on %s", n, at)
		}
	}
	tc := plain(t)
	tc.c.Mounts = []pod.Mount{{ContainerPath: "/dev", HostPath: "/dev"}}
	for _, m := range tc.spec(t).spec.Mounts {
		if strings.HasPrefix(m.Destination, "/dev/") && m.Type != "bind" {
			t.Errorf("%s over the request's /dev", m.Destination)
		}
	}
}

func TestMountsAreSortedByDepth(t *testing.T) {
	dir := t.TempDir()
	tc := plain(t)
	for _, at := range []string{"/a/b/c", "/z", "/a/b", "/a", "/etc"} {
		tc.c.Mounts = append(tc.c.Mounts, pod.Mount{ContainerPath: at, HostPath: dir})
	}
	var got []string
	for _, m := range tc.spec(t).spec.Mounts[6:] {
		got = append(got, m.Destination)
	}
	same(t, "order", got, []string{"/z", "/a", "/etc", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/dev/shm", "/a/b", "/a/b/c"})
}

func TestMountOptions(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	must(t, os.Mkdir(target, 0o755))
	must(t, os.Symlink(target, filepath.Join(dir, "link")))
	must(t, os.Symlink("/target", filepath.Join(dir, "within"))) // as it is in an image
	for name, tt := range map[string]struct {
		m       pod.Mount
		source  string
		options []string
	}{
		"plain":       {pod.Mount{HostPath: target}, target, []string{"rbind", "rprivate", "rw"}},
		"read-only":   {pod.Mount{HostPath: target, ReadOnly: true}, target, []string{"rbind", "rprivate", "ro"}},
		"recursive":   {pod.Mount{HostPath: target, ReadOnly: true, RecursiveReadOnly: true}, target, []string{"rbind", "rprivate", "rro"}},
		"link":        {pod.Mount{HostPath: filepath.Join(dir, "link")}, target, []string{"rbind", "rprivate", "rw"}},
		"options":     {pod.Mount{HostPath: target, Options: []string{"noexec", "nodev"}}, target, []string{"rbind", "rprivate", "rw", "noexec", "nodev"}},
		"missing":     {pod.Mount{HostPath: filepath.Join(dir, "new/deep")}, filepath.Join(dir, "new/deep"), []string{"rbind", "rprivate", "rw"}},
		"image":       {pod.Mount{HostPath: dir, Image: &pod.ImageSpec{Image: "i"}}, dir, []string{"rbind", "rprivate", "ro"}},
		"part of one": {pod.Mount{HostPath: dir, Image: &pod.ImageSpec{Image: "i"}, ImageSubPath: "target"}, target, []string{"rbind", "rprivate", "ro"}},
		// Nothing is mounted below an image, and nothing ever will be.
		"image, recursive": {pod.Mount{HostPath: dir, ReadOnly: true, RecursiveReadOnly: true, Image: &pod.ImageSpec{Image: "i"}}, dir, []string{"rbind", "rprivate", "ro"}},
		"image, slave":     {pod.Mount{HostPath: dir, Image: &pod.ImageSpec{Image: "i"}, Propagation: pod.PropagationHostToContainer}, dir, []string{"rbind", "rprivate", "ro"}},
		"image, options":   {pod.Mount{HostPath: dir, Image: &pod.ImageSpec{Image: "i"}, Options: []string{"noexec", "nosuid"}}, dir, []string{"rbind", "rprivate", "ro", "noexec", "nosuid"}},
		"part by a link":   {pod.Mount{HostPath: dir, Image: &pod.ImageSpec{Image: "i"}, ImageSubPath: "within"}, target, []string{"rbind", "rprivate", "ro"}},
		"part, beyond":     {pod.Mount{HostPath: dir, Image: &pod.ImageSpec{Image: "i"}, ImageSubPath: "../../target"}, target, []string{"rbind", "rprivate", "ro"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc := plain(t)
			tt.m.ContainerPath = "/m"
			tc.c.Mounts = []pod.Mount{tt.m}
			m := mountAt(tc.spec(t), "/m")
			if m.Source != tt.source || m.Type != "bind" {
				t.Errorf("%+v", m)
			}
			same(t, "options", m.Options, tt.options)
		})
	}
	if info, err := os.Stat(filepath.Join(dir, "new/deep")); err != nil || !info.IsDir() {
		t.Errorf("the missing folder: %v", err)
	}
}

func TestMountsRefused(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for name, tt := range map[string]struct {
		m     pod.Mount
		kind  error
		words string
	}{
		"relative place":   {pod.Mount{ContainerPath: "m", HostPath: dir}, errdefs.ErrInvalidArgument, "mounts[0].container_path"},
		"root":             {pod.Mount{ContainerPath: "/m/..", HostPath: dir}, errdefs.ErrInvalidArgument, "root of the container"},
		"over /proc":       {pod.Mount{ContainerPath: "/proc/", HostPath: dir}, errdefs.ErrInvalidArgument, "no proc file system"},
		"zero":             {pod.Mount{ContainerPath: "/m\x00", HostPath: dir}, errdefs.ErrInvalidArgument, "container_path"},
		"no source":        {pod.Mount{ContainerPath: "/m"}, errdefs.ErrInvalidArgument, "mounts[0].host_path"},
		"relative source":  {pod.Mount{ContainerPath: "/m", HostPath: "x"}, errdefs.ErrInvalidArgument, "mounts[0].host_path"},
		"rro but writable": {pod.Mount{ContainerPath: "/m", HostPath: dir, RecursiveReadOnly: true}, errdefs.ErrInvalidArgument, "recursive_read_only"},
		"rro and slave": {
			pod.Mount{ContainerPath: "/m", HostPath: "/run/netns", ReadOnly: true, RecursiveReadOnly: true, Propagation: pod.PropagationHostToContainer},
			errdefs.ErrInvalidArgument, "",
		},
		"no such part":   {pod.Mount{ContainerPath: "/m", HostPath: dir, Image: &pod.ImageSpec{Image: "vol"}, ImageSubPath: "none"}, errdefs.ErrInvalidArgument, "ImageVolumeMountFailed: mounts[0].image_sub_path \"none\""},
		"part is a file": {pod.Mount{ContainerPath: "/m", HostPath: dir, Image: &pod.ImageSpec{Image: "vol"}, ImageSubPath: "file"}, errdefs.ErrInvalidArgument, "is no folder in image vol"},
		"below a file":   {pod.Mount{ContainerPath: "/m", HostPath: dir, Image: &pod.ImageSpec{Image: "vol"}, ImageSubPath: "file/x"}, errdefs.ErrInvalidArgument, "ImageVolumeMountFailed: mounts[0].image_sub_path"},
		"image, shared":  {pod.Mount{ContainerPath: "/m", HostPath: dir, Image: &pod.ImageSpec{Image: "vol"}, Propagation: pod.PropagationBidirectional}, errdefs.ErrInvalidArgument, "ImageVolumeMountFailed: mounts[0].propagation"},
		"image, option":  {pod.Mount{ContainerPath: "/m", HostPath: dir, Image: &pod.ImageSpec{Image: "vol"}, Options: []string{"exec"}}, errdefs.ErrInvalidArgument, "mounts[0].mount_options[0]"},
		"id mappings":    {pod.Mount{ContainerPath: "/m", HostPath: dir, UIDMappings: []pod.IDMapping{{Length: 1}}}, errdefs.ErrInvalidArgument, "uidMappings"},
		"unknown option": {pod.Mount{ContainerPath: "/m", HostPath: dir, Options: []string{"nosuid", "suid"}}, errdefs.ErrInvalidArgument, "mount_options[1]"},
		"unknown mode":   {pod.Mount{ContainerPath: "/m", HostPath: dir, Propagation: "Everywhere"}, errdefs.ErrInvalidArgument, "propagation"},
	} {
		t.Run(name, func(t *testing.T) {
			tc := plain(t)
			tc.c.Mounts = []pod.Mount{tt.m}
			tc.refused(t, tt.kind, tt.words)
		})
	}
	tc := plain(t)
	tc.req.Handler.Features.RecursiveReadOnlyMounts = false
	tc.c.Mounts = []pod.Mount{{ContainerPath: "/m", HostPath: dir, ReadOnly: true, RecursiveReadOnly: true}}
	tc.refused(t, errdefs.ErrUnimplemented, "mounts[0].recursive_read_only", "test")
	for _, p := range []string{"loop", "file/x"} {
		tc := plain(t)
		tc.c.Mounts = []pod.Mount{{ContainerPath: "/m", HostPath: filepath.Join(dir, p)}}
		if _, err := tc.build(t); err == nil || !strings.Contains(err.Error(), "mounts[0].host_path") {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func TestPropagation(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a shared mount")
	}
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	below := filepath.Join(dir, "below")
	must(t, os.Mkdir(below, 0o755))

	use := func(modes ...pod.Propagation) *testCase {
		tc := plain(t)
		for i, m := range modes {
			tc.c.Mounts = append(tc.c.Mounts, pod.Mount{ContainerPath: "/m" + string(rune('0'+i)), HostPath: below, Propagation: m})
		}
		return tc
	}
	must(t, unix.Mount("", dir, "", unix.MS_PRIVATE, ""))
	use(pod.PropagationHostToContainer).refused(t, errdefs.ErrInvalidArgument, "mounts[0].propagation", "not shared or a slave", dir)
	use(pod.PropagationBidirectional).refused(t, errdefs.ErrInvalidArgument, "mounts[0].propagation", "not shared", dir)
	use(pod.PropagationPrivate).spec(t)

	must(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
	for _, tt := range []struct {
		modes []pod.Propagation
		root  string
		last  string
	}{
		{[]pod.Propagation{pod.PropagationPrivate}, "", "rprivate"},
		{[]pod.Propagation{pod.PropagationHostToContainer}, "rslave", "rslave"},
		{[]pod.Propagation{pod.PropagationBidirectional}, "rshared", "rshared"},
		{[]pod.Propagation{pod.PropagationBidirectional, pod.PropagationHostToContainer}, "rshared", "rslave"},
		{[]pod.Propagation{pod.PropagationHostToContainer, pod.PropagationBidirectional}, "rshared", "rshared"},
	} {
		w := use(tt.modes...).spec(t)
		last := w.spec.Mounts[len(w.spec.Mounts)-1]
		for i := range tt.modes {
			last = *mountAt(w, "/m"+string(rune('0'+i)))
		}
		if w.spec.Linux.RootfsPropagation != tt.root || !slices.Contains(last.Options, tt.last) {
			t.Errorf("%v: root %q, options %v", tt.modes, w.spec.Linux.RootfsPropagation, last.Options)
		}
	}
}

func TestImageVolumes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files to their owners")
	}
	tc := plain(t)
	must(t, os.MkdirAll(filepath.Join(tc.req.Rootfs, "data"), 0o750))
	must(t, os.WriteFile(filepath.Join(tc.req.Rootfs, "data/seed"), []byte("x"), 0o600))
	tc.req.Image.Volumes = []string{"/data", "cache", "/mine", "/data/", "/proc/x", "/", "/etc/../dev"}
	tc.c.Mounts = []pod.Mount{{ContainerPath: "/mine", HostPath: t.TempDir()}}
	w := tc.spec(t)
	data, cache := mountAt(w, "/data"), mountAt(w, "/cache")
	if data == nil || cache == nil || data.Source == cache.Source {
		t.Fatalf("%+v, %+v", data, cache)
	}
	if !strings.HasPrefix(data.Source, filepath.Join(tc.cfg.RootDir, "containers/container1/volumes")+"/") {
		t.Errorf("volume in %s", data.Source)
	}
	if b, err := os.ReadFile(filepath.Join(data.Source, "seed")); err != nil || string(b) != "x" {
		t.Errorf("what the image has there: %q, %v", b, err)
	}
	if m := mountAt(w, "/mine"); m.Source != tc.c.Mounts[0].HostPath {
		t.Errorf("a request's mount lost to the image's volume: %+v", m)
	}
	if len(w.warnings) != 3 {
		t.Errorf("warnings %v", w.warnings)
	}
	if again := mountAt(tc.spec(t), "/data"); again.Source != data.Source {
		t.Errorf("another volume each time: %s, %s", data.Source, again.Source)
	}
}

func FuzzMounts(f *testing.F) {
	f.Add("/m", "nosuid")
	f.Add("/../../x", "")
	f.Add("//etc//hosts", "suid")
	f.Add("/a\x00b", "bind,suid")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, at, option string) {
		c := &pod.Container{ID: "c"}
		c.Config.Mounts = []pod.Mount{{ContainerPath: at, HostPath: dir}}
		if option != "" {
			c.Config.Mounts[0].Options = []string{option}
		}
		b := (&Builder{}).newBuild(pod.BundleRequest{Record: &pod.Record{}, Container: c})
		c.Config.Security.Namespaces.IPC = pod.NamespaceContainer
		if err := b.mounts(t.Context()); err != nil {
			return
		}
		seen := map[string]bool{}
		for _, m := range b.spec.Mounts {
			if !path.IsAbs(m.Destination) || path.Clean(m.Destination) != m.Destination || m.Destination == "/" || seen[m.Destination] || strings.ContainsRune(m.Destination, 0) {
				t.Errorf("%q gives %+v", at, m)
			}
			seen[m.Destination] = true
			for _, o := range m.Options {
				if strings.Contains(o, ",") || o == "suid" {
					t.Errorf("option %q", o)
				}
			}
		}
	})
}
