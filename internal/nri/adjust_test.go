package nri

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// adjusted puts an adjustment into a spec under a runtime that honours all of it.
func adjusted(t *testing.T, s *specs.Spec, f func(*api.ContainerAdjustment)) *pod.Container {
	t.Helper()
	r, c, _ := thing()
	a := &api.ContainerAdjustment{}
	f(a)
	d := &Driver{cfg: Config{Inject: func(_ context.Context, s *specs.Spec, names []string) error {
		s.Process.Env = append(s.Process.Env, names...)
		return nil
	}}}
	req := &pod.BundleRequest{Record: r, Container: c, Handler: pod.HandlerInfo{Runtime: "runc", Version: "1.4.0"}}
	c.Config.CDIDevices = []string{"v.com/c=has"}
	if err := d.adjust(t.Context(), req, s, a); err != nil {
		t.Fatal(err)
	}
	return c
}

func ptr[T any](v T) *T { return &v }

func TestAdjustments(t *testing.T) {
	for name, tt := range map[string]struct {
		has  func(*specs.Spec)
		ask  func(*api.ContainerAdjustment)
		want func(*specs.Spec)
	}{
		"annotations": {
			has: func(s *specs.Spec) { s.Annotations = map[string]string{"a": "1", "b": "2"} },
			ask: func(a *api.ContainerAdjustment) {
				a.RemoveAnnotation("a")
				a.AddAnnotation("c", "3")
				a.RemoveAnnotation("b") // by one plugin, to be set by the next
				a.AddAnnotation("b", "2")
			},
			want: func(s *specs.Spec) { s.Annotations = map[string]string{"b": "2", "c": "3"} },
		},
		"env": {
			has:  func(s *specs.Spec) { s.Process.Env = []string{"A=1", "AB=2", "C=3"} },
			ask:  func(a *api.ContainerAdjustment) { a.RemoveEnv("A"); a.AddEnv("C", "4=5"); a.AddEnv("D", "") },
			want: func(s *specs.Spec) { s.Process.Env = []string{"AB=2", "C=4=5", "D="} },
		},
		"args": {
			has:  func(s *specs.Spec) { s.Process.Args = []string{"a"} },
			ask:  func(a *api.ContainerAdjustment) { a.SetArgs([]string{"b", "c"}) },
			want: func(s *specs.Spec) { s.Process.Args = []string{"b", "c"} },
		},
		"CDI_devices": {
			ask: func(a *api.ContainerAdjustment) {
				a.AddCDIDevice(&api.CDIDevice{Name: "v.com/c=new"})
				a.AddCDIDevice(&api.CDIDevice{Name: "v.com/c=has"})
			},
			want: func(s *specs.Spec) { s.Process.Env = []string{"v.com/c=new"} },
		},
		"mounts": {
			has: func(s *specs.Spec) {
				s.Mounts = []specs.Mount{{Destination: "/a/b"}, {Destination: "/c"}, {Destination: "/d/"}}
			},
			ask: func(a *api.ContainerAdjustment) {
				a.AddMount(&api.Mount{Destination: "/e", Source: "/s"})
				a.RemoveMount("/e") // what goes went before
				a.RemoveMount("/c")
				a.AddMount(&api.Mount{Destination: "/d", Source: "/s", Options: []string{"bind", "rslave"}})
				a.AddMount(&api.Mount{Destination: "/a", Source: "/s"})
			},
			want: func(s *specs.Spec) {
				s.Mounts = []specs.Mount{{Destination: "/d", Source: "/s", Options: []string{"bind", "rslave"}}, {Destination: "/a", Source: "/s"}, {Destination: "/a/b"}}
				s.Mounts = slices.Insert(s.Mounts, 0, specs.Mount{Destination: "/e", Source: "/s"})
				s.Linux.RootfsPropagation = "rslave"
			},
		},
		"hooks": {
			has: func(s *specs.Spec) { s.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: "/ours"}}} },
			ask: func(a *api.ContainerAdjustment) { a.AddHooks(&api.Hooks{Poststop: []*api.Hook{{Path: "/theirs"}}}) },
			want: func(s *specs.Spec) {
				s.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: "/ours"}, {Path: "/theirs"}}}
			},
		},
		"rlimits": {
			has: func(s *specs.Spec) {
				s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_CORE"}, {Type: "RLIMIT_NOFILE", Hard: 1}}
			},
			ask: func(a *api.ContainerAdjustment) { a.AddRlimit("RLIMIT_NOFILE", 5, 4) },
			want: func(s *specs.Spec) {
				s.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_CORE"}, {Type: "RLIMIT_NOFILE", Hard: 5, Soft: 4}}
			},
		},
		"devices": {
			has: func(s *specs.Spec) { s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/a"}, {Path: "/dev/b"}} },
			ask: func(a *api.ContainerAdjustment) {
				a.RemoveDevice("/dev/a")
				a.AddDevice(&api.LinuxDevice{Path: "/dev/b", Type: "c", Major: 1, Minor: 2})
			},
			want: func(s *specs.Spec) {
				s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/b", Type: "c", Major: 1, Minor: 2}}
				s.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Type: "c", Major: ptr(int64(1)), Minor: ptr(int64(2)), Access: "rw"}}
			},
		},
		"cgroups_path": {
			ask:  func(a *api.ContainerAdjustment) { a.SetLinuxCgroupsPath("/else/where") },
			want: func(s *specs.Spec) { s.Linux.CgroupsPath = "/else/where" },
		},
		"io_priority": {
			ask: func(a *api.ContainerAdjustment) {
				a.SetLinuxIOPriority(&api.LinuxIOPriority{Class: api.IOPrioClass_IOPRIO_CLASS_BE, Priority: 3})
			},
			want: func(s *specs.Spec) {
				s.Process.IOPriority = &specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_BE, Priority: 3}
			},
		},
		"scheduler": {
			ask: func(a *api.ContainerAdjustment) {
				a.SetLinuxScheduler(&api.LinuxScheduler{Policy: api.LinuxSchedulerPolicy_SCHED_FIFO, Priority: 7})
			},
			want: func(s *specs.Spec) { s.Process.Scheduler = &specs.Scheduler{Policy: specs.SchedFIFO, Priority: 7} },
		},
		"seccomp_policy": {
			has: func(s *specs.Spec) { s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActErrno} },
			ask: func(a *api.ContainerAdjustment) {
				a.SetLinuxSeccompPolicy(&api.LinuxSeccomp{
					DefaultAction: "SCMP_ACT_ALLOW", DefaultErrno: api.UInt32(uint32(38)), Architectures: []string{"SCMP_ARCH_X86_64"},
					Syscalls: []*api.LinuxSyscall{{Names: []string{"mkdir"}, Action: "SCMP_ACT_ERRNO"}},
				})
			},
			want: func(s *specs.Spec) {
				s.Linux.Seccomp = &specs.LinuxSeccomp{
					DefaultAction: specs.ActAllow, DefaultErrnoRet: ptr(uint(38)), Architectures: []specs.Arch{specs.ArchX86_64},
					Syscalls: []specs.LinuxSyscall{{Names: []string{"mkdir"}, Action: specs.ActErrno, Args: []specs.LinuxSeccompArg{}}},
				}
			},
		},
		"namespaces": {
			has: func(s *specs.Spec) {
				s.Linux.Namespaces = []specs.LinuxNamespace{{Type: "network", Path: "/a"}, {Type: "uts"}}
			},
			ask: func(a *api.ContainerAdjustment) {
				a.RemoveNamespace(&api.LinuxNamespace{Type: "uts"})
				a.AddOrReplaceNamespace(&api.LinuxNamespace{Type: "network", Path: "/b"})
			},
			want: func(s *specs.Spec) { s.Linux.Namespaces = []specs.LinuxNamespace{{Type: "network", Path: "/b"}} },
		},
		"sysctl": {
			ask:  func(a *api.ContainerAdjustment) { a.SetLinuxSysctl("a.b", "1") },
			want: func(s *specs.Spec) { s.Linux.Sysctl = map[string]string{"a.b": "1"} },
		},
		"net_devices": {
			ask:  func(a *api.ContainerAdjustment) { a.AddLinuxNetDevice("eth7", &api.LinuxNetDevice{Name: "eth0"}) },
			want: func(s *specs.Spec) { s.Linux.NetDevices = map[string]specs.LinuxNetDevice{"eth7": {Name: "eth0"}} },
		},
		"rdt": {
			has:  func(s *specs.Spec) { s.Linux.IntelRdt = &specs.LinuxIntelRdt{ClosID: "a", Schemata: []string{"L3"}} },
			ask:  func(a *api.ContainerAdjustment) { a.SetLinuxRDTClosID("b") },
			want: func(s *specs.Spec) { s.Linux.IntelRdt = &specs.LinuxIntelRdt{ClosID: "b", Schemata: []string{"L3"}} },
		},
		"memory_policy": {
			ask:  func(a *api.ContainerAdjustment) { a.SetLinuxMemoryPolicy(api.MpolMode_MPOL_BIND, "0") },
			want: func(s *specs.Spec) { s.Linux.MemoryPolicy = &specs.LinuxMemoryPolicy{Mode: specs.MpolBind, Nodes: "0"} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, got := thing()
			_, _, want := thing()
			if tt.has != nil {
				tt.has(got)
				tt.has(want)
			}
			tt.want(want)
			c := adjusted(t, got, tt.ask)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if c.Adjusted == nil || !slices.Contains(c.Adjusted.Fields, name) {
				t.Errorf("noted: %+v", c.Adjusted)
			}
		})
	}
}

func TestNothingAdjusted(t *testing.T) {
	_, _, got := thing()
	_, _, want := thing()
	c := adjusted(t, got, func(*api.ContainerAdjustment) {})
	if diff := cmp.Diff(want, got); diff != "" || c.Adjusted != nil {
		t.Errorf("%s %+v", diff, c.Adjusted)
	}
}

// Limits go into the record, over those that were asked for, which stay.
func TestAdjustedLimits(t *testing.T) {
	_, c, _ := thing()
	c.Config.Resources = &pod.Resources{CPUShares: 5, MemoryLimit: 100, MemorySwapLimit: 150, OOMScoreAdj: 900}
	a := &api.ContainerAdjustment{}
	a.SetLinuxMemoryLimit(200)
	a.SetLinuxMemorySwappiness(0)
	a.SetLinuxPidLimits(-1)
	score := 0
	a.SetLinuxOomScoreAdj(&score)
	got, err := limitsOf(c, a.GetLinux())
	if err != nil {
		t.Fatal(err)
	}
	want := &pod.Resources{
		CPUShares: 5, MemoryLimit: 200, MemorySwapLimit: 200,
		Unified: map[string]string{"pids.max": "max"}, Plugin: &pod.PluginLimits{MemorySwappiness: ptr(uint64(0))},
	}
	if diff := cmp.Diff(want, got); diff != "" || c.Config.Resources.MemoryLimit != 100 || c.Config.Resources.OOMScoreAdj != 900 {
		t.Errorf("%s, asked for: %+v", diff, c.Config.Resources)
	}
}

func TestOldRuntimes(t *testing.T) {
	for _, tt := range []struct {
		runtime, version string
		ok               bool
	}{
		{"runc", "1.1.5+ds1", false},
		{"runc", "1.2.0-rc.1", true},
		{"runc", "1.10.0", true},
		{"runc", "2", true},
		{"crun", "1.8.4", false},
		{"crun", "1.8.5", true},
		{"runsc", "9", false},
	} {
		a := adjustment{handler: pod.HandlerInfo{Runtime: tt.runtime, Version: tt.version}}
		err := a.needs(map[string]string{"runc": "1.2", "crun": "1.8.5"})
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, errdefs.ErrUnimplemented) {
			t.Errorf("%s %s: %v", tt.runtime, tt.version, err)
		}
	}
}

// What plugins are shown of limits is what comes back if they change nothing.
func TestLimitsThereAndBack(t *testing.T) {
	all := &pod.Resources{
		CPUPeriod: 1, CPUQuota: -1, CPUShares: 3, CpusetCPUs: "0", CpusetMems: "1", MemoryLimit: 4, MemorySwapLimit: 5,
		HugepageLimits: []pod.HugepageLimit{{PageSize: "2MB", Limit: 6}}, Unified: map[string]string{"pids.max": "7", "memory.high": "8"},
		Plugin: &pod.PluginLimits{MemoryReservation: 9, MemoryKernelTCP: 10, MemorySwappiness: ptr(uint64(11)), DisableOOMKiller: ptr(true), CPURealtimeRuntime: 12, CPURealtimePeriod: 13},
	}
	for name, r := range map[string]*pod.Resources{"all": all, "none": {}, "nil": nil} {
		got, err := fromNRI(toNRI(r))
		if diff := cmp.Diff(r, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
	if sets(&pod.Resources{}) || sets(nil) || !sets(all) || !sets(&pod.Resources{CpusetMems: "0"}) || !sets(&pod.Resources{CPUQuota: -1}) {
		t.Error("what is set is not known")
	}
}

// The library does not tell which variables are gone; what it has shown does.
func TestRemovedVariables(t *testing.T) {
	a := &api.ContainerAdjustment{}
	markRemoved(a, []string{"A=1", "AB=2", "C"}, []string{"AB=2", "D=3", "C"})
	if len(a.Env) != 1 || a.Env[0].Key != api.MarkForRemoval("A") {
		t.Errorf("%v", a.Env)
	}
	markRemoved(nil, []string{"A=1"}, nil)
}
