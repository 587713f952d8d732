package nri

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/selinux/go-selinux/label"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// adjustment is one that is put into a spec.
type adjustment struct {
	spec    *specs.Spec
	want    *api.ContainerAdjustment
	linux   *api.LinuxContainerAdjustment
	handler pod.HandlerInfo
}

// fields are what an adjustment may change but limits and CDI devices, in the
// order of the message.
var fields = []struct {
	name string
	put  func(*adjustment) (changed bool, err error)
}{
	{"annotations", (*adjustment).annotations},
	{"mounts", (*adjustment).mounts},
	{"env", (*adjustment).env},
	{"hooks", (*adjustment).hooks},
	{"rlimits", (*adjustment).rlimits},
	{"args", (*adjustment).args},
	{"devices", (*adjustment).devices},
	{"device_rules", (*adjustment).deviceRules},
	{"cgroups_path", (*adjustment).cgroupsPath},
	{"io_priority", (*adjustment).ioPriority},
	{"seccomp_policy", (*adjustment).seccomp},
	{"namespaces", (*adjustment).namespaces},
	{"sysctl", (*adjustment).sysctl},
	{"net_devices", (*adjustment).netDevices},
	{"scheduler", (*adjustment).scheduler},
	{"rdt", (*adjustment).rdt},
	{"memory_policy", (*adjustment).memoryPolicy},
}

// putAll changes a map as an adjustment says: a key that is marked goes, and any
// other is set.
func putAll[V, W any](to map[string]V, from map[string]W, convert func(W) V) map[string]V {
	if to == nil && len(from) > 0 {
		to = map[string]V{}
	}
	for k := range from { // one that changes hands is marked and set
		if key, gone := api.IsMarkedForRemoval(k); gone {
			delete(to, key)
		}
	}
	for k, v := range from {
		if _, gone := api.IsMarkedForRemoval(k); !gone {
			to[k] = convert(v)
		}
	}
	return to
}

// removable is an entry of a list that an adjustment may also take away.
type removable interface{ IsMarkedForRemoval() (string, bool) }

// goneFirst has what goes before what comes, because one that changes hands does both.
func goneFirst[E removable](list []E) []E {
	out := slices.Clone(list)
	slices.SortStableFunc(out, func(x, y E) int { return cmp.Compare(comes(x), comes(y)) })
	return out
}

func comes(e removable) int {
	if _, gone := e.IsMarkedForRemoval(); gone {
		return 0
	}
	return 1
}

func same(v string) string { return v }

func (a *adjustment) annotations() (bool, error) {
	a.spec.Annotations = putAll(a.spec.Annotations, a.want.GetAnnotations(), same)
	return len(a.want.GetAnnotations()) > 0, nil
}

func (a *adjustment) sysctl() (bool, error) {
	a.spec.Linux.Sysctl = putAll(a.spec.Linux.Sysctl, a.linux.GetSysctl(), same)
	return len(a.linux.GetSysctl()) > 0, nil
}

func (a *adjustment) mounts() (bool, error) {
	for _, m := range goneFirst(a.want.GetMounts()) {
		dest, gone := m.IsMarkedForRemoval()
		a.spec.Mounts = slices.DeleteFunc(a.spec.Mounts, func(o specs.Mount) bool { return path.Clean(o.Destination) == path.Clean(dest) })
		if gone {
			continue
		}
		if !path.IsAbs(dest) {
			return false, fmt.Errorf("destination %q is not an absolute path: %w", dest, errdefs.ErrInvalidArgument)
		}
		if err := a.mount(m); err != nil {
			return false, err
		}
	}
	// One that is below another comes after it.
	slices.SortStableFunc(a.spec.Mounts, func(x, y specs.Mount) int { return cmp.Compare(depth(x), depth(y)) })
	return len(a.want.GetMounts()) > 0, nil
}

func depth(m specs.Mount) int { return strings.Count(path.Clean(m.Destination), "/") }

func (a *adjustment) mount(m *api.Mount) error {
	var propagation string
	out := m.ToOCI(&propagation)
	if i := slices.Index(out.Options, api.SELinuxRelabel); i >= 0 {
		out.Options = slices.Delete(out.Options, i, i+1)
		if err := label.Relabel(out.Source, a.spec.Linux.MountLabel, false); err != nil {
			return fmt.Errorf("label %s: %w", out.Source, err)
		}
	}
	// Nothing travels into or out of a root that does not let it.
	root := &a.spec.Linux.RootfsPropagation
	if propagation == "rshared" || propagation == "rslave" && *root != "rshared" {
		*root = propagation
	}
	a.spec.Mounts = append(a.spec.Mounts, out)
	return nil
}

func (a *adjustment) env() (bool, error) {
	env := a.spec.Process.Env
	for _, e := range goneFirst(a.want.GetEnv()) {
		name, gone := e.IsMarkedForRemoval()
		at := slices.IndexFunc(env, func(o string) bool { return strings.HasPrefix(o, name+"=") })
		switch {
		case gone && at >= 0:
			env = slices.Delete(env, at, at+1)
		case gone:
		case at >= 0:
			env[at] = e.ToOCI()
		default:
			env = append(env, e.ToOCI())
		}
	}
	a.spec.Process.Env = env
	return len(a.want.GetEnv()) > 0, nil
}

func (a *adjustment) args() (bool, error) {
	args := a.want.GetArgs()
	if len(args) > 0 {
		a.spec.Process.Args = args
	}
	return len(args) > 0, nil
}

func (a *adjustment) hooks() (bool, error) {
	h := a.want.GetHooks()
	if h.Hooks() == nil {
		return false, nil
	}
	if a.spec.Hooks == nil {
		a.spec.Hooks = &specs.Hooks{}
	}
	to := a.spec.Hooks
	for _, list := range []struct {
		to   *[]specs.Hook
		from []*api.Hook
	}{
		//lint:ignore SA1019 NRI has them, and so do runtimes
		{&to.Prestart, h.GetPrestart()},
		{&to.CreateRuntime, h.GetCreateRuntime()},
		{&to.CreateContainer, h.GetCreateContainer()},
		{&to.StartContainer, h.GetStartContainer()},
		{&to.Poststart, h.GetPoststart()},
		{&to.Poststop, h.GetPoststop()},
	} {
		for _, hook := range list.from {
			*list.to = append(*list.to, hook.ToOCI())
		}
	}
	return true, nil
}

func (a *adjustment) rlimits() (bool, error) {
	p := a.spec.Process
	for _, l := range a.want.GetRlimits() {
		p.Rlimits = slices.DeleteFunc(p.Rlimits, func(o specs.POSIXRlimit) bool { return o.Type == l.GetType() })
		p.Rlimits = append(p.Rlimits, specs.POSIXRlimit{Type: l.GetType(), Hard: l.GetHard(), Soft: l.GetSoft()})
	}
	return len(a.want.GetRlimits()) > 0, nil
}

func (a *adjustment) devices() (bool, error) {
	l := a.spec.Linux
	for _, d := range goneFirst(a.linux.GetDevices()) {
		at, gone := d.IsMarkedForRemoval()
		l.Devices = slices.DeleteFunc(l.Devices, func(o specs.LinuxDevice) bool { return o.Path == at })
		if gone {
			continue
		}
		out := d.ToOCI()
		l.Devices = append(l.Devices, out)
		l.Resources.Devices = append(l.Resources.Devices, specs.LinuxDeviceCgroup{
			Allow: true, Type: out.Type, Major: &out.Major, Minor: &out.Minor, Access: d.AccessString(),
		})
	}
	return len(a.linux.GetDevices()) > 0, nil
}

func (a *adjustment) deviceRules() (bool, error) {
	rules := a.linux.GetResources().GetDevices()
	for _, d := range rules {
		a.spec.Linux.Resources.Devices = append(a.spec.Linux.Resources.Devices, specs.LinuxDeviceCgroup{
			Allow: d.GetAllow(), Type: d.GetType(), Major: d.GetMajor().Get(), Minor: d.GetMinor().Get(), Access: d.GetAccess(),
		})
	}
	return len(rules) > 0, nil
}

func (a *adjustment) cgroupsPath() (bool, error) {
	p := a.linux.GetCgroupsPath()
	if p != "" {
		a.spec.Linux.CgroupsPath = p
	}
	return p != "", nil
}

func (a *adjustment) ioPriority() (bool, error) {
	p := a.linux.GetIoPriority()
	if p == nil {
		return false, nil
	}
	a.spec.Process.IOPriority = p.ToOCI()
	if a.spec.Process.IOPriority.Class == "" { // "none"
		a.spec.Process.IOPriority = nil
		return true, nil
	}
	return true, a.needs(map[string]string{"runc": "1.2", "crun": "1.8.6"})
}

func (a *adjustment) scheduler() (bool, error) {
	s := a.linux.GetScheduler()
	if s == nil {
		return false, nil
	}
	a.spec.Process.Scheduler = s.ToOCI()
	if s.GetPolicy() == api.LinuxSchedulerPolicy_SCHED_NONE {
		a.spec.Process.Scheduler = nil
		return true, nil
	}
	return true, a.needs(map[string]string{"runc": "1.2", "crun": "1.8.5"})
}

func (a *adjustment) seccomp() (bool, error) {
	p := a.linux.GetSeccompPolicy()
	if p == nil {
		return false, nil
	}
	out := &specs.LinuxSeccomp{
		DefaultAction: specs.LinuxSeccompAction(p.GetDefaultAction()), ListenerPath: p.GetListenerPath(),
		ListenerMetadata: p.GetListenerMetadata(), Syscalls: api.ToOCILinuxSyscalls(p.GetSyscalls()),
	}
	if e := p.GetDefaultErrno(); e != nil {
		n := uint(e.GetValue())
		out.DefaultErrnoRet = &n
	}
	for _, arch := range p.GetArchitectures() {
		out.Architectures = append(out.Architectures, specs.Arch(arch))
	}
	for _, f := range p.GetFlags() {
		out.Flags = append(out.Flags, specs.LinuxSeccompFlag(f))
	}
	a.spec.Linux.Seccomp = out
	return true, nil
}

func (a *adjustment) namespaces() (bool, error) {
	l := a.spec.Linux
	for _, n := range goneFirst(a.linux.GetNamespaces()) {
		kind, gone := n.IsMarkedForRemoval()
		l.Namespaces = slices.DeleteFunc(l.Namespaces, func(o specs.LinuxNamespace) bool { return string(o.Type) == kind })
		if !gone {
			l.Namespaces = append(l.Namespaces, specs.LinuxNamespace{Type: specs.LinuxNamespaceType(kind), Path: n.GetPath()})
		}
	}
	return len(a.linux.GetNamespaces()) > 0, nil
}

func (a *adjustment) netDevices() (bool, error) {
	want := a.linux.GetNetDevices()
	if len(want) == 0 {
		return false, nil
	}
	a.spec.Linux.NetDevices = putAll(a.spec.Linux.NetDevices, want, (*api.LinuxNetDevice).ToOCI)
	if len(a.spec.Linux.NetDevices) == 0 {
		return true, nil
	}
	return true, a.needs(map[string]string{"runc": "1.4", "crun": "1.24"})
}

func (a *adjustment) rdt() (bool, error) {
	r := a.linux.GetRdt()
	if r == nil {
		return false, nil
	}
	out := specs.LinuxIntelRdt{}
	if old := a.spec.Linux.IntelRdt; old != nil && !r.GetRemove() {
		out = *old
	}
	if v := r.GetClosId(); v != nil {
		out.ClosID = v.GetValue()
	}
	if v := r.GetSchemata(); v != nil {
		out.Schemata = v.GetValue()
	}
	if v := r.GetEnableMonitoring(); v != nil {
		out.EnableMonitoring = v.GetValue()
	}
	a.spec.Linux.IntelRdt = &out
	switch {
	case len(out.Schemata) > 0 || out.EnableMonitoring:
		return true, a.needs(map[string]string{"runc": "1.4", "crun": "1.24"})
	case out.ClosID == "":
		a.spec.Linux.IntelRdt = nil
	}
	return true, nil
}

func (a *adjustment) memoryPolicy() (bool, error) {
	p := a.linux.GetMemoryPolicy()
	if p == nil {
		return false, nil
	}
	a.spec.Linux.MemoryPolicy = p.ToOCI()
	return true, a.needs(map[string]string{"runc": "1.4", "crun": "1.24"})
}
