package v1alpha1

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// files writes a tree of files and returns its directory.
func files(t *testing.T, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDefaultIsValid(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestFilesAreMergedInOrder(t *testing.T) {
	dir := files(t, map[string]string{
		"config.toml": `
default_handler = "crun"
[handlers.crun]
[network]
bridge = "br0"
bin_dirs = ["/a", "/b"]
[containers.rlimits]
nofile = { soft = 10, hard = 20 }
core = { soft = 0, hard = "unlimited" }
`,
		"conf.d/20-b.toml": "[network]\nbridge = \"br2\"\nbin_dirs = [\"/c\"]\n[containers.rlimits.nofile]\nsoft = 15\n",
		"conf.d/10-a.toml": "[network]\nbridge = \"br1\"\nmtu = 1400\n[handlers.native]\npath = \"/usr/sbin/runc\"\n[streaming]\nidle_timeout = \"90s\"\n",
		"conf.d/notes.txt": "not = read",
		"conf.d/.x.toml":   "not = read",
	})
	got, err := Load(filepath.Join(dir, "config.toml"), filepath.Join(dir, "conf.d"))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.DefaultHandler = "crun"
	want.Handlers = map[string]Handler{"crun": {}, "native": {Path: "/usr/sbin/runc"}}
	want.Network.Bridge, want.Network.MTU, want.Network.BinDirs = "br2", 1400, []string{"/c"}
	want.Streaming.IdleTimeout = Duration{90 * time.Second}
	want.Containers.Rlimits = map[string]Rlimit{"nofile": {15, 20}, "core": {0, Unlimited}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{})); diff != "" {
		t.Error(diff)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
}

func TestLoadWithoutFiles(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "absent.toml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that was asked for and is absent: %v", err)
	}
	got, err := Load(t.TempDir())
	if err != nil || got.Root != Default().Root {
		t.Errorf("an empty directory: %v", err)
	}
}

func TestMistakesSayWhere(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"unknown key":                 {"\n\n[network]\nbrige = \"x\"\n", []string{":4:1: network.brige: unknown key, did you mean network.bridge?"}},
		"two unknown keys":            {"rout = \"/x\"\nstat = \"/y\"\n", []string{":1:1: rout: unknown key, did you mean root?", ":2:1: stat: unknown key, did you mean state?"}},
		"unknown table":               {"[netwrk]\nbridge = \"x\"\n", []string{":1:2: netwrk", "unknown key, did you mean network?"}},
		"unknown key of a handler":    {"[handlers.x]\npaht = \"/x\"\n", []string{":2:1: handlers.x.paht: unknown key, did you mean handlers.x.path?"}},
		"key in the wrong table":      {"[images]\nidle_timeout = \"1s\"\n", []string{":2:1: images.idle_timeout: unknown key, did you mean streaming.idle_timeout?"}},
		"table forgotten":             {"[log]\ndefault_handler = \"x\"\n", []string{"did you mean default_handler above the first [table]?"}},
		"nothing is near":             {"zzzzzzzzzzzz = 1\n", []string{":1:1: zzzzzzzzzzzz: unknown key"}},
		"string for a number":         {"version = \"1\"\n", []string{":1:11: version: this is a string, but the key takes a number"}},
		"number for a string":         {"[network]\nbridge = 4\n", []string{":2:10: network.bridge: this is an integer, but the key takes a string in quotes"}},
		"number for a duration":       {"[streaming]\ntoken_ttl = 4\n", []string{":2:", "streaming.token_ttl: "}},
		"bad duration":                {"[streaming]\ntoken_ttl = \"4\"\n", []string{":2:13: streaming.token_ttl:", `"4" is no duration`}},
		"bad limit":                   {"[containers.rlimits.core]\nsoft = \"lots\"\n", []string{":2:8: containers.rlimits.core.soft", `"lots" is no limit`}},
		"no value":                    {"version =\n", []string{":1:", "unexpected character"}},
		"open string":                 {"root = \"/x\n", []string{":1:"}},
		"key twice":                   {"root = \"/x\"\nroot = \"/y\"\n", []string{":2:1: root: key root is already defined"}},
		"deep nesting":                {"root = " + strings.Repeat("[", 1<<18), []string{":1:", "nested"}},
		"no text":                     {"\xff\xfe\x00", []string{":1:"}},
		"larger than any such file":   {"#" + strings.Repeat("x", 1<<20), []string{"is larger than"}},
		"a list where a table is due": {"network = []\n", []string{":1:", "network"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := Default()
			err := c.merge("f.toml", []byte(test.text))
			if err == nil {
				t.Fatal("was accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			if !strings.HasPrefix(err.Error(), "f.toml:") {
				t.Errorf("error %q does not begin with the file", err)
			}
		})
	}
}

func TestHandlerInTwoFiles(t *testing.T) {
	c := Default()
	if err := c.merge("a.toml", []byte("\n[handlers.x]\npath = \"/a\"\n")); err != nil {
		t.Fatal(err)
	}
	err := c.merge("b.toml", []byte("[handlers.x]\nroot = \"/b\"\n"))
	if err == nil || err.Error() != "b.toml:1: handlers.x: the handler is in a.toml:2 already; a handler is described in one file" {
		t.Errorf("got %v", err)
	}
}

func TestValuesThatAreRefused(t *testing.T) {
	tests := map[string]string{
		"version = 2":                                      "f.toml:1: version: this is 2",
		"root = \"x\"":                                     `f.toml:1: root: "x" is not an absolute path`,
		"state = \"/var/lib/fairlead\"":                    "f.toml:1: state: ",
		"listen = \"tcp://[::]:80\"":                       "f.toml:1: listen: ",
		"listen = \"fairlead.sock\"":                       "f.toml:1: listen: ",
		"default_handler = \"A\"":                          "f.toml:1: default_handler: ",
		"[cgroup]\ndriver = \"x\"":                         "f.toml:2: cgroup.driver: ",
		"default_handler=\"a\"\n[handlers.b]\n":            `f.toml:1: default_handler: there is no handler "a"; there are b`,
		"[handlers.A]":                                     "f.toml:1: handlers.A: a handler's name is a DNS label",
		"[handlers.a]\ntype=\"vm\"":                        "f.toml:2: handlers.a.type: ",
		"[handlers.a]\npath=\"./x\"":                       "f.toml:2: handlers.a.path: ",
		"[handlers.a]\nmin_version=\"newest\"":             "f.toml:2: handlers.a.min_version: ",
		"[handlers.a]\nroot=\"x\"":                         "f.toml:2: handlers.a.root: ",
		"[handlers.a]\nargs=[\"--root=/\"]":                "f.toml:2: handlers.a.args: --root is Fairlead's to set",
		"handlers = {a = {args=[\"\"]}}":                   "f.toml:1: handlers.a.args: ",
		"[handlers.a]\npod_annotations=[\"*x\"]":           "f.toml:2: handlers.a.pod_annotations: ",
		"[network]\nbridge=\"a/b\"":                        "f.toml:2: network.bridge: ",
		"[network]\nipv4=\"10.0.0.0\"":                     "f.toml:2: network.ipv4: ",
		"[network]\nipv6=\"10.0.0.0/16\"":                  "f.toml:2: network.ipv6: ",
		"[network]\nipv6=\"fd00::/64\"\ndisable_ipv6=true": "f.toml:2: network.ipv6: ",
		"[network]\nmtu=100":                               "f.toml:2: network.mtu: ",
		"[network]\nbin_dirs=[\"x\"]":                      "f.toml:2: network.bin_dirs: ",
		"[network]\nconf_dir=\"\"":                         "f.toml:2: network.conf_dir: ",
		"[images]\nmax_concurrent_downloads=0":             "f.toml:2: images.max_concurrent_downloads: ",
		"[images]\nstall_timeout=\"-1s\"":                  "f.toml:2: images.stall_timeout: ",
		"[images]\nmax_layer_bytes=0":                      "f.toml:2: images.max_layer_bytes: ",
		"[images]\nmax_layer_entries=-1":                   "f.toml:2: images.max_layer_entries: ",
		"[images]\npinned=[\"a/*\", \"a*b\"]":              "f.toml:2: images.pinned: ",
		"[images]\npinned=[\"\"]":                          "f.toml:2: images.pinned: ",
		"[streaming]\naddress=\"localhost\"":               "f.toml:2: streaming.address: ",
		"[streaming]\naddress=\":http\"":                   "f.toml:2: streaming.address: ",
		"[containers]\nmax_log_line=1":                     "f.toml:2: containers.max_log_line: ",
		"[containers.rlimits]\nnofiles={}":                 "f.toml:2: containers.rlimits.nofiles: there is no such resource limit, did you mean nofile?",
		"[containers.rlimits]\ncore={soft=2,hard=1}":       "f.toml:2: containers.rlimits.core: soft, 2, is above hard, 1",
		"[monitor]\npath=\"a/b\"":                          "f.toml:2: monitor.path: ",
		"[log]\nlevel=\"loud\"":                            "f.toml:2: log.level: ",
		"[log]\nformat=\"xml\"":                            "f.toml:2: log.format: ",
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			c := Default()
			if err := c.merge("f.toml", []byte(text)); err != nil {
				t.Fatal(err)
			}
			if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v, want %s...", err, want)
			}
		})
	}
}

func TestFlagsOverrideFiles(t *testing.T) {
	c := Default()
	if err := c.merge("f.toml", []byte("root = \"/from/file\"\nstate = \"/kept\"\n")); err != nil {
		t.Fatal(err)
	}
	flags := Flags()
	for _, f := range flags {
		switch f.Name {
		case "root":
			if f.String() != "/var/lib/fairlead" {
				t.Errorf("default of --root is %q", f.String())
			}
			f.Set("not-absolute")
		case "cgroup-driver":
			f.Set("systemd")
		}
	}
	if err := c.Override(flags); err != nil {
		t.Fatal(err)
	}
	if c.State != "/kept" || c.Cgroup.Driver != "systemd" {
		t.Errorf("state %q, driver %q", c.State, c.Cgroup.Driver)
	}
	if err := c.Validate(); err == nil || err.Error() != `--root: root: "not-absolute" is not an absolute path` {
		t.Errorf("got %v", err)
	}
}

// TestEveryKeyIsDescribed fails for a key without a description or a flag that
// the code cannot set.
func TestEveryKeyIsDescribed(t *testing.T) {
	for _, k := range Keys() {
		if k.Doc == "" || !strings.HasSuffix(k.Doc, ".") {
			t.Errorf("%s: description %q", k.Name, k.Doc)
		}
	}
	walk(nil, reflect.ValueOf(Default()).Elem(), func(key []string, f reflect.StructField, v reflect.Value) {
		if f.Tag.Get("flag") != "" && v.Kind() != reflect.String {
			t.Errorf("%v has a flag and is no string", key)
		}
	})
}

func TestNearest(t *testing.T) {
	known := []string{"runc", "crun", "native", "gvisor"}
	for name, want := range map[string]string{
		"rnuc": "runc", "runc": "runc", "crum": "crun", "natve": "native", "gVisor": "gvisor",
		"kata-containers": "", "": "", "x": "",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}

func FuzzMerge(f *testing.F) {
	f.Add("version = 1\n[handlers.crun]\npath=\"/x\"\n[containers.rlimits]\ncore={soft=0,hard=\"unlimited\"}\n")
	f.Add("network = {bridge = \"x\", \"a\\\"b\" = [1, {c=2}]}")
	f.Add("[[handlers]]\nx=1")
	f.Add("a.b.c = 1979-05-27T07:32:00Z")
	f.Fuzz(func(t *testing.T, text string) {
		c := Default()
		if err := c.merge("f.toml", []byte(text)); err != nil {
			if !strings.HasPrefix(err.Error(), "f.toml:") {
				t.Errorf("error does not name the file: %q", err)
			}
			return
		}
		if err := c.Validate(); err != nil && !strings.HasPrefix(err.Error(), "f.toml:") {
			t.Errorf("a value from the file is wrong, and the error does not name the file: %q", err)
		}
	})
}

func TestJSONHasTheKeysOfTheFile(t *testing.T) {
	c := Default()
	c.Handlers = map[string]Handler{"native": {Path: "/usr/bin/runc"}}
	c.Containers.Rlimits = map[string]Rlimit{"nofile": {Soft: 1024, Hard: Unlimited}}
	out, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"version":1`, `"default_handler":""`, `"conf_dir":"/etc/cni/net.d"`, `"token_ttl":"1m"`,
		`"native":{`, `"path":"/usr/bin/runc"`, `"nofile":{"hard":"unlimited","soft":"1024"}`,
	} {
		if !strings.Contains(string(out), part) {
			t.Errorf("no %s in %s", part, out)
		}
	}
}
