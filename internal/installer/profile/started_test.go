package profile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// host is a node of an operating system: its files, and how it starts containerd.
type host struct {
	release string
	files   []string
	// line is containerd's command line, and sealed where nothing can be written.
	line, sealed string
	// system is the name and the binary path of the profile, main what containerd is to
	// read, origin what that is made of, and ctr where that is.
	system, main, origin, ctr string
}

func TestHosts(t *testing.T) {
	const unit = "/etc/systemd/system/containerd.service.d/50-fairlead.conf"
	for name, h := range map[string]host{
		"ubuntu": {
			release: "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"", files: []string{"usr/bin/ctr", "etc/containerd/config.toml"}, line: "/usr/bin/containerd",
			system: "ubuntu /usr/bin", main: ContainerdMain, ctr: "/usr/bin/ctr",
		},
		"ubuntu with a file elsewhere": {
			release: "ID=ubuntu", files: []string{"etc/containerd/site.toml"}, line: "/usr/bin/containerd -c /etc/containerd/site.toml",
			system: "ubuntu /usr/bin", main: "/etc/containerd/site.toml",
		},
		"debian": {
			release: "ID=debian\nVERSION_ID=\"12\"", files: []string{"usr/bin/ctr"}, line: "/usr/bin/containerd --log-level warn",
			system: "debian /usr/bin", main: ContainerdMain, ctr: "/usr/bin/ctr",
		},
		"gardenlinux": {
			release: "ID=gardenlinux\nID_LIKE=debian", line: "/usr/bin/containerd", system: "debian /usr/bin", main: ContainerdMain,
		},
		"flatcar": {
			release: "ID=flatcar\nID_LIKE=coreos", files: []string{"usr/bin/ctr", "usr/share/containerd/config.toml"},
			line: "/usr/bin/containerd --config /usr/share/containerd/config.toml", sealed: "/usr/",
			system: "coreos /var/bin", main: ContainerdMain, origin: "/usr/share/containerd/config.toml", ctr: "/usr/bin/ctr",
		},
		"flatcar with a drop-in": {
			release: "ID=flatcar\nID_LIKE=coreos", files: []string{"etc/containerd/config.toml"}, line: "/usr/bin/containerd --config=/etc/containerd/config.toml", sealed: "/usr/",
			system: "coreos /var/bin", main: ContainerdMain,
		},
		"suse-chost": {
			release: "ID=sles\nVARIANT_ID=chost\nID_LIKE=suse", files: []string{"usr/sbin/ctr"}, line: "/usr/sbin/containerd --config /etc/containerd/config.toml",
			system: "suse-chost /usr/sbin", main: ContainerdMain, ctr: "/usr/sbin/ctr",
		},
		"suse-chost without ctr": {
			release: "ID=suse-chost", line: "/usr/sbin/containerd", system: "suse-chost /usr/sbin", main: ContainerdMain,
		},
		"rhel": {
			release: "ID=\"rhel\"\nID_LIKE=\"fedora\"", files: []string{"usr/bin/ctr"}, line: "/usr/bin/containerd", system: "rhel /usr/bin", main: ContainerdMain, ctr: "/usr/bin/ctr",
		},
		"amazon linux": {
			release: "ID=\"amzn\"\nID_LIKE=\"fedora\"", line: "/usr/bin/containerd", system: "rhel /usr/bin", main: ContainerdMain,
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			touch(t, root, append(h.files, "etc/os-release", "run/containerd/containerd.sock", "proc/7/cmdline")...)
			for path, text := range map[string]string{"etc/os-release": h.release + "\n", "proc/7/cmdline": strings.ReplaceAll(h.line, " ", "\x00") + "\x00"} {
				if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			system, err := DetectOS(root, "")
			if err != nil || system.Name+" "+system.BinaryPath != h.system {
				t.Errorf("%+v %v", system, err)
			}
			if got := system.FindCtr(root); got != h.ctr {
				t.Errorf("ctr is %q", got)
			}
			d, err := Detect(root, Choice{})
			if err != nil {
				t.Fatal(err)
			}
			start, err := ReadStart(filepath.Join(root, "proc"), 7)
			if err != nil {
				t.Fatal(err)
			}
			d, err = d.StartedAs(Process{Start: start, Unit: "containerd.service", Write: func(path string) error {
				if h.sealed != "" && strings.HasPrefix(path, h.sealed) {
					return syscall.EROFS
				}
				return nil
			}})
			if err != nil || d.Containerd.Main != h.main || d.Containerd.Origin != h.origin {
				t.Errorf("%+v %v", d.Containerd, err)
			}
			if h.main != ContainerdMain {
				return
			}
			if want := "--config " + ContainerdMain; d.Containerd.Starter != unit || !strings.Contains(string(d.Containerd.Start), want) || strings.Contains(string(d.Containerd.Start), "/usr/share/") {
				t.Errorf("%s: %s", d.Containerd.Starter, d.Containerd.Start)
			}
		})
	}
}

// What a unit puts in order before it starts containerd is kept in the drop-in that has it
// started with another file, also once that drop-in is the one that counts.
func TestStartedByEnv(t *testing.T) {
	const unit, line = "containerd.service", "ExecStart=/usr/bin/env PATH=${TORCX_BINDIR}:${PATH} A=b containerd --config /usr/share/containerd/config.toml"
	root := t.TempDir()
	put := func(path, text string) {
		t.Helper()
		touch(t, root, path)
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("usr/lib/systemd/system/"+unit, "[Service]\n"+line+"\n")
	process := Process{
		Start: Start{Args: []string{"/usr/bin/containerd", "--config", "/usr/share/containerd/config.toml"}, Env: map[string]string{"PATH": "/run/torcx/bin:/usr/bin"}},
		Unit:  unit,
		Write: func(string) error { return syscall.EROFS },
	}
	for range 2 {
		process.Before = distributions[0].Before(root, unit, process.Env)
		d, err := distributions[0].StartedAs(process)
		if want := "\nExecStart=/usr/bin/env PATH=/run/torcx/bin:/usr/bin A=b /usr/bin/containerd --config " + ContainerdMain + "\n"; err != nil || !strings.Contains(string(d.Containerd.Start), want) {
			t.Errorf("%s %v, want %s", d.Containerd.Start, err, want)
		}
		put(d.Containerd.Starter, string(d.Containerd.Start))
	}
	put("usr/lib/systemd/system/plain.service", "[Service]\nExecStart=/usr/bin/containerd\n")
	for _, name := range []string{"plain.service", "none.service"} {
		if got := distributions[0].Before(root, name, nil); len(got) > 0 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestStartedAsRefuses(t *testing.T) {
	d := distributions[0]
	for name, c := range map[string]struct {
		args  []string
		unit  string
		write error
		want  string
	}{
		"relative":    {[]string{"/usr/bin/containerd", "--config", "x.toml"}, "containerd.service", nil, "no absolute path"},
		"no systemd":  {[]string{"/usr/bin/containerd", "--config", "/usr/x.toml"}, "", syscall.EROFS, "which is read-only; start it with --config /etc/containerd/config.toml"},
		"not mounted": {[]string{"/usr/bin/containerd", "--config", "/opt/x.toml"}, "containerd.service", errors.New("is not mounted"), "is not mounted"},
		"a bad word":  {[]string{"/usr/bin/containerd", "a\nb"}, "containerd.service", nil, "control character"},
	} {
		if _, err := d.StartedAs(Process{Start: Start{Args: c.args}, Unit: c.unit, Write: func(string) error { return c.write }}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, d := range distributions[1:] {
		if got, err := d.StartedAs(Process{Start: Start{Args: []string{"x"}}}); err != nil || got.Containerd.Main != d.Containerd.Main || got.CRIO != d.CRIO {
			t.Errorf("%s: %+v %v", d.Name, got, err)
		}
	}
}

// CRI-O takes a file and a folder, by flags or variables; flags count more.
func TestCRIOStartedAs(t *testing.T) {
	const file, folder = "/etc/crio/crio.conf", "/etc/crio/crio.conf.d"
	sealed := func(path string) error { return errors.New(path + " is sealed") }
	for name, c := range map[string]struct {
		line      string
		env       map[string]string
		write     func(string) error
		main, dir string
		said      bool
		refused   string
	}{
		"nothing said":         {line: "crio", main: file, dir: folder},
		"other flags":          {line: "crio --listen /config --registries-conf /c --selinux", main: file, dir: folder},
		"a file":               {line: "crio --config /a.conf", main: "/a.conf", dir: folder, said: true},
		"both":                 {line: "crio --config=/a.conf --config-dir=/a.d", main: "/a.conf", dir: "/a.d", said: true},
		"short":                {line: "crio -c /a.conf -d /a.d", main: "/a.conf", dir: "/a.d", said: true},
		"with one dash":        {line: "crio -config /a.conf -config-dir=/a.d", main: "/a.conf", dir: "/a.d", said: true},
		"the last counts":      {line: "crio -c /b.conf -c /a.conf -d /b.d -d /a.d", main: "/a.conf", dir: "/a.d", said: true},
		"a folder alone":       {line: "crio --config-dir /a.d", main: file, dir: "/a.d"},
		"variables":            {line: "crio", env: map[string]string{"CONTAINER_CONFIG": "/a.conf", "CONTAINER_CONFIG_DIR": "/a.d"}, main: "/a.conf", dir: "/a.d", said: true},
		"flags over variables": {line: "crio -c /a.conf -d /a.d", env: map[string]string{"CONTAINER_CONFIG": "/b.conf", "CONTAINER_CONFIG_DIR": "/b.d"}, main: "/a.conf", dir: "/a.d", said: true},
		"no files at all":      {line: "crio --config= --config-dir=", said: true},
		"relative":             {line: "crio -c a.conf", refused: "no absolute path"},
		"a relative folder":    {line: "crio -d a.d", refused: "no absolute path"},
		"sealed":               {line: "crio -d /a.d", write: sealed, refused: "/a.d is sealed"},
		"its own":              {line: "crio -d " + folder, write: sealed, main: file, dir: folder},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := Detect(t.TempDir(), Choice{Name: "crio"})
			if err != nil {
				t.Fatal(err)
			}
			if c.write == nil {
				c.write = func(string) error { return nil }
			}
			s := Start{Args: strings.Fields(c.line), Env: c.env}
			got, err := d.StartedAs(Process{Start: s, Write: c.write})
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%+v %v", got.CRIO, err)
				}
				return
			}
			if err != nil || got.CRIO.Main != c.main || got.CRIO.DropIns != c.dir {
				t.Errorf("%+v %v", got.CRIO, err)
			}
			if _, said := d.Config(s); said != c.said {
				t.Errorf("said is %t", said)
			}
		})
	}
}

// What a process was started with is in its folder of /proc.
func TestReadStart(t *testing.T) {
	proc := t.TempDir()
	touch(t, proc, "7/cmdline", "7/environ")
	for path, text := range map[string]string{"7/cmdline": "/usr/bin/crio\x00-c\x00/a b.conf\x00", "7/environ": "X=1\x00CONTAINER_CONFIG_DIR=/a=b.d\x00bare\x00"} {
		if err := os.WriteFile(filepath.Join(proc, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := ReadStart(proc, 7)
	if err != nil || strings.Join(s.Args, "|") != "/usr/bin/crio|-c|/a b.conf" || len(s.Env) != 2 || s.Env["CONTAINER_CONFIG_DIR"] != "/a=b.d" {
		t.Errorf("%+v %v", s, err)
	}
	if err := os.Remove(filepath.Join(proc, "7/environ")); err != nil {
		t.Fatal(err)
	}
	if s, err := ReadStart(proc, 7); err != nil || len(s.Args) != 3 || len(s.Env) != 0 {
		t.Errorf("without a look at its variables: %+v %v", s, err)
	}
	if _, err := ReadStart(proc, 8); err == nil {
		t.Error("a process that is none was read")
	}
}
