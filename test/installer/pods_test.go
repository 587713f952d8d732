package installer

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
)

// A pod runs through the new handler, outlives a restart, an upgrade and a change
// that fails, and keeps the version that it was started with as long as it is
// there.
func TestPodsAndUpgrades(t *testing.T) {
	under(t, func(t *testing.T, d *daemon) {
		before := d.configFiles()
		plain := d.cri().pod(t, "plain", "")
		d.install(d.kata("1"))
		first := d.cri().pod(t, "first", "kata")
		if !d.cri().runs(t, plain) {
			t.Fatal("the restart has ended a pod")
		}
		o := d.fairlead(nil, "uninstall", "kata-containers")
		if r := o.first(t); r.State != payload.Refused || r.Reason != payload.InUse || !strings.Contains(r.Message, "test/first") {
			t.Fatalf("uninstalled under a pod: %+v", r)
		}
		d.install(d.kata("2"))
		if !d.cri().runs(t, first) {
			t.Fatal("the upgrade has ended a pod")
		}
		if d.version("kata-containers", "1") == "" {
			t.Fatal("the upgrade took the old version away from its pod")
		}
		second := d.cri().pod(t, "second", "kata")
		broken := d.kata("3")
		broken.Checks = []payload.Check{{Name: "runs", Command: []string{"bin/no"}}}
		broken.add(t, "bin/no", []byte("#!/bin/sh\nexit 1\n"), "0755")
		broken.save(t)
		if r := d.fairlead(nil, "--payload", broken.dir).first(t); r.State != payload.RolledBack {
			t.Fatalf("%+v", r)
		}
		if d.version("kata-containers", "3") != "" {
			t.Error("the version that failed is left")
		}
		if !d.cri().runs(t, first) || !d.cri().runs(t, second) {
			t.Fatal("a change that failed has ended a pod")
		}
		third := d.cri().pod(t, "third", "kata")
		d.cri().remove(t, first)
		d.install(d.kata("2"))
		if d.version("kata-containers", "1") != "" {
			t.Error("the old version stays without pods")
		}
		for _, id := range []string{second, third, plain} {
			d.cri().remove(t, id)
		}
		d.uninstall("kata-containers")
		d.serves("runc", "foreign")
		same(t, before, d.configFiles())
		d.bare()
	})
}

// Real gVisor, of the files that a payload of it has. A pod outlives the restart for
// other settings.
func TestGVisor(t *testing.T) {
	under(t, func(t *testing.T, d *daemon) {
		before := d.configFiles()
		if d.major == 1 && d.minor < 7 {
			// This release of the shim speaks no version of its protocol that 1.6 does.
			r := d.fairlead(nil, "--payload", d.gvisor("1").dir).first(t)
			if r.State != payload.Refused || r.Reason != payload.UnsupportedNode || !strings.Contains(r.Message, "1.7") {
				t.Fatalf("%+v", r)
			}
			return
		}
		b := d.gvisor("1")
		d.install(b)
		d.serves("runc", "foreign", "runsc")
		id := d.cri().pod(t, "inside", "runsc")
		d.sandboxed(id)
		changed := payload.InstallSettings{APIVersion: payload.APIVersion, Kind: payload.KindSettings, Configs: slices.Clone(b.Configs)}
		changed.Configs[0].Content += "debug = \"false\"\n"
		text, err := json.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		d.write("settings.json", string(text))
		o := d.fairlead(nil, "--payload", b.dir, "--settings", d.path("settings.json"))
		if r := o.first(t); r.State != payload.Installed || !r.Restarted {
			t.Fatalf("%+v", r)
		}
		again := d.cri().pod(t, "again", "runsc")
		for _, id := range []string{id, again} {
			d.sandboxed(id)
			d.cri().remove(t, id)
		}
		d.uninstall("gvisor")
		d.serves("runc", "foreign")
		same(t, before, d.configFiles())
		d.bare()
	})
}

// sandboxed fails unless the container of a pod runs, and on another kernel.
func (d *daemon) sandboxed(id string) {
	d.Helper()
	host, err := os.ReadFile("/proc/version")
	if err != nil {
		d.Fatal(err)
	}
	d.cri().exec(d.T, id, "sh", "-c", `kernel=$(cat /proc/version) && [ "$kernel" != "$0" ]`, strings.TrimSpace(string(host)))
}

// A node without any configuration of containerd's, or with one that says little,
// has its own handlers afterwards.
func TestSparseConfigurations(t *testing.T) {
	for _, r := range releases(t) {
		t.Run(r.name, func(t *testing.T) {
			d := start(t, r, "")
			head := d.adminConfig()[:strings.Index(d.adminConfig(), "[plugins")]
			d.write("etc/config.toml", head)
			d.restart()
			d.serves("runc")
			before := d.configFiles()
			d.install(small(t, "test", "1"))
			d.serves("runc", "test")
			d.install(small(t, "other", "1"))
			d.serves("runc", "test", "other")
			d.uninstall("test")
			d.serves("runc", "other")
			d.uninstall("other")
			d.serves("runc")
			same(t, before, d.configFiles())
			d.bare()
		})
	}
}

func (d *daemon) restart() {
	d.Helper()
	if out, err := exec.Command(d.path("restart")).CombinedOutput(); err != nil {
		d.Fatalf("%v: %s", err, out)
	}
	d.await()
}

// What an admin or another tool writes while a runtime is installed stays.
func TestEditsByOthers(t *testing.T) {
	under(t, func(t *testing.T, d *daemon) {
		before := d.configFiles()[configName(d)]
		d.install(small(t, "test", "1"))
		edit := d.edit("later")
		d.install(small(t, "test", "2"))
		d.serves("runc", "foreign", "later", "test")
		d.uninstall("test")
		d.serves("runc", "foreign", "later")
		if got := d.configFiles()[configName(d)]; !strings.HasPrefix(got, before) || !strings.HasSuffix(got, edit) {
			t.Fatalf("%s", got)
		}
	})
}

// configName is what tree calls the daemon's configuration.
func configName(d *daemon) string { return "/" + filepath.Base(d.config()) }

// edit adds a handler to the configuration as an admin does, and is the text.
func (d *daemon) edit(handler string) string {
	d.Helper()
	edit := "\n[" + d.plugin() + ".containerd.runtimes." + handler + "]\n  runtime_type = \"io.containerd.runc.v2\" # by an admin\n"
	if d.isCRIO() {
		edit = "\n[crio.runtime.runtimes." + handler + "]\n  runtime_path = \"" + d.path("runc") + "\" # by an admin\n"
	}
	f, err := os.OpenFile(d.config(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		d.Fatal(err)
	}
	_, err = f.WriteString(edit)
	if err := errors.Join(err, f.Close()); err != nil {
		d.Fatal(err)
	}
	return edit
}

// An edit that comes in the middle of a change that fails stays, too.
func TestEditDuringARollback(t *testing.T) {
	under(t, func(t *testing.T, d *daemon) {
		before := d.configFiles()[configName(d)]
		d.install(small(t, "test", "1"))
		bad := small(t, "test", "2")
		bad.Checks = []payload.Check{{Name: "edit", Command: []string{"edit", d.config()}}}
		bad.add(t, "edit", []byte("#!/bin/sh\nprintf '\\n# a late word' >>$1\nexit 1\n"), "0755")
		bad.save(t)
		r := d.fairlead(nil, "--payload", bad.dir).first(t)
		if r.State != payload.RolledBack {
			t.Fatalf("%+v", r)
		}
		d.serves("runc", "foreign", "test")
		d.install(small(t, "test", "1"))
		d.uninstall("test")
		if got := d.configFiles()[configName(d)]; !strings.HasPrefix(got, before) || !strings.HasSuffix(got, "\n# a late word") {
			t.Fatalf("%q", got)
		}
	})
}

// What is changed under a process that stays is put back: a program, and the place in
// the configuration, which is a file of its own from 2.0 on and a block before.
func TestDrift(t *testing.T) {
	under(t, func(t *testing.T, d *daemon) {
		cmd := d.command(nil, "--payload", small(t, "test", "1").dir, "--stay")
		said, err := os.Create(d.path("said"))
		if err != nil {
			t.Fatal(err)
		}
		defer said.Close()
		cmd.Stderr = said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if data, err := os.ReadFile(d.path("said")); err == nil && t.Failed() {
				t.Logf("it said:\n%s", data)
			}
		}()
		until(t, "it is ready", func() bool { return exists(d.path("ready")) && d.version("test", "1") != "" })
		// Where this machine has a kubelet, as of another test, the first probe fails with a
		// warning about that, once.
		o := run(t, d.command(nil, "--ready"))
		if o.code != 0 && strings.Contains(o.stderr, "InstallWarning: ") {
			o = run(t, d.command(nil, "--ready"))
		}
		if o.code != 0 {
			t.Errorf("the probe ended with %d: %s", o.code, o.stderr)
		}
		// It says again that it is ready when a repair is done.
		if err := os.Remove(d.path("ready")); err != nil {
			t.Fatal(err)
		}
		shim := filepath.Join(d.version("test", "1"), "shim")
		if err := os.WriteFile(shim, []byte("x"), 0o755); err != nil {
			t.Fatal(err)
		}
		d.unhook("test")
		until(t, "it is ready again", func() bool { return exists(d.path("ready")) })
		if data, err := os.ReadFile(shim); err != nil || !strings.HasPrefix(string(data), "#!") {
			t.Errorf("the shim is not back: %v %q", err, data)
		}
		if !d.hooked("test") {
			t.Error("the handler is not back in the configuration")
		}
		d.serves("runc", "foreign", "test")
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("it ended with %v", err)
		}
		if exists(d.path("ready")) {
			t.Error("it is still ready")
		}
		d.unhook("test")
		if r := d.install(small(t, "test", "1"))[0]; r.State != payload.Installed || !d.hooked("test") {
			t.Errorf("%+v", r)
		}
		d.serves("runc", "foreign", "test")
	})
}

// drop is the file of a type, where a daemon merges files.
func (d *daemon) drop(kind string) string {
	if d.isCRIO() {
		return d.path("etc/crio.conf.d/99-fairlead-" + kind + ".conf")
	}
	return filepath.Join(d.path("etc"), "conf.d/fairlead-"+kind+".toml")
}

// hooked says whether a type is in the configuration where this release reads it, and
// only there.
func (d *daemon) hooked(kind string) bool {
	d.Helper()
	data, err := os.ReadFile(d.config())
	if err != nil {
		d.Fatal(err)
	}
	block := strings.Contains(string(data), "io.containerd."+kind+".v1") || strings.Contains(string(data), d.path("usr/"+kind)+"/")
	if d.major == 1 {
		return block && !exists(d.drop(kind))
	}
	return exists(d.drop(kind)) && !block
}

// unhook takes a type out of the configuration as an admin would who wants it gone.
func (d *daemon) unhook(kind string) {
	d.Helper()
	if !d.hooked(kind) {
		d.Fatalf("%s is not in the configuration", kind)
	}
	var err error
	if d.major == 1 {
		err = os.WriteFile(d.config(), []byte(d.adminConfig()), 0o644)
	} else {
		err = os.Remove(d.drop(kind))
	}
	if err != nil || d.hooked(kind) {
		d.Fatalf("take %s out of the configuration: %v", kind, err)
	}
}

// until waits for something that comes by itself.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 600 {
		if is() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("a minute has passed, and not yet so: %s", what)
}

// A binary that runs is neither written to nor taken away: another payload of the
// same version has a folder of its own, and one that fails leaves the first.
func TestBusyBinary(t *testing.T) {
	underBoth(t, func(t *testing.T, d *daemon) {
		b := small(t, "test", "1")
		b.addFrom(t, "sleep", "/bin/sleep")
		d.install(b.save(t))
		first := d.version("test", "1")
		busy := exec.Command(filepath.Join(first, "sleep"), "600")
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = busy.Process.Kill()
			_ = busy.Wait()
		}()
		bad := small(t, "test", "1")
		bad.addFrom(t, "sleep", "/bin/false")
		bad.Checks = []payload.Check{{Name: "fails", Command: []string{"sleep"}}}
		if r := d.fairlead(nil, "--payload", bad.save(t).dir).first(t); r.State != payload.RolledBack {
			t.Fatalf("%+v", r)
		}
		if d.version("test", "1") != first {
			t.Fatalf("after a change that failed there is %s, and was %s", d.version("test", "1"), first)
		}
		other := small(t, "test", "1")
		other.addFrom(t, "sleep", "/bin/true")
		d.install(other.save(t))
		found, err := filepath.Glob(d.path("usr/test/1-*"))
		if err != nil || len(found) != 2 {
			t.Fatalf("under a process there are %v: %v", found, err)
		}
		_ = busy.Process.Kill()
		_ = busy.Wait()
		d.install(other)
		if second := d.version("test", "1"); second == first || exec.Command(filepath.Join(second, "sleep"), "600").Run() != nil {
			t.Errorf("the new binary is not in place: %s", second)
		}
	})
}

// A hundred cycles leave nothing, and no handler is lost in any of them.
func TestHundredCycles(t *testing.T) {
	if testing.Short() {
		t.Skip("a hundred restarts take too long for -short")
	}
	underBoth(t, func(t *testing.T, d *daemon) {
		before := d.configFiles()
		b := small(t, "test", "1")
		for range 100 {
			d.install(b)
			d.serves("runc", "foreign", "test")
			d.uninstall("test")
		}
		d.serves("runc", "foreign")
		same(t, before, d.configFiles())
		d.bare()
	})
}
