package installer

import (
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
)

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// other is an architecture that this machine is not, and its number in ELF.
func other() (name string, machine byte) {
	if runtime.GOARCH == "arm64" {
		return "amd64", 62
	}
	return "arm64", 183
}

// Nothing of this may change a node.
func TestRefused(t *testing.T) {
	underBoth(t, func(t *testing.T, d *daemon) {
		d.install(small(t, "good", "1"))
		before, usr := d.configFiles(), tree(t, d.path("usr"))
		arch, machine := other()
		for name, c := range map[string]struct {
			change func(b *bundle)
			reason payload.Reason
			code   int
		}{
			"no manifest":        {func(b *bundle) { _ = os.Remove(filepath.Join(b.dir, payload.ManifestName)) }, payload.PayloadInvalid, 3},
			"truncated manifest": {func(b *bundle) { _ = os.Truncate(filepath.Join(b.dir, payload.ManifestName), 100) }, payload.PayloadInvalid, 3},
			"truncated file":     {func(b *bundle) { _ = os.Truncate(filepath.Join(b.dir, "shim"), 3) }, payload.PayloadInvalid, 3},
			"missing file":       {func(b *bundle) { _ = os.Remove(filepath.Join(b.dir, "shim")) }, payload.PayloadInvalid, 3},
			"tampered file": {func(b *bundle) {
				data, _ := os.ReadFile(filepath.Join(b.dir, "shim"))
				data[len(data)-2] ^= 1
				_ = os.WriteFile(filepath.Join(b.dir, "shim"), data, 0o644)
			}, payload.PayloadInvalid, 3},
			"link out of the payload": {func(b *bundle) {
				_ = os.Remove(filepath.Join(b.dir, "shim"))
				_ = os.Symlink("/etc/passwd", filepath.Join(b.dir, "shim"))
			}, payload.PayloadInvalid, 3},
			"other architecture": {func(b *bundle) {
				b.Architectures = []string{arch}
				b.save(t)
			}, payload.PayloadInvalid, 3},
			"program of another architecture": {func(b *bundle) {
				b.Files = nil
				header := append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 57)...)
				header[16], header[18], header[20], header[52], header[54], header[58] = 2, machine, 1, 64, 56, 64
				b.add(t, "shim", header, "0755")
				b.save(t)
			}, payload.PayloadInvalid, 3},
			"missing device": {func(b *bundle) {
				b.Devices = []string{"/dev/fairlead-none"}
				b.save(t)
			}, payload.DeviceMissing, 1},
			"foreign handler": {func(b *bundle) {
				b.Handlers[0].Name = "foreign"
				b.save(t)
			}, payload.Conflict, 1},
			"handler of another type": {func(b *bundle) {
				b.Handlers[0].Name = "good"
				b.save(t)
			}, payload.Conflict, 1},
			"no room": {func(b *bundle) {
				b.Files[0].Size = 1 << 32
				for range 512 {
					f := b.Files[0]
					f.Path += strings.Repeat("x", len(b.Files))
					b.Files = append(b.Files, f)
				}
				b.save(t)
			}, payload.NoSpace, 1},
		} {
			b := small(t, "test", "1")
			c.change(b)
			o := d.fairlead(nil, "--payload", b.dir)
			r := o.first(t)
			if r.State == payload.Installed || r.Reason != c.reason || o.code != c.code || r.Message == "" {
				t.Errorf("%s: exit code %d, %+v", name, o.code, r)
			}
			same(t, before, d.configFiles())
			same(t, usr, tree(t, d.path("usr")))
		}
		d.serves("runc", "foreign", "good")
	})
}

// A configuration that cannot be changed is left alone.
func TestConfigurationsThatAreRefused(t *testing.T) {
	underEach(t, func(t *testing.T, d *daemon) {
		original := d.adminConfig()
		for name, c := range map[string]struct{ config, want string }{
			"unknown version":      {strings.Replace(original, "version = ", "version = 9", 1), "only versions up to 4"},
			"garbage":              {original + "\n[[[", "config.toml"},
			"dangling import":      {"imports = [\"/none/such.toml\"]\n" + original, "/none/such.toml"},
			"the CRI is off":       {"disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n" + original, "disabled_plugins"},
			"names of version 1":   {original + "\n[plugins.cri]\n  stream_server_port = \"0\"\n", "plugins.cri"},
			"handler by the admin": {original + "\n[" + d.plugin() + ".containerd.runtimes.test]\n  runtime_type = \"io.containerd.runc.v2\"\n", "configured by somebody else"},
		} {
			d.write("etc/config.toml", c.config)
			before := d.configFiles()
			o := d.fairlead(nil, "--payload", small(t, "test", "1").dir)
			if r := o.first(t); r.State != payload.Refused || !strings.Contains(r.Message, c.want) || r.Restarted {
				t.Errorf("%s: %d %+v", name, o.code, r)
			}
			same(t, before, d.configFiles())
		}
		d.write("etc/config.toml", original)
		d.bare()
	})
}

// A full disk at any moment leaves what was there.
func TestDiskFull(t *testing.T) {
	underBoth(t, func(t *testing.T, d *daemon) {
		disk := d.path("usr")
		if err := os.Mkdir(disk, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("none", disk, "tmpfs", 0, "size=18m"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) }()
		d.install(small(t, "good", "1"))
		before, usr := d.configFiles(), tree(t, disk)
		big := small(t, "test", "1")
		big.add(t, "guest", make([]byte, 4<<20), "0644")
		big.save(t)
		r := d.fairlead(nil, "--payload", big.dir).first(t)
		if r.State != payload.Refused || r.Reason != payload.NoSpace {
			t.Fatalf("%+v", r)
		}
		// What fills it comes after the look.
		wait := d.path("go")
		cmd := d.command([]string{"FAIRLEAD_FAILPOINTS=install.half-copied=wait:" + wait}, "--payload", small2(t).dir)
		done := make(chan outcome, 1)
		go func() { done <- run(t, cmd) }()
		until(t, "a file that is half copied", func() bool { return staged(disk) })
		fill := filepath.Join(disk, "fill")
		f, err := os.Create(fill)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		_ = f.Close()
		if err := os.WriteFile(wait, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if r := (<-done).first(t); r.State != payload.RolledBack || r.Reason != payload.NoSpace {
			t.Fatalf("%+v", r)
		}
		if err := os.Remove(fill); err != nil {
			t.Fatal(err)
		}
		same(t, before, d.configFiles())
		same(t, usr, tree(t, disk))
		d.serves("runc", "foreign", "good")
	})
}

// small2 has a second file, which is copied after the first place.
func small2(t *testing.T) *bundle {
	b := small(t, "test", "1")
	b.add(t, "z", make([]byte, 64<<10), "0644")
	return b.save(t)
}

func staged(disk string) bool {
	found, _ := filepath.Glob(filepath.Join(disk, "test/.new-*/shim"))
	return len(found) > 0
}

func TestReadOnlyTargets(t *testing.T) {
	underBoth(t, func(t *testing.T, d *daemon) {
		for name, c := range map[string]struct {
			flags uintptr
			want  payload.Reason
		}{"read-only": {syscall.MS_RDONLY, payload.ReadOnlyTarget}, "noexec": {syscall.MS_NOEXEC, payload.UnsupportedNode}} {
			disk := d.path("usr")
			if err := os.MkdirAll(disk, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mount("none", disk, "tmpfs", c.flags, ""); err != nil {
				t.Fatal(err)
			}
			r := d.fairlead(nil, "--payload", small(t, "test", "1").dir).first(t)
			if err := syscall.Unmount(disk, 0); err != nil {
				t.Fatal(err)
			}
			if r.State != payload.Refused || r.Reason != c.want {
				t.Errorf("%s: %+v", name, r)
			}
		}
		// The configuration is read-only, and the binaries are not.
		before := d.configFiles()
		etc := d.path("etc")
		if err := syscall.Mount(etc, etc, "", syscall.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		err := syscall.Mount("", etc, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
		r := d.fairlead(nil, "--payload", small(t, "test", "1").dir).first(t)
		if err := syscall.Unmount(etc, 0); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.State != payload.RolledBack || r.Reason != payload.ReadOnlyTarget || r.Restarted {
			t.Errorf("%+v", r)
		}
		same(t, before, d.configFiles())
		d.serves("runc", "foreign")
	})
}

// The daemon does not come back with the change: what was there is put back, and
// when it runs again it serves what it did.
func TestDaemonThatDoesNotComeBack(t *testing.T) {
	under(t, func(t *testing.T, d *daemon) {
		before := d.configFiles()
		d.breaks(true)
		o := d.fairlead(nil, "--payload", small(t, "test", "1").dir, "--wait", "2s")
		r := o.first(t)
		if r.State != payload.Failed || r.Reason != payload.RuntimeUnavailable || o.code != 1 {
			t.Fatalf("%d %+v", o.code, r)
		}
		// A folder that was made for the drop-in goes only when the daemon was seen again.
		same(t, filesOf(before), filesOf(d.configFiles()))
		d.breaks(false)
		d.serves("runc", "foreign")
		// What was not proven is looked at again, and then it is tried.
		d.install(small(t, "test", "2"))
		d.serves("runc", "foreign", "test")
		d.uninstall("test")
		same(t, before, d.configFiles())
		d.bare()
	})
}

// filesOf is a tree without its folders.
func filesOf(tree map[string]string) map[string]string {
	tree = maps.Clone(tree)
	maps.DeleteFunc(tree, func(name, _ string) bool { return strings.HasSuffix(name, "/") })
	return tree
}

// A payload whose check fails is taken back, and is not tried again at once.
func TestCheckThatFails(t *testing.T) {
	underBoth(t, func(t *testing.T, d *daemon) {
		bad := newBundle(t, "test", "1")
		bad.add(t, "shim", []byte("#!/bin/sh\necho no such platform\nexit 1\n"), "0755")
		bad.add(t, vmShim, []byte("#!/bin/sh\n"), "0755")
		good := small(t, "test", "1")
		bad.Handlers, bad.Checks, bad.Configs = good.Handlers, good.Checks, good.Configs
		bad.save(t)
		before := d.configFiles()
		r := d.fairlead(nil, "--payload", bad.dir).first(t)
		if r.State != payload.RolledBack || r.Reason != payload.CheckFailed || !strings.Contains(r.Message, "no such platform") {
			t.Fatalf("%+v", r)
		}
		starts := d.starts()
		r = d.fairlead(nil, "--payload", bad.dir).first(t)
		if r.State != payload.Refused || r.Reason != payload.CheckFailed || d.starts() != starts {
			t.Fatalf("tried again at once: %+v", r)
		}
		same(t, before, d.configFiles())
		if exists(d.path("usr")) {
			t.Error("binaries are left")
		}
		d.install(good) // another payload may be tried
		d.serves("runc", "foreign", "test")
	})
}
