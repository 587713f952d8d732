package containerd

import (
	"strings"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
)

// What somebody else says of a handler of ours counts where containerd reads it later.
func TestOverridden(t *testing.T) {
	const (
		own   = "/etc/containerd/conf.d/fairlead-test.toml"
		table = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.test]\n"
		old   = "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.test]\n"
	)
	h := Handler{Name: "test", ContainerdHandler: payload.ContainerdHandler{
		RuntimeType: "io.containerd.test.v1", PodAnnotations: []string{"a"}, PrivilegedWithoutHostDevices: true,
		Options: &payload.ContainerdOptions{ConfigPath: "/etc/test.toml"},
	}}
	for name, c := range map[string]struct{ path, text, want string }{
		"a later file":            {"/etc/containerd/conf.d/z.toml", table + "snapshotter = 'x'\npod_annotations = ['b']\n", "z.toml:4: pod_annotations of handler test is [b] there, which containerd reads after " + own},
		"of another version":      {"/etc/containerd/conf.d/z.toml", old + "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.test.options]\nConfigPath = '/etc/other.toml'\n", "z.toml:4: options.ConfigPath of handler test is \"/etc/other.toml\" there"},
		"an earlier file":         {"/etc/containerd/conf.d/a.toml", table + "pod_annotations = ['b']\n", ""},
		"the same":                {"/etc/containerd/conf.d/z.toml", table + "runtime_type = 'io.containerd.test.v1'\npod_annotations = ['a']\n", ""},
		"what is not written":     {"/etc/containerd/conf.d/z.toml", table + "snapshotter = 'nydus'\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.test.options]\nRoot = '/x'\n", ""},
		"empty":                   {"/etc/containerd/conf.d/z.toml", table + "privileged_without_host_devices = false\n", "privileged_without_host_devices of handler test is false there"},
		"of another handler":      {"/etc/containerd/conf.d/z.toml", strings.ReplaceAll(table, ".test]", ".other]") + "runtime_type = 'x'\n", ""},
		"a type, in a later file": {"/etc/containerd/conf.d/z.toml", table + "runtime_type = 'io.containerd.runc.v2'\n", "z.toml:3: runtime_type of handler test"},
	} {
		t.Run(name, func(t *testing.T) {
			l := node(t, map[string]string{main: "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n"})
			l.Origin = ""
			d, w := Daemon{Major: 2, Minor: 4}, Want{Type: "test", Handlers: []Handler{h}, Owned: []string{"test"}}
			// Whether our file is there already or not is the same.
			for range 2 {
				put(t, l.Root, Change{c.path, []byte(c.text)})
				read, err := Load(l)
				if err != nil {
					t.Fatal(err)
				}
				changes, err := read.Plan(d, w)
				if c.want == "" && err != nil || c.want != "" && (err == nil || fault.Of(err) != payload.Conflict || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%v: %v", changes, err)
				}
				put(t, l.Root, Change{c.path, nil})
				plan(t, l, d, w)
			}
		})
	}
}
