package doctor

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"fairlead.run/internal/installer/cri/critest"
	"fairlead.run/internal/installer/profile"
)

// serve has a runtime at a socket of a node. The process at that socket is this one, and
// its command line is the one given.
func serve(t *testing.T, r *critest.Runtime, socket, line string) Node {
	t.Helper()
	root, _ := r.Serve(t, socket)
	write(t, root, "proc/"+strconv.Itoa(os.Getpid())+"/cmdline", strings.ReplaceAll(line, " ", "\x00")+"\x00", 0o644)
	return Node{Root: root, proc: filepath.Join(root, "proc")}
}

const containerdSocket = "run/containerd/containerd.sock"

func containerdServing(handlers ...string) *critest.Runtime {
	return &critest.Runtime{
		Name: "containerd", Release: "v2.1.0", Handlers: handlers,
		Config: `{"containerd":{"runtimes":{"` + strings.Join(handlers, `":{},"`) + `":{}}}}`,
	}
}

// wanted is a finding that there has to be.
type wanted struct {
	level              Level
	code, object, text string
}

func check(t *testing.T, all []Finding, list ...wanted) {
	t.Helper()
	for _, w := range list {
		if !has(all, w.level, w.code, w.object, w.text) {
			t.Errorf("not found: %+v in\n%+v", w, all)
		}
	}
}

func TestServedAndConfigured(t *testing.T) {
	n := serve(t, containerdServing("runc", "both", "former"), containerdSocket, "/usr/bin/containerd")
	write(t, n.Root, "etc/containerd/config.toml", `version = 3
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.both]
  runtime_type = "/opt/shim"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.new]
  runtime_type = "/opt/shim"
`, 0o644)
	write(t, n.Root, "opt/shim", "", 0o755)
	all := Examine(t.Context(), n)
	check(
		t, all, wanted{OK, "socket", "/" + containerdSocket, "containerd 2.1.0 serves both, former, runc"}, wanted{OK, "handler", "both", "configured and served"},
		wanted{Error, "handler", "new", "config.toml:4 and not served"}, wanted{Warning, "handler", "former", "gone after the next restart"},
	)
	for _, f := range all {
		if f.Object == "runc" {
			t.Errorf("containerd has it by itself: %+v", f)
		}
	}
}

func TestServedAndConfiguredByCRIO(t *testing.T) {
	r := &critest.Runtime{Name: "cri-o", Release: "1.36.3", Handlers: []string{"", "crun", "both", "former"}}
	n := serve(t, r, "run/crio/crio.sock", "/usr/bin/crio")
	const file = "etc/crio/crio.conf.d/10-x.conf"
	write(t, n.Root, file, "[crio.runtime.runtimes.both]\n[crio.runtime.runtimes.new]\n", 0o644)
	all := Examine(t.Context(), n)
	check(t, all, wanted{OK, "handler", "both", "configured and served"}, wanted{Error, "handler", "new", "not served"}, wanted{Warning, "handler", "former", "gone after the next restart"})
	for _, f := range all {
		if f.Code == "handler" && (f.Object == "" || f.Object == "crun") {
			t.Errorf("CRI-O has it by itself: %+v", f)
		}
	}
	// What is in a file that cannot be read is not known.
	write(t, n.Root, file, "[[[", 0o644)
	for _, f := range Examine(t.Context(), n) {
		if f.Code == "handler" {
			t.Errorf("%+v", f)
		}
	}
}

// Flatcar starts containerd with a file below /usr, and /etc/containerd is empty.
func TestConfigurationOfFlatcar(t *testing.T) {
	const config = "/usr/share/containerd/config.toml"
	n := serve(t, containerdServing("runc"), containerdSocket, "/usr/bin/containerd --config "+config)
	write(t, n.Root, "etc/os-release", "ID=flatcar\nID_LIKE=coreos\n", 0o644)
	write(t, n.Root, config, "version = 2\nimports = [\"/etc/none.toml\"]\n", 0o644)
	check(t, Examine(t.Context(), n), wanted{Error, "import", "/etc/none.toml", "not there"}, wanted{OK, "config", config, "version 2, 1 files"})
	// What the user says comes before it.
	n.Override.Config = "/etc/containerd/config.toml"
	check(t, Examine(t.Context(), n), wanted{OK, "config", n.Override.Config, "it is not there"})
	n.Override.Config, n.proc = "", t.TempDir()
	check(t, Examine(t.Context(), n), wanted{Warning, "config", profile.ContainerdMain, "not seen which file"})
}

// Where containerd is down, its unit says what it will read. Its socket may be gone.
func TestConfigurationOfAUnit(t *testing.T) {
	const (
		unit   = "usr/lib/systemd/system/containerd.service"
		config = "/opt/containerd.toml"
		socket = "/" + containerdSocket
	)
	for name, c := range map[string]struct {
		files map[string]string
		want  []wanted
	}{
		"nothing said":    {map[string]string{unit: "[Service]\nExecStart=/usr/bin/containerd\n", profile.ContainerdMain: "version = 3\n"}, []wanted{{OK, "config", profile.ContainerdMain, "version 3, 1 files"}}},
		"neither file":    {map[string]string{unit: "[Service]\nExecStart=/usr/bin/containerd\n"}, []wanted{{OK, "config", profile.ContainerdMain, "built in"}}},
		"another file":    {map[string]string{unit: "[Service]\nExecStart=/usr/bin/containerd -c " + config + "\n", config: "version = 2\nimports = [\"/etc/none.toml\"]\n"}, []wanted{{OK, "config", config, "version 2, 1 files"}, {Error, "import", "/etc/none.toml", "not there"}}},
		"a drop-in":       {map[string]string{unit: "[Service]\nExecStart=/usr/bin/containerd\n", "etc/systemd/system/containerd.service.d/10.conf": "[Service]\nEnvironment=CONFIG=" + config + "\nExecStart=\nExecStart=/usr/bin/env A=b /usr/bin/containerd --config ${CONFIG}\n", config: "version = 3\n"}, []wanted{{OK, "config", config, "version 3, 1 files"}}},
		"it is not there": {map[string]string{unit: "[Service]\nExecStart=/usr/bin/containerd --config=" + config + "\n"}, []wanted{{Error, "config", config, "will not start again"}}},
		"something else":  {map[string]string{unit: "[Service]\nExecStart=/opt/start-it\n"}, []wanted{{Warning, "config", profile.ContainerdMain, "/opt/start-it and names no containerd"}}},
		"no unit":         {map[string]string{containerdSocket: ""}, []wanted{{Warning, "config", profile.ContainerdMain, "there is no such unit"}}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range c.files {
				write(t, root, path, text, 0o644)
			}
			check(t, Examine(t.Context(), Node{Root: root, proc: t.TempDir()}), append(c.want, wanted{Error, "socket", socket, ""})...)
		})
	}
	// Of two runtimes that do not run it is not known which one is meant, unless the kubelet says.
	root := t.TempDir()
	write(t, root, unit, "[Service]\nExecStart=/usr/bin/containerd\n", 0o644)
	write(t, root, "usr/lib/systemd/system/crio.service", "[Service]\nExecStart=/usr/bin/crio\n", 0o644)
	n := Node{Root: root, proc: t.TempDir()}
	check(t, Examine(t.Context(), n), wanted{Error, "runtime", "node", "no socket of a known runtime"})
	n.Choice.Endpoint = "unix:///run/crio/crio.sock"
	check(t, Examine(t.Context(), n), wanted{Error, "socket", "/run/crio/crio.sock", ""})
}

// CRI-O is told its files by its process, its unit or variables.
func TestConfigurationOfCRIO(t *testing.T) {
	const (
		unit   = "usr/lib/systemd/system/crio.service"
		file   = "/opt/crio.conf"
		folder = "/opt/crio.d"
		socket = "run/crio/crio.sock"
		usual  = "/etc/crio/crio.conf"
	)
	here := map[string]string{file: "", folder + "/10-x.conf": "[crio.runtime.runtimes.other]\nruntime_path = \"/opt/none\"\n"}
	reads := []wanted{{OK, "config", file, "2 files, with those in " + folder}, {Error, "binary", "other", "/opt/none"}}
	for name, c := range map[string]struct {
		unit  string
		files map[string]string
		want  []wanted
	}{
		"nothing said":       {"[Service]\nExecStart=/usr/bin/crio $CRIO_CONFIG_OPTIONS\n", map[string]string{usual: ""}, []wanted{{OK, "config", usual, "1 files"}}},
		"no file":            {"[Service]\nExecStart=/usr/bin/crio\n", nil, []wanted{{OK, "config", usual, "built in"}}},
		"flags":              {"[Service]\nExecStart=/usr/bin/crio -c " + file + " \\\n  -d " + folder + "\n", here, reads},
		"flags of a file":    {"[Service]\nEnvironmentFile=-/etc/sysconfig/crio\nExecStart=/usr/bin/crio $CRIO_CONFIG_OPTIONS\n", map[string]string{file: "", folder + "/x": here[folder+"/10-x.conf"], "etc/sysconfig/crio": "CRIO_CONFIG_OPTIONS=\"--config " + file + " --config-dir " + folder + "\"\n"}, reads},
		"variables":          {"[Service]\nEnvironment=CONTAINER_CONFIG=" + file + " CONTAINER_CONFIG_DIR=" + folder + "\nExecStart=/usr/bin/crio\n", here, reads},
		"variables by env":   {"[Service]\nExecStart=/usr/bin/env CONTAINER_CONFIG=" + file + " CONTAINER_CONFIG_DIR=" + folder + " /usr/bin/crio\n", here, reads},
		"it is not there":    {"[Service]\nExecStart=/usr/bin/crio --config " + file + "\n", nil, []wanted{{Error, "config", file, "CRI-O will not start again"}}},
		"nor by a variable":  {"[Service]\nEnvironment=CONTAINER_CONFIG=" + file + "\nExecStart=/usr/bin/crio\n", map[string]string{"etc/crio/crio.conf.d/x.conf": ""}, []wanted{{Error, "config", file, "CRI-O will not start again"}}},
		"garbage":            {"[Service]\nExecStart=/usr/bin/crio --config " + file + "\n", map[string]string{file: "[[["}, []wanted{{Error, "config", "/etc/crio/crio.conf.d", file + ":1"}}},
		"relative":           {"[Service]\nExecStart=/usr/bin/crio --config x.conf\n", nil, []wanted{{Error, "config", "x.conf", "no absolute path"}}},
		"no file is to read": {"[Service]\nExecStart=/usr/bin/crio --config= -d " + folder + "\n", map[string]string{folder + "/10-x.conf": here[folder+"/10-x.conf"]}, []wanted{{OK, "config", folder, "1 files"}, {Error, "binary", "other", "/opt/none"}}},
		"something else":     {"[Service]\nExecStart=/opt/start-it\n", nil, []wanted{{Warning, "config", usual, "/opt/start-it and names no crio"}}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root, unit, c.unit, 0o644)
			for path, text := range c.files {
				write(t, root, path, text, 0o644)
			}
			check(t, Examine(t.Context(), Node{Root: root, proc: t.TempDir()}), append(c.want, wanted{Error, "socket", "/" + socket, ""})...)
		})
	}
	// What runs counts before its unit, and what the user says before that.
	n := serve(t, &critest.Runtime{Name: "cri-o", Release: "1.36.3", Handlers: []string{"crun"}}, socket, "/usr/bin/crio -d "+folder)
	write(t, n.Root, "proc/"+strconv.Itoa(os.Getpid())+"/environ", "CONTAINER_CONFIG="+file+"\x00", 0o644)
	write(t, n.Root, unit, "[Service]\nExecStart=/usr/bin/crio\n", 0o644)
	for path, text := range here {
		write(t, n.Root, path, text, 0o644)
	}
	check(t, Examine(t.Context(), n), reads...)
	n.Override.Config = usual
	check(t, Examine(t.Context(), n), wanted{OK, "config", usual, "it is not there"})
}

func TestNoKubelet(t *testing.T) {
	for _, name := range profile.Names() {
		want := wanted{Warning, "kubelet", "kubelet", "no kubelet is seen"}
		if name == "k3s" || name == "microk8s" {
			want = wanted{OK, "kubelet", "kubelet", name + " has it in its own process"}
		}
		check(t, Examine(t.Context(), Node{Root: t.TempDir(), proc: t.TempDir(), Choice: profile.Choice{Name: name}}), want)
	}
}

// What is configured where the kubelet does not look is told of.
func TestRuntimeThatTheKubeletDoesNotUse(t *testing.T) {
	n := serve(t, containerdServing("runc"), containerdSocket, "/usr/bin/containerd")
	uses := func(endpoint string) []Finding {
		write(t, n.Root, "proc/7/comm", "kubelet\n", 0o644)
		write(t, n.Root, "proc/7/cmdline", "kubelet\x00--container-runtime-endpoint="+endpoint+"\x00", 0o644)
		return Examine(t.Context(), n)
	}
	n.Choice.Name = "containerd"
	const what = "the kubelet uses unix:///run/crio/crio.sock, and what is worked on here is containerd"
	check(t, uses("unix:///run/crio/crio.sock"), wanted{Warning, "kubelet", "/" + containerdSocket, what})
	n.Choice.Name, n.Override.Socket = "", "/run/containerd/other.sock"
	check(t, uses("unix:///"+containerdSocket), wanted{Warning, "kubelet", n.Override.Socket, "the kubelet uses unix:///" + containerdSocket})
	n.Override.Socket = ""
	for _, f := range uses("unix:///var/" + containerdSocket) {
		if f.Code == "kubelet" && f.Level != OK {
			t.Errorf("%+v", f)
		}
	}
}

// A node has gone back from containerd 2.x to 1.x, which has no CRI with a file of ours. With
// a table after that it has, and something else is why.
func TestContainerdThatWentBack(t *testing.T) {
	for name, after := range map[string]string{"": "", "after": "[plugins.\"io.containerd.grpc.v1.cri\"]\n"} {
		n := serveNothing(t)
		const table = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.a]\n  runtime_type = \"/opt/a\"\n"
		write(t, n.Root, "etc/containerd/config.toml", "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n", 0o644)
		write(t, n.Root, "etc/containerd/conf.d/fairlead-a.toml", table, 0o644)
		write(t, n.Root, "etc/containerd/conf.d/z.toml", "version = 2\n"+after, 0o644)
		all := Examine(t.Context(), n)
		found := has(all, Error, "config", "/etc/containerd/conf.d/fairlead-a.toml", "without the CRI")
		if found != (after == "") {
			t.Errorf("%q: %+v", name, all)
		}
	}
}

// serveNothing is a node whose containerd answers without the CRI.
func serveNothing(t *testing.T) Node {
	t.Helper()
	root, err := os.MkdirTemp("", "doctor") // as a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.MkdirAll(filepath.Dir(filepath.Join(root, containerdSocket)), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(root, containerdSocket))
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return Node{Root: root, proc: t.TempDir(), Choice: profile.Choice{Name: "containerd"}}
}
