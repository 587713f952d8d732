package installer

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/test/node"
)

// becomes has the node run another release of containerd from now on, on what the first one
// has left.
func (d *daemon) becomes(r release) {
	d.Helper()
	d.mu.Lock()
	d.program, d.major, d.minor = r.program, r.major, r.minor
	d.mu.Unlock()
	d.restart()
}

// A node has a newer containerd than when a runtime was installed: that is upgraded and
// uninstalled, and the admin's file is as it was, also where containerd's own command has
// written it anew meanwhile.
func TestContainerdIsUpgraded(t *testing.T) {
	all := releases(t)
	for _, old := range all[1:] {
		for _, migrate := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s to %s, migrated %v", old.name, all[0].name, migrate), func(t *testing.T) {
				d := start(t, old, "")
				before := d.configFiles()
				plain := d.cri().pod(t, "plain", "")
				d.install(small(t, "test", "1"), small(t, "other", "1"))
				d.serves("runc", "foreign", "test", "other")
				if migrate {
					d.migrate(all[0])
				}
				d.becomes(all[0])
				d.serves("runc", "foreign", "test", "other")
				d.uninstall("other")
				d.serves("runc", "foreign", "test")
				d.install(small(t, "test", "2"))
				d.serves("runc", "foreign", "test")
				if d.version("test", "2") == "" || d.version("test", "1") != "" {
					t.Error("the old version is not replaced")
				}
				d.uninstall("test")
				d.serves("runc", "foreign")
				if migrate {
					if text := d.configFiles()[configName(d)]; strings.Contains(text, "runtimes.test") || strings.Contains(text, "runtimes.other") || strings.Contains(text, "fairlead-") {
						t.Errorf("it is\n%s", text)
					}
				} else {
					same(t, before, d.configFiles())
				}
				if !d.cri().runs(t, plain) {
					t.Error("a pod has ended")
				}
				d.bare()
			})
		}
	}
}

// A node's containerd goes from 1.x to 2.x under a runtime that pods use: they run on, also
// when that is upgraded, and keep it from being uninstalled.
func TestPodsOutliveAnUpgradeOfContainerd(t *testing.T) {
	all := releases(t)
	to := all[0]
	for _, from := range all[1:] {
		t.Run(from.name, func(t *testing.T) {
			d := start(t, from, "")
			before := d.configFiles()
			d.install(d.kata("1"))
			plain, first := d.cri().pod(t, "plain", ""), d.cri().pod(t, "first", "kata")

			d.becomes(to)
			d.serves("runc", "foreign", "kata")
			if !d.cri().runs(t, plain) || !d.cri().runs(t, first) {
				t.Fatal("the upgrade of containerd has ended a pod")
			}
			o := d.fairlead(nil, "uninstall", "kata-containers")
			if r := o.first(t); r.State != payload.Refused || r.Reason != payload.InUse || !strings.Contains(r.Message, "test/first") {
				t.Fatalf("uninstalled under a pod: %+v", r)
			}
			d.install(d.kata("2"))
			d.serves("runc", "foreign", "kata")
			second := d.cri().pod(t, "second", "kata")
			if !d.cri().runs(t, first) {
				t.Fatal("the upgrade of the runtime has ended a pod")
			}
			for _, id := range []string{plain, first, second} {
				d.cri().remove(t, id)
			}
			d.uninstall("kata-containers")
			d.serves("runc", "foreign")
			same(t, before, d.configFiles())
			d.bare()
		})
	}
}

// A node's containerd goes back from 2.x to 1.x, which serves no CRI with our file in its
// imports. What says so names the file; once its import is out, all goes on.
func TestContainerdGoesBack(t *testing.T) {
	all := releases(t)
	for _, old := range all[1:] {
		t.Run(old.name, func(t *testing.T) {
			d := start(t, old, "")
			before := d.configFiles()
			admins, err := os.ReadFile(d.config())
			if err != nil {
				t.Fatal(err)
			}
			d.becomes(all[0])
			d.install(small(t, "test", "1"))
			d.serves("runc", "foreign", "test")

			d.mu.Lock()
			d.program, d.major, d.minor = old.program, old.major, old.minor
			d.mu.Unlock()
			if out, err := exec.Command(d.path("restart")).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			own := d.path("etc/conf.d/fairlead-test.toml")
			said := func() payload.InstallResult { return d.fairlead(nil, "uninstall", "test").first(t) }
			r := said()
			for n := 0; n < 600 && strings.Contains(r.Message, "connect"); n++ { // it begins
				time.Sleep(100 * time.Millisecond)
				r = said()
			}
			if r.State != payload.Refused || r.Reason != payload.RuntimeUnavailable || !strings.Contains(r.Message, own) || !strings.Contains(r.Message, d.config()) {
				t.Fatalf("%+v", r)
			}
			out, err := exec.Command(filepath.Join(node.Bin, "fairlead"), "node", "doctor", "--distribution", "containerd", "--cri-socket", d.socket(), "--cri-config", d.config()).CombinedOutput()
			if !strings.Contains(string(out), "take the import of it out of "+d.config()) {
				t.Fatalf("%v: %s", err, out)
			}

			d.write("etc/config.toml", string(admins))
			d.restart()
			d.serves("runc", "foreign")
			d.install(small(t, "test", "2"))
			d.serves("runc", "foreign", "test")
			if _, err := os.Stat(own); err == nil {
				t.Errorf("%s is left", own)
			}
			d.uninstall("test")
			d.serves("runc", "foreign")
			same(t, before, d.configFiles())
			d.bare()
		})
	}
}

// migrate has a release write the configuration anew, as for an upgrade to it.
func (d *daemon) migrate(r release) {
	d.Helper()
	text, err := exec.Command(r.program, "--config", d.config(), "config", "migrate").Output()
	if err != nil {
		d.Fatalf("containerd config migrate: %v", err)
	}
	d.write("etc/config.toml", string(text))
}

// Handlers that containerd has by tables from before it had a table of handlers are served
// after as before, beside others and alone.
func TestOldTables(t *testing.T) {
	for _, r := range releases(t) {
		if r.major > 1 {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			d := start(t, r, "")
			config := d.adminConfig()
			tables := fmt.Sprintf("\n[%[1]s.containerd.default_runtime]\n  runtime_type = \"io.containerd.runc.v2\"\n[%[1]s.containerd.untrusted_workload_runtime]\n  runtime_type = \"io.containerd.runc.v2\"\n", d.plugin())
			for name, c := range map[string]struct {
				config string
				served []string
			}{
				"beside": {config + tables, []string{"default", "foreign", "runc", "untrusted"}},
				"alone":  {config[:strings.Index(config, "      [plugins")] + tables, []string{"default", "runc", "untrusted"}},
			} {
				d.write("etc/config.toml", c.config)
				d.restart()
				d.serves(c.served...)
				d.install(small(t, "test", "1"))
				d.serves(append(c.served, "test")...)
				d.uninstall("test")
				d.serves(c.served...)
				if text, err := os.ReadFile(d.config()); err != nil || string(text) != c.config {
					t.Errorf("%s: %v, it is\n%s", name, err, text)
				}
			}
			d.bare()
		})
	}
}

// A daemon that would not come back from the restart, or without CRI, is left as it is.
func TestUninstallThatWouldEndTheCRI(t *testing.T) {
	underEach(t, func(t *testing.T, d *daemon) {
		d.install(small(t, "test", "1"))
		good, err := os.ReadFile(d.config())
		if err != nil {
			t.Fatal(err)
		}
		at := strings.Index(string(good), "      [plugins")
		_, rest, _ := strings.Cut(string(good), "# containerd of this machine")
		for name, c := range map[string]struct{ config, says string }{
			"dangling import": {"imports = [\"/none/such.toml\", \"" + d.path("etc/conf.d") + "/*.toml\"]\n# containerd of this machine" + strings.Replace(rest, "\nimports = ", "\n# imports = ", 1), "/none/such.toml"},
			"default":         {string(good[:at]) + "      [" + d.plugin() + ".containerd]\n  default_runtime_name = \"test\"\n" + string(good[at:]), "default_runtime_name is test"},
		} {
			if name == "default" && d.major == 1 {
				c.config = strings.Replace(string(good), "    snapshotter = \"native\"\n", "    snapshotter = \"native\"\n    default_runtime_name = \"test\"\n", 1)
			}
			d.write("etc/config.toml", c.config)
			before, starts := d.configFiles(), d.starts()
			if r := d.fairlead(nil, "uninstall", "test").first(t); r.State != payload.Refused || !strings.Contains(r.Message, c.says) || d.starts() != starts {
				t.Errorf("%s: after %d starts %+v", name, d.starts()-starts, r)
			}
			same(t, before, d.configFiles())
			d.serves("runc", "foreign", "test")
		}
		d.write("etc/config.toml", string(good))
		d.uninstall("test")
		d.serves("runc", "foreign")
		d.bare()
	})
}
