package spec

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/spec/host"
)

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

func TestCapabilities(t *testing.T) {
	all := sorted(plainHost().Capabilities)
	without := func(from []string, names ...string) []string {
		return slices.DeleteFunc(sorted(from), func(n string) bool { return slices.Contains(names, n) })
	}
	with := func(from []string, names ...string) []string { return sorted(slices.Concat(from, names)) }
	type list = []string
	for name, tt := range map[string]struct {
		c             *pod.Capabilities
		have, ambient []string
	}{
		"nothing said":     {nil, sorted(defaultCapabilities), nil},
		"add":              {&pod.Capabilities{Add: list{"net_admin", "CAP_SYS_TIME", "CHOWN"}}, with(defaultCapabilities, "CAP_NET_ADMIN", "CAP_SYS_TIME"), nil},
		"drop":             {&pod.Capabilities{Drop: list{"NET_RAW", "cap_kill"}}, without(defaultCapabilities, "CAP_NET_RAW", "CAP_KILL"), nil},
		"drop all":         {&pod.Capabilities{Drop: list{"ALL"}}, nil, nil},
		"drop all, add":    {&pod.Capabilities{Add: list{"NET_BIND_SERVICE"}, Drop: list{"all"}}, list{"CAP_NET_BIND_SERVICE"}, nil},
		"add all":          {&pod.Capabilities{Add: list{"All"}}, all, nil},
		"add all, drop":    {&pod.Capabilities{Add: list{"ALL"}, Drop: list{"SYS_ADMIN"}}, without(all, "CAP_SYS_ADMIN"), nil},
		"add and drop one": {&pod.Capabilities{Add: list{"SYS_ADMIN"}, Drop: list{"SYS_ADMIN"}}, sorted(defaultCapabilities), nil},
		"ambient":          {&pod.Capabilities{Drop: list{"ALL"}, Ambient: list{"NET_BIND_SERVICE"}}, list{"CAP_NET_BIND_SERVICE"}, list{"CAP_NET_BIND_SERVICE"}},
		"ambient, dropped": {&pod.Capabilities{Drop: list{"KILL"}, Ambient: list{"KILL"}}, without(defaultCapabilities, "CAP_KILL"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			tc := plain(t)
			tc.c.Security.Capabilities = tt.c
			w := tc.spec(t)
			c := w.spec.Process.Capabilities
			same(t, "bounding", c.Bounding, tt.have)
			same(t, "effective", c.Effective, tt.have)
			same(t, "permitted", c.Permitted, tt.have)
			same(t, "inheritable", c.Inheritable, tt.ambient)
			same(t, "ambient", c.Ambient, tt.ambient)
			if len(w.warnings) > 0 {
				t.Errorf("warnings %v", w.warnings)
			}
		})
	}
	for field, c := range map[string]pod.Capabilities{
		"add_capabilities[1]": {Add: list{"KILL", "FLY"}}, "drop_capabilities[0]": {Drop: list{"NET_RAWW"}}, "add_ambient_capabilities[0]": {Ambient: list{""}},
	} {
		tc := plain(t)
		tc.c.Security.Capabilities = &c
		tc.refused(t, errdefs.ErrInvalidArgument, field)
	}
}

// What the host lacks is left out: the runtimes fail to raise it.
func TestCapabilitiesThatTheHostLacks(t *testing.T) {
	tc := plain(t)
	lacks := func(n string) bool { return n == "CAP_SYS_RESOURCE" || n == "CAP_KILL" }
	tc.cfg.Host.Capabilities = slices.DeleteFunc(tc.cfg.Host.Capabilities, lacks)
	tc.c.Security.Capabilities = &pod.Capabilities{Add: []string{"SYS_RESOURCE"}}
	w := tc.spec(t)
	if slices.ContainsFunc(w.spec.Process.Capabilities.Bounding, lacks) {
		t.Errorf("has %v", w.spec.Process.Capabilities.Bounding)
	}
	if len(w.warnings) != 1 || !strings.Contains(w.warnings[0], "CAP_SYS_RESOURCE") {
		t.Errorf("warnings %v", w.warnings)
	}
	tc = privileged(t)
	tc.cfg.Host.Capabilities = slices.DeleteFunc(tc.cfg.Host.Capabilities, lacks)
	w = tc.spec(t)
	same(t, "privileged", w.spec.Process.Capabilities.Bounding, sorted(tc.cfg.Host.Capabilities))
	if len(w.warnings) != 1 || !strings.Contains(w.warnings[0], "CAP_KILL, CAP_SYS_RESOURCE") {
		t.Errorf("warnings %v", w.warnings)
	}
}

func privileged(t *testing.T) *testCase {
	tc := plain(t)
	tc.record.Config.Security.Privileged, tc.c.Security.Privileged = true, true
	return tc
}

func TestPrivileged(t *testing.T) {
	tc := privileged(t)
	s := &tc.c.Security
	s.Seccomp, s.AppArmor = &pod.Profile{Type: pod.ProfileRuntimeDefault}, &pod.Profile{Type: pod.ProfileRuntimeDefault}
	s.MaskedPaths, s.ReadOnlyPaths = []string{"/proc/kcore"}, []string{"/proc/sys"}
	s.Capabilities = &pod.Capabilities{Drop: []string{"ALL"}}
	tc.cfg.Host.AppArmor = true
	w := tc.spec(t)
	l := w.spec.Linux
	if l.Seccomp != nil || w.spec.Process.ApparmorProfile != "" || l.MaskedPaths != nil || l.ReadonlyPaths != nil {
		t.Errorf("confined: %+v", l)
	}
	same(t, "capabilities", w.spec.Process.Capabilities.Effective, sorted(tc.cfg.Host.Capabilities))
	for _, dest := range []string{"/sys", "/sys/fs/cgroup"} {
		if m := mountAt(w, dest); m == nil || !slices.Contains(m.Options, "rw") || slices.Contains(m.Options, "ro") {
			t.Errorf("%s is %+v", dest, m)
		}
		if m := mountAt(plain(t).spec(t), dest); m == nil || !slices.Contains(m.Options, "ro") || slices.Contains(m.Options, "rw") {
			t.Errorf("%s of others is %+v", dest, m)
		}
	}
	if r := l.Resources.Devices; len(r) != 1 || !r[0].Allow || r[0].Access != "rwm" || r[0].Type != "" {
		t.Errorf("device rules %+v", r)
	}
	for _, n := range l.Namespaces {
		if n.Type == specs.CgroupNamespace {
			t.Error("has a cgroup namespace")
		}
	}
	var has []string
	for _, d := range l.Devices {
		has = append(has, d.Path)
	}
	if !slices.Contains(has, "/dev/null") || slices.Contains(has, "/dev/ptmx") || slices.Contains(has, "/dev/console") {
		t.Errorf("devices %v", has)
	}
	tc.req.Handler.PrivilegedWithoutHostDevices = true
	if l := tc.spec(t).spec.Linux; len(l.Devices) > 0 || !l.Resources.Devices[0].Allow {
		t.Errorf("without host devices: %v, %v", l.Devices, l.Resources.Devices)
	}
}

func TestDevices(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make device nodes")
	}
	dir := t.TempDir()
	node := func(name string, mode uint32, major, minor uint32) string {
		p := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(t, unix.Mknod(p, mode, int(unix.Mkdev(major, minor))))
		return p
	}
	char := node("folder/a", unix.S_IFCHR|0o640, 1, 3)
	node("folder/deep/b", unix.S_IFBLK|0o600, 7, 100)
	node("folder/pipe", unix.S_IFIFO|0o600, 0, 0)
	must(t, os.Symlink(char, filepath.Join(dir, "link")))
	must(t, os.Symlink(char, filepath.Join(dir, "folder/link")))
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	must(t, os.Mkdir(filepath.Join(dir, "empty"), 0o700))

	tc := plain(t)
	tc.c.Devices = []pod.Device{
		{HostPath: filepath.Join(dir, "link"), ContainerPath: "/dev/x", Permissions: "r"},
		{HostPath: filepath.Join(dir, "folder"), ContainerPath: "/dev/all/", Permissions: "rw"},
		{HostPath: char, ContainerPath: "/dev/x", Permissions: "mrw"},
	}
	l := tc.spec(t).spec.Linux
	var got []string
	for _, d := range l.Devices {
		got = append(got, d.Path+" "+d.Type)
	}
	same(t, "devices", got, []string{"/dev/all/a c", "/dev/all/deep/b b", "/dev/x c"})
	if d := l.Devices[2]; d.Major != 1 || d.Minor != 3 || *d.FileMode != 0o640 || *d.UID != 0 {
		t.Errorf("%+v", d)
	}
	r := l.Resources.Devices
	if len(r) != 5 || r[0].Allow || r[0].Access != "rwm" || r[1].Access != "r" || !r[1].Allow || *r[1].Major != 1 || r[4].Access != "mrw" {
		t.Errorf("rules %+v", r)
	}
	for name, tt := range map[string]struct {
		d     pod.Device
		words string
	}{
		"missing":        {pod.Device{HostPath: filepath.Join(dir, "gone"), ContainerPath: "/dev/x"}, "devices[0].host_path"},
		"a file":         {pod.Device{HostPath: filepath.Join(dir, "file"), ContainerPath: "/dev/x"}, "no device"},
		"a pipe":         {pod.Device{HostPath: filepath.Join(dir, "folder/pipe"), ContainerPath: "/dev/x"}, "no device"},
		"an empty one":   {pod.Device{HostPath: filepath.Join(dir, "empty"), ContainerPath: "/dev/x"}, "no devices"},
		"permissions":    {pod.Device{HostPath: char, ContainerPath: "/dev/x", Permissions: "rx"}, "devices[0].permissions"},
		"relative host":  {pod.Device{HostPath: "dev/x", ContainerPath: "/dev/x"}, "devices[0].host_path"},
		"relative place": {pod.Device{HostPath: char, ContainerPath: "x"}, "devices[0].container_path"},
		"root":           {pod.Device{HostPath: char, ContainerPath: "/."}, "devices[0].container_path"},
	} {
		tc := plain(t)
		tc.c.Devices = []pod.Device{tt.d}
		t.Run(name, func(t *testing.T) { tc.refused(t, errdefs.ErrInvalidArgument, tt.words) })
	}
}

func TestSeccomp(t *testing.T) {
	tc := plain(t)
	tc.c.Security.Seccomp = &pod.Profile{Type: pod.ProfileUnconfined}
	if f := tc.spec(t).spec.Linux.Seccomp; f != nil {
		t.Errorf("unconfined: %+v", f)
	}
	tc.c.Security.Seccomp = &pod.Profile{Type: pod.ProfileRuntimeDefault}
	f := tc.spec(t).spec.Linux.Seccomp
	if f == nil || f.DefaultAction != specs.ActErrno || len(f.Architectures) == 0 || allows(f, "mount") || !allows(f, "read") {
		t.Fatalf("default: %+v", f)
	}
	if slices.Contains(f.Architectures, specs.ArchX32) || !slices.Contains(f.Architectures, specs.ArchX86_64) && runtime.GOARCH == "amd64" {
		t.Errorf("architectures of a kernel without x32: %v", f.Architectures)
	}
	tc.cfg.Host.X32 = true
	if f := tc.spec(t).spec.Linux.Seccomp; runtime.GOARCH == "amd64" && !slices.Contains(f.Architectures, specs.ArchX32) {
		t.Errorf("architectures of a kernel with x32: %v", f.Architectures)
	}
	// gVisor would refuse clone3 by the wrong error.
	if allows(f, "clone3") {
		t.Error("clone3 is allowed in the host's kernel")
	}
	tc.req.Handler.OwnKernel = true
	if f := tc.spec(t).spec.Linux.Seccomp; !allows(f, "clone3") || allows(f, "mount") {
		t.Errorf("in a kernel of its own: %+v", f)
	}
	tc.req.Handler.OwnKernel = false
	// What the capabilities permit, the filter does.
	tc.c.Security.Capabilities = &pod.Capabilities{Add: []string{"SYS_ADMIN"}}
	if f := tc.spec(t).spec.Linux.Seccomp; !allows(f, "mount") {
		t.Error("CAP_SYS_ADMIN without mount")
	}
	tc.req.Handler.Features.Seccomp = false
	if w := tc.spec(t); w.spec.Linux.Seccomp != nil || len(w.warnings) != 1 {
		t.Errorf("without seccomp: %v, %v", w.spec.Linux.Seccomp, w.warnings)
	}
	tc.c.Security.Seccomp = &pod.Profile{Type: "Maybe"}
	tc.refused(t, errdefs.ErrInvalidArgument, "profile_type")
	tc.c.Security.Seccomp = &pod.Profile{Type: pod.ProfileLocalhost, Ref: "/x"}
	tc.refused(t, errdefs.ErrUnimplemented, "/x")
}

func allows(f *specs.LinuxSeccomp, call string) bool {
	for _, s := range f.Syscalls {
		if s.Action == specs.ActAllow && slices.Contains(s.Names, call) && len(s.Args) == 0 {
			return true
		}
	}
	return false
}

func TestLocalSeccomp(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		p := filepath.Join(dir, name)
		must(t, os.WriteFile(p, []byte(content), 0o600))
		return p
	}
	use := func(ref string) *testCase {
		tc := plain(t)
		tc.c.Security.Seccomp = &pod.Profile{Type: pod.ProfileLocalhost, Ref: ref}
		return tc
	}
	good := file("good.json", `{"defaultAction":"SCMP_ACT_ALLOW","architectures":["SCMP_ARCH_X86_64"],
		"syscalls":[{"names":["mkdir"],"action":"SCMP_ACT_ERRNO","errnoRet":22},
		{"names":["reboot"],"action":"SCMP_ACT_KILL","includes":{"caps":["CAP_SYS_BOOT"]}}]}`)
	f := use(good).spec(t).spec.Linux.Seccomp
	if f == nil || f.DefaultAction != specs.ActAllow || len(f.Syscalls) != 1 || *f.Syscalls[0].ErrnoRet != 22 {
		t.Errorf("%+v", f)
	}
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	for name, tt := range map[string]struct{ ref, words string }{
		"relative":      {"good.json", "localhost_ref"},
		"not clean":     {dir + "/../" + filepath.Base(dir) + "/good.json", "localhost_ref"},
		"missing":       {filepath.Join(dir, "none.json"), "no such file"},
		"empty":         {file("empty", ""), "no seccomp profile"},
		"not JSON":      {file("text", "hello"), "no seccomp profile"},
		"cut off":       {file("cut", `{"defaultAction":"SCMP_ACT_ALLOW"`), "no seccomp profile"},
		"says nothing":  {file("nothing", `{}`), "defaultAction"},
		"unknown":       {file("unknown", `{"defaultAction":"SCMP_ACT_DANCE"}`), "SCMP_ACT_DANCE"},
		"unknown below": {file("below", `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["read"],"action":"NO"}]}`), "syscalls[0]"},
		"null below":    {file("null", `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[null]}`), "syscalls[0]"},
		"two":           {file("two", `{"defaultAction":"SCMP_ACT_ALLOW"}{}`), "behind"},
		"a folder":      {dir, "regular file"},
		"a pipe":        {filepath.Join(dir, "pipe"), "regular file"},
		"too large":     {file("large", strings.Repeat(" ", profileLimit+1)), "regular file"},
	} {
		t.Run(name, func(t *testing.T) { use(tt.ref).refused(t, errdefs.ErrInvalidArgument, tt.words) })
	}
}

func TestAppArmor(t *testing.T) {
	tc := plain(t)
	for _, p := range []*pod.Profile{nil, {Type: pod.ProfileRuntimeDefault}, {Type: pod.ProfileUnconfined}} {
		tc.c.Security.AppArmor = p
		if w := tc.spec(t); w.spec.Process.ApparmorProfile != "" || len(w.warnings) > 0 {
			t.Errorf("%+v on a kernel without it: %q, %v", p, w.spec.Process.ApparmorProfile, w.warnings)
		}
	}
	tc.c.Security.AppArmor = &pod.Profile{Type: pod.ProfileLocalhost, Ref: "mine"}
	tc.refused(t, errdefs.ErrUnimplemented, "mine")
	tc.c.Security.AppArmor = &pod.Profile{Type: pod.ProfileLocalhost}
	tc.refused(t, errdefs.ErrInvalidArgument, "localhost_ref")
	tc.c.Security.AppArmor = &pod.Profile{Type: "Maybe"}
	tc.refused(t, errdefs.ErrInvalidArgument, "profile_type")

	tc.cfg.Host.AppArmor = true
	b, err := New(tc.cfg)
	must(t, err)
	b.defaultProfile.loaded = true
	for want, p := range map[string]*pod.Profile{defaultAppArmor: nil, "": {Type: pod.ProfileUnconfined}} {
		tc.c.Security.AppArmor = p
		w := b.newBuild(tc.req)
		must(t, w.run(t.Context(), containerSteps))
		if got := w.spec.Process.ApparmorProfile; got != want {
			t.Errorf("%+v gives %q, want %q", p, got, want)
		}
	}
}

func TestSELinuxLabels(t *testing.T) {
	tc := plain(t)
	if w := tc.spec(t); w.spec.Process.SelinuxLabel != "" || w.spec.Linux.MountLabel != "" {
		t.Error("labels without SELinux")
	}
	tc.req.Labels = pod.Labels{Process: "process", Mount: "files"}
	if w := tc.spec(t); w.spec.Process.SelinuxLabel != "process" || w.spec.Linux.MountLabel != "files" {
		t.Errorf("labels %q and %q", w.spec.Process.SelinuxLabel, w.spec.Linux.MountLabel)
	}
}

func namespaces(w *build) map[specs.LinuxNamespaceType]string {
	out := map[specs.LinuxNamespaceType]string{}
	for _, n := range w.spec.Linux.Namespaces {
		out[n.Type] = n.Path + "."
	}
	return out
}

func TestNamespaces(t *testing.T) {
	n := func(net, ipc, pid pod.NamespaceMode) pod.Namespaces {
		return pod.Namespaces{Network: net, IPC: ipc, PID: pid}
	}
	const own, node, private = pod.NamespacePod, pod.NamespaceNode, pod.NamespaceContainer
	for name, tt := range map[string]struct {
		pod, c pod.Namespaces
		pidns  string
		want   string // net ipc uts pid; "." is a new one, "" the node's
	}{
		"the pod's":                {n(own, own, own), n(own, own, own), "/pid", "/ns/net. /ns/ipc. /ns/uts. /pid."},
		"own processes":            {n(own, own, private), n(own, own, private), "", "/ns/net. /ns/ipc. /ns/uts. ."},
		"node's network":           {n(node, own, private), n(node, own, private), "", " /ns/ipc. . ."},
		"node's network, unsaid":   {n(node, own, private), n(own, own, private), "", " /ns/ipc. . ."},
		"node's ipc and processes": {n(own, node, node), n(own, node, node), "", "/ns/net.  /ns/uts. "},
		"node's processes, unsaid": {n(own, own, node), n(own, own, own), "", "/ns/net. /ns/ipc. /ns/uts. "},
		"private ipc":              {n(own, own, private), n(own, private, private), "", "/ns/net. . /ns/uts. ."},
		"private ipc of the pod":   {n(own, private, private), n(own, own, private), "", "/ns/net. . /ns/uts. ."},
	} {
		t.Run(name, func(t *testing.T) {
			tc := plain(t)
			tc.record.Config.Security.Namespaces, tc.c.Security.Namespaces = tt.pod, tt.c
			tc.record.Sandbox.PIDNS = tt.pidns
			if tt.pod.Network == node {
				tc.record.Sandbox.NetNS, tc.record.Sandbox.UTSNS = "", ""
			}
			if tt.pod.IPC != own {
				tc.record.Sandbox.IPCNS, tc.record.Sandbox.Shm = "", ""
			}
			w := tc.spec(t)
			got := namespaces(w)
			uts := got[specs.UTSNamespace]
			if tt.pod.Network == node && uts == "" {
				uts = "." // a pod on the node's network has the node's name
			}
			all := strings.Join([]string{got[specs.NetworkNamespace], got[specs.IPCNamespace], uts, got[specs.PIDNamespace]}, " ")
			if all != tt.want || got[specs.MountNamespace] != "." || got[specs.CgroupNamespace] != "." {
				t.Errorf("got %q of %v", all, got)
			}
		})
	}
	tc := plain(t)
	tc.cfg.Host.Unified = false
	if _, ok := namespaces(tc.spec(t))[specs.CgroupNamespace]; ok {
		t.Error("a cgroup namespace on cgroup v1")
	}
}

func TestNamespacesRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		pod, c pod.Namespaces
		kind   error
		words  string
	}{
		"node's network":       {pod.Namespaces{}, pod.Namespaces{Network: pod.NamespaceNode, PID: pod.NamespaceContainer}, errdefs.ErrInvalidArgument, "namespace_options.network"},
		"node's ipc":           {pod.Namespaces{}, pod.Namespaces{IPC: pod.NamespaceNode, PID: pod.NamespaceContainer}, errdefs.ErrInvalidArgument, "namespace_options.ipc"},
		"node's processes":     {pod.Namespaces{}, pod.Namespaces{PID: pod.NamespaceNode}, errdefs.ErrInvalidArgument, "namespace_options.pid"},
		"own network":          {pod.Namespaces{}, pod.Namespaces{Network: pod.NamespaceContainer}, errdefs.ErrUnimplemented, "network"},
		"ipc of a target":      {pod.Namespaces{}, pod.Namespaces{IPC: pod.NamespaceTarget}, errdefs.ErrUnimplemented, "ipc"},
		"no processes to join": {pod.Namespaces{PID: pod.NamespaceContainer}, pod.Namespaces{}, errdefs.ErrInvalidArgument, "without a PID namespace"},
		"record without pause": {pod.Namespaces{}, pod.Namespaces{}, errdefs.ErrInternal, "pid namespace"},
		"no target":            {pod.Namespaces{}, pod.Namespaces{PID: pod.NamespaceTarget}, errdefs.ErrInvalidArgument, "target_id"},
		"unknown target":       {pod.Namespaces{}, pod.Namespaces{PID: pod.NamespaceTarget, TargetID: "ghost"}, errdefs.ErrNotFound, "ghost"},
		"target not running":   {pod.Namespaces{}, pod.Namespaces{PID: pod.NamespaceTarget, TargetID: "container1"}, errdefs.ErrPrecondition, "target_id"},
		"unknown mode":         {pod.Namespaces{}, pod.Namespaces{PID: "Somebody"}, errdefs.ErrInvalidArgument, "Somebody"},
	} {
		t.Run(name, func(t *testing.T) {
			tc := plain(t)
			tc.record.Config.Security.Namespaces, tc.c.Security.Namespaces = tt.pod, tt.c
			tc.refused(t, tt.kind, tt.words)
		})
	}
}

func TestTargetProcess(t *testing.T) {
	tc := plain(t)
	start, err := host.StartTime(os.Getpid())
	must(t, err)
	target := &pod.Container{ID: "target", State: pod.Running, Process: &pod.RunningProcess{PID: os.Getpid(), StartTime: start}}
	tc.record.Containers = append(tc.record.Containers, target)
	tc.c.Security.Namespaces = pod.Namespaces{PID: pod.NamespaceTarget, TargetID: "target"}
	if got, want := namespaces(tc.spec(t))[specs.PIDNamespace], "/proc/self/ns/pid."; strings.Replace(got, pidString(), "self", 1) != want {
		t.Errorf("joins %s", got)
	}
	target.Process.StartTime++ // another process has its number by now
	tc.refused(t, errdefs.ErrPrecondition, "gone")
}

func pidString() string {
	self, _ := os.Readlink("/proc/self")
	return self
}
