package criserver

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// notKept are the fields that have no counterpart, each for a reason.
var notKept = map[protoreflect.FullName]string{
	"runtime.v1.PodSandboxConfig.windows":                           "another system",
	"runtime.v1.ContainerConfig.windows":                            "another system",
	"runtime.v1.LinuxSandboxSecurityContext.seccomp_profile_path":   "deprecated; becomes seccomp",
	"runtime.v1.LinuxContainerSecurityContext.seccomp_profile_path": "deprecated; becomes seccomp",
	"runtime.v1.LinuxContainerSecurityContext.apparmor_profile":     "deprecated; becomes apparmor",
	"runtime.v1.ImageSpec.image_ref":                                "set by the runtime only",
	"runtime.v1.Mount.host_path":                                    "excludes image",
	"runtime.v1.LinuxContainerSecurityContext.run_as_username":      "excludes run_as_user",
}

// fill gives every field a value that is not its zero, and that is allowed.
func fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if _, skip := notKept[fd.FullName()]; skip {
			continue
		}
		switch {
		case fd.IsMap():
			m.Mutable(fd).Map().Set(protoreflect.ValueOfString("key of "+string(fd.Name())).MapKey(), protoreflect.ValueOfString("value"))
		case fd.IsList() && fd.Kind() == protoreflect.MessageKind:
			fill(m.Mutable(fd).List().AppendMutable().Message())
		case fd.IsList():
			m.Mutable(fd).List().Append(value(fd))
		case fd.Kind() == protoreflect.MessageKind:
			fill(m.Mutable(fd).Message())
		default:
			m.Set(fd, value(fd))
		}
	}
}

func value(fd protoreflect.FieldDescriptor) protoreflect.Value {
	special := map[protoreflect.FullName]any{
		"runtime.v1.NamespaceOption.network":            protoreflect.EnumNumber(cri.NamespaceMode_NODE),
		"runtime.v1.NamespaceOption.ipc":                protoreflect.EnumNumber(cri.NamespaceMode_NODE),
		"runtime.v1.NamespaceOption.pid":                protoreflect.EnumNumber(cri.NamespaceMode_TARGET),
		"runtime.v1.UserNamespace.mode":                 protoreflect.EnumNumber(cri.NamespaceMode_NODE),
		"runtime.v1.SecurityProfile.profile_type":       protoreflect.EnumNumber(cri.SecurityProfile_Localhost),
		"runtime.v1.Mount.propagation":                  protoreflect.EnumNumber(cri.MountPropagation_PROPAGATION_PRIVATE),
		"runtime.v1.ContainerConfig.stop_signal":        protoreflect.EnumNumber(cri.Signal_SIGNAL_SIGRTMAXMINUS2),
		"runtime.v1.PodSandboxConfig.log_directory":     "/var/log/pods/x",
		"runtime.v1.Device.host_path":                   "/dev/null",
		"runtime.v1.Device.permissions":                 "rw",
		"runtime.v1.PortMapping.protocol":               protoreflect.EnumNumber(cri.Protocol_SCTP),
		"runtime.v1.LinuxContainerResources.cpu_period": int64(100000),
		"runtime.v1.LinuxContainerResources.cpu_quota":  int64(50000),
	}
	if v, ok := special[fd.FullName()]; ok {
		return protoreflect.ValueOf(v)
	}
	f := filler{text: "value of " + string(fd.Name()), number: int64(fd.Number())}
	if fd.Kind() == protoreflect.EnumKind {
		return protoreflect.ValueOfEnum(1)
	}
	return f.scalar(fd)
}

// A field that a converter forgets is lost on this way there and back.
func TestNoFieldIsLost(t *testing.T) {
	var d decoder
	in := &cri.PodSandboxConfig{}
	fill(in.ProtoReflect())
	cfg := d.podConfig("config", in)
	if d.err != nil {
		t.Fatal(d.err)
	}
	if out := encodePodConfig(&cfg); !proto.Equal(in, out) {
		t.Errorf("pod:\n in %v\nout %v", in, out)
	}

	ctr := &cri.ContainerConfig{}
	fill(ctr.ProtoReflect())
	decoded := d.containerConfig("config", ctr)
	if d.err != nil {
		t.Fatal(d.err)
	}
	if out := encodeContainerConfig(&decoded); !proto.Equal(ctr, out) {
		t.Errorf("container:\n in %v\nout %v", ctr, out)
	}
}

// The fields that exclude others get their own round trip.
func TestExclusiveFieldsAreKept(t *testing.T) {
	in := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "c"}, Image: &cri.ImageSpec{Image: "i"},
		Mounts: []*cri.Mount{{ContainerPath: "/c", HostPath: "/h", Propagation: cri.MountPropagation_PROPAGATION_BIDIRECTIONAL}},
		Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
			RunAsUsername: "web", RunAsGroup: &cri.Int64Value{Value: 5}, NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER},
		}},
	}
	var d decoder
	cfg := d.containerConfig("config", in)
	if out := encodeContainerConfig(&cfg); d.err != nil || !proto.Equal(in, out) {
		t.Errorf("%v\n in %v\nout %v", d.err, in, out)
	}
}

func FuzzConvert(f *testing.F) {
	for _, m := range []proto.Message{&cri.PodSandboxConfig{}, &cri.ContainerConfig{}} {
		fill(m.ProtoReflect())
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in := &cri.PodSandboxConfig{}
		if proto.Unmarshal(b, in) == nil {
			var d decoder
			if cfg := d.podConfig("config", in); d.err == nil {
				again := d.podConfig("config", encodePodConfig(&cfg))
				if d.err != nil || !reflect.DeepEqual(normal(cfg), normal(again)) {
					t.Errorf("%v\n%+v\n%+v", d.err, cfg, again)
				}
			} else if !errors.Is(d.err, errdefs.ErrInvalidArgument) {
				t.Error(d.err)
			}
		}
		ctr := &cri.ContainerConfig{}
		if proto.Unmarshal(b, ctr) == nil {
			var d decoder
			if cfg := d.containerConfig("config", ctr); d.err == nil {
				again := d.containerConfig("config", encodeContainerConfig(&cfg))
				if d.err != nil || !reflect.DeepEqual(normal(cfg), normal(again)) {
					t.Errorf("%v\n%+v\n%+v", d.err, cfg, again)
				}
			}
		}
	})
}

// normal is the value as text, in which nil and empty look the same.
func normal(v any) string {
	return strings.NewReplacer("map[]", "[]", "<nil>", "[]").Replace(jsonOf(v))
}

func jsonOf(v any) string {
	info, err := encodeInfo(map[string]any{"v": v})
	if err != nil {
		return err.Error()
	}
	return info["v"]
}

func TestBadConfigsAreRefusedByField(t *testing.T) {
	ok := func() *cri.ContainerConfig {
		return &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "c"}, Image: &cri.ImageSpec{Image: "i"}}
	}
	security := func(s *cri.LinuxContainerSecurityContext) *cri.ContainerConfig {
		c := ok()
		c.Linux = &cri.LinuxContainerConfig{SecurityContext: s}
		return c
	}
	mount := func(m *cri.Mount) *cri.ContainerConfig {
		c := ok()
		c.Mounts = []*cri.Mount{{ContainerPath: "/a", HostPath: "/b"}, m}
		return c
	}
	with := func(change func(*cri.ContainerConfig)) *cri.ContainerConfig {
		c := ok()
		change(c)
		return c
	}
	one := &cri.Int64Value{Value: 1}
	for want, c := range map[string]*cri.ContainerConfig{
		"config is required":                        nil,
		"config.metadata is required":               {Image: &cri.ImageSpec{Image: "i"}},
		"config.metadata.name is required":          {Image: &cri.ImageSpec{Image: "i"}, Metadata: &cri.ContainerMetadata{}},
		"config.image.image is required":            {Metadata: &cri.ContainerMetadata{Name: "c"}},
		`config.log_path is "../x"`:                 with(func(c *cri.ContainerConfig) { c.LogPath = "../x" }),
		`config.log_path is "/x"`:                   with(func(c *cri.ContainerConfig) { c.LogPath = "/x" }),
		`config.log_path is "a/../../x"`:            with(func(c *cri.ContainerConfig) { c.LogPath = "a/../../x" }),
		"config.args[1] has a NUL byte":             with(func(c *cri.ContainerConfig) { c.Args = []string{"a", "b\x00"} }),
		"config.envs[0].key is required":            with(func(c *cri.ContainerConfig) { c.Envs = []*cri.KeyValue{{}} }),
		`config.envs[0].key is "a=b"`:               with(func(c *cri.ContainerConfig) { c.Envs = []*cri.KeyValue{{Key: "a=b"}} }),
		"config.envs[0].value of \"a\" is not":      with(func(c *cri.ContainerConfig) { c.Envs = []*cri.KeyValue{{Key: "a", Value: []byte{0xff}}} }),
		"config.stop_signal is 99":                  with(func(c *cri.ContainerConfig) { c.StopSignal = 99 }),
		"config.mounts[1].container_path is":        mount(&cri.Mount{HostPath: "/b"}),
		"config.mounts[1].host_path is required":    mount(&cri.Mount{ContainerPath: "/a"}),
		`config.mounts[1].host_path is "b"`:         mount(&cri.Mount{ContainerPath: "/a", HostPath: "b"}),
		"config.mounts[1].host_path is set beside":  mount(&cri.Mount{ContainerPath: "/a", HostPath: "/b", Image: &cri.ImageSpec{Image: "i"}}),
		"config.mounts[1].readonly is not":          mount(&cri.Mount{ContainerPath: "/a", Image: &cri.ImageSpec{Image: "i"}}),
		"config.mounts[1].image_sub_path is set":    mount(&cri.Mount{ContainerPath: "/a", HostPath: "/b", ImageSubPath: "x"}),
		"config.mounts[1].recursive_read_only need": mount(&cri.Mount{ContainerPath: "/a", HostPath: "/b", RecursiveReadOnly: true}),
		"config.mounts[1].propagation is 9":         mount(&cri.Mount{ContainerPath: "/a", HostPath: "/b", Propagation: 9}),
		"run_as_group is set without":               security(&cri.LinuxContainerSecurityContext{RunAsGroup: one}),
		"run_as_username is set beside":             security(&cri.LinuxContainerSecurityContext{RunAsUser: one, RunAsUsername: "x"}),
		"run_as_user is -1":                         security(&cri.LinuxContainerSecurityContext{RunAsUser: &cri.Int64Value{Value: -1}}),
		"supplemental_groups[0] is 4294967295":      security(&cri.LinuxContainerSecurityContext{SupplementalGroups: []int64{1<<32 - 1}}),
		"target_id is required":                     security(&cri.LinuxContainerSecurityContext{NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_TARGET}}),
		"network is CONTAINER":                      security(&cri.LinuxContainerSecurityContext{NamespaceOptions: &cri.NamespaceOption{Network: cri.NamespaceMode_CONTAINER}}),
		"seccomp.localhost_ref must":                security(&cri.LinuxContainerSecurityContext{Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost}}),
		//lint:ignore SA1019 old callers send only this
		`apparmor is given as "nonsense"`: security(&cri.LinuxContainerSecurityContext{ApparmorProfile: "nonsense"}),
		"linux.resources.oom_score_adj is 1001": with(func(c *cri.ContainerConfig) {
			c.Linux = &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{OomScoreAdj: 1001}}
		}),
	} {
		var d decoder
		d.containerConfig("config", c)
		if d.err == nil || !strings.Contains(d.err.Error(), want) || !errors.Is(d.err, errdefs.ErrInvalidArgument) {
			t.Errorf("got %v, want %s", d.err, want)
		}
	}
	meta := &cri.PodSandboxMetadata{Name: "n", Uid: "u", Namespace: "ns"}
	for want, c := range map[string]*cri.PodSandboxConfig{
		"config.metadata.name is required":                       {Metadata: &cri.PodSandboxMetadata{Uid: "u", Namespace: "ns"}},
		"config.metadata.uid is required":                        {Metadata: &cri.PodSandboxMetadata{Name: "n", Namespace: "ns"}},
		"config.metadata.namespace is required":                  {Metadata: &cri.PodSandboxMetadata{Name: "n", Uid: "u"}},
		`config.log_directory is "logs"`:                         {Metadata: meta, LogDirectory: "logs"},
		"config.port_mappings[0].host_port is 65536":             {Metadata: meta, PortMappings: []*cri.PortMapping{{HostPort: 65536}}},
		"config.port_mappings[0].protocol is 7":                  {Metadata: meta, PortMappings: []*cri.PortMapping{{Protocol: 7}}},
		"config.linux.security_context.run_as_group is set with": {Metadata: meta, Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{RunAsGroup: one}}},
	} {
		var d decoder
		d.podConfig("config", c)
		if d.err == nil || !strings.Contains(d.err.Error(), want) {
			t.Errorf("got %v, want %s", d.err, want)
		}
	}
}

func TestDeprecatedProfiles(t *testing.T) {
	for path, want := range map[string]*pod.Profile{
		"": nil, "unconfined": {Type: pod.ProfileUnconfined}, "runtime/default": {Type: pod.ProfileRuntimeDefault},
		"localhost//etc/p.json": {Type: pod.ProfileLocalhost, Ref: "/etc/p.json"},
	} {
		var d decoder
		if got := d.profile("f", nil, path); d.err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %v and %v, want %v", path, got, d.err, want)
		}
	}
}

// critest names AppArmor profiles so.
func TestProfileWithDeprecatedPrefix(t *testing.T) {
	local := func(ref string) *cri.SecurityProfile {
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: ref}
	}
	for _, ref := range []string{"deny-write", "localhost/deny-write"} {
		var d decoder
		want := &pod.Profile{Type: pod.ProfileLocalhost, Ref: "deny-write"}
		if got := d.profile("f", local(ref), "localhost/other"); d.err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %v and %v, want %v", ref, got, d.err, want)
		}
	}
	var d decoder
	if d.profile("f", local("localhost/"), ""); d.err == nil {
		t.Error("localhost/ without a name: no error")
	}
}

func TestEverySignalGoesThereAndBack(t *testing.T) {
	for n, name := range cri.Signal_name {
		var d decoder
		s := d.signal("f", cri.Signal(n))
		if got := encodeSignal(s); d.err != nil || got != cri.Signal(n) {
			t.Errorf("%s is %q, which is %s", name, s, got)
		}
	}
	for _, s := range []string{"", "15", "nonsense", "NAL_RUNTIME_DEFAULT"} {
		if got := encodeSignal(s); got != cri.Signal_SIGNAL_RUNTIME_DEFAULT {
			t.Errorf("%q is %s", s, got)
		}
	}
	if got := fmt.Sprint((&decoder{}).signal("f", cri.Signal_SIGNAL_SIGRTMINPLUS1)); got != "SIGRTMIN+1" {
		t.Errorf("got %s", got)
	}
}
