package podspec

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Attempt is one container of a pod, about to be made.
type Attempt struct {
	Container *corev1.Container
	Number    uint32 // 0 for the first
	Image     string // what PullImage answered
	// Info is what the runtime says of the image; nil if nobody has asked.
	Info   *runtimeapi.Image
	Mounts []*runtimeapi.Mount
	Given  Given
	// Target is the id of the container whose processes an ephemeral container
	// shares; empty if it names none.
	Target string
	Record
}

// MountPath is where a container has a volume. Kubernetes takes a path without a slash before
// it, and means one from the root.
func MountPath(m corev1.VolumeMount) string { return filepath.Join("/", m.MountPath) }

// LogPath is where the attempt's log is, below the pod's log folder.
func (a Attempt) LogPath() string {
	return filepath.Join(a.Container.Name, strconv.FormatUint(uint64(a.Number), 10)+".log")
}

// Container is the configuration of one attempt. The error says which
// variable could not be resolved.
func Container(ctx context.Context, c *Context, a Attempt) (*runtimeapi.ContainerConfig, error) {
	ct := a.Container
	vars, err := environment(ctx, c, ct)
	if err != nil {
		return nil, err
	}
	labels := podLabels(c.Pod)
	labels[LabelContainerName] = ct.Name
	cfg := &runtimeapi.ContainerConfig{
		Metadata:   &runtimeapi.ContainerMetadata{Name: ct.Name, Attempt: a.Number},
		Image:      &runtimeapi.ImageSpec{Image: a.Image, UserSpecifiedImage: ct.Image},
		Command:    vars.expandAll(ct.Command),
		Args:       vars.expandAll(ct.Args),
		WorkingDir: ct.WorkingDir,
		Mounts:     a.Mounts,
		Labels:     labels,
		LogPath:    a.LogPath(),
		Stdin:      ct.Stdin, StdinOnce: ct.StdinOnce, Tty: ct.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       Resources(c, ct),
			SecurityContext: security(c, ct),
		},
		StopSignal: stopSignal(ct),
	}
	ofImage(cfg.Linux.SecurityContext, a.Info)
	if a.Target != "" {
		n := cfg.Linux.SecurityContext.NamespaceOptions
		n.Pid, n.TargetId = runtimeapi.NamespaceMode_TARGET, a.Target
	}
	a.Given.give(cfg, vars.values)
	a.annotate(cfg)
	for _, name := range vars.order {
		cfg.Envs = append(cfg.Envs, &runtimeapi.KeyValue{Key: name, Value: []byte(vars.values[name])})
	}
	if err := annotatePorts(ct, cfg); err != nil {
		return nil, err
	}
	return cfg, annotatePreStop(c, ct, cfg)
}

// stopSignal is the one of lifecycle.stopSignal (KEP-4960). The CRI calls SIGRTMIN+1
// SIGNAL_SIGRTMINPLUS1.
func stopSignal(ct *corev1.Container) runtimeapi.Signal {
	if ct.Lifecycle == nil || ct.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	}
	name := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(*ct.Lifecycle.StopSignal))
	return runtimeapi.Signal(runtimeapi.Signal_value["SIGNAL_"+name])
}

// What the kubelet hides of /proc with procMount Default.
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

func security(c *Context, ct *corev1.Container) *runtimeapi.LinuxContainerSecurityContext {
	sc := containerSecurity(ct)
	out := &runtimeapi.LinuxContainerSecurityContext{
		Privileged:       isTrue(sc.Privileged),
		NamespaceOptions: namespaces(c),
		ReadonlyRootfs:   isTrue(sc.ReadOnlyRootFilesystem),
		NoNewPrivs:       sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		Seccomp:          seccomp(c, sc),
		Apparmor:         apparmor(c, sc),
	}
	if sc.ProcMount == nil || *sc.ProcMount == "" || *sc.ProcMount == corev1.DefaultProcMount {
		out.MaskedPaths, out.ReadonlyPaths = maskedPaths, readonlyPaths
	}
	if sc.Capabilities != nil {
		out.Capabilities = &runtimeapi.Capability{}
		for _, add := range sc.Capabilities.Add {
			out.Capabilities.AddCapabilities = append(out.Capabilities.AddCapabilities, string(add))
		}
		for _, drop := range sc.Capabilities.Drop {
			out.Capabilities.DropCapabilities = append(out.Capabilities.DropCapabilities, string(drop))
		}
	}
	options := sc.SELinuxOptions
	user, group := RunAs(c.Pod, ct)
	out.RunAsUser, out.RunAsGroup = int64Value(user), int64Value(group)
	if pod := c.Pod.Spec.SecurityContext; pod != nil {
		out.SupplementalGroups, out.SupplementalGroupsPolicy = groups(pod)
		if options == nil {
			options = pod.SELinuxOptions
		}
	}
	for _, g := range c.Groups {
		if !slices.Contains(out.SupplementalGroups, g) {
			out.SupplementalGroups = append(out.SupplementalGroups, g)
		}
	}
	out.SelinuxOptions = selinux(options)
	return out
}

// ofImage names the user of the image where only a group is asked for, as runtimes take none
// without a user.
func ofImage(sc *runtimeapi.LinuxContainerSecurityContext, image *runtimeapi.Image) {
	switch {
	case sc.RunAsGroup == nil || sc.RunAsUser != nil:
	case image.GetUid() == nil && image.GetUsername() != "":
		sc.RunAsUsername = image.GetUsername()
	default:
		sc.RunAsUser = &runtimeapi.Int64Value{Value: image.GetUid().GetValue()} // root, if it names none
	}
}

// RunAs is the user and group that the manifest asks for; nil means the image's.
func RunAs(pod *corev1.Pod, ct *corev1.Container) (user, group *int64) {
	if sc := pod.Spec.SecurityContext; sc != nil {
		user, group = sc.RunAsUser, sc.RunAsGroup
	}
	if sc := ct.SecurityContext; sc != nil {
		if sc.RunAsUser != nil {
			user = sc.RunAsUser
		}
		if sc.RunAsGroup != nil {
			group = sc.RunAsGroup
		}
	}
	return user, group
}

// CheckNonRoot holds runAsNonRoot against who the container would run as. The
// image may be nil where it is not here yet and then counts as unknown.
func CheckNonRoot(pod *corev1.Pod, ct *corev1.Container, image *runtimeapi.Image) error {
	wanted := false
	if sc := pod.Spec.SecurityContext; sc != nil {
		wanted = isTrue(sc.RunAsNonRoot)
	}
	if sc := ct.SecurityContext; sc != nil && sc.RunAsNonRoot != nil {
		wanted = *sc.RunAsNonRoot
	}
	if !wanted {
		return nil
	}
	if user, _ := RunAs(pod, ct); user != nil {
		if *user == 0 {
			return fmt.Errorf("container %s: runAsNonRoot is set, and runAsUser is 0", ct.Name)
		}
		return nil
	}
	switch {
	case image.GetUid() != nil && image.GetUid().GetValue() != 0:
		return nil
	case image.GetUsername() != "":
		return fmt.Errorf("container %s: runAsNonRoot is set, and nobody can say whether the image's user %q is root; set runAsUser to a number", ct.Name, image.GetUsername())
	}
	return fmt.Errorf("container %s: runAsNonRoot is set, and the image %s runs as root; set runAsUser", ct.Name, ct.Image)
}

// FieldPath is where a container is in its pod, as events have it: spec.containers{web}. It
// is empty if there is none of that name.
func FieldPath(pod *corev1.Pod, name string) string {
	named := func(c corev1.Container) bool { return c.Name == name }
	switch {
	case slices.ContainsFunc(pod.Spec.Containers, named):
		return "spec.containers{" + name + "}"
	case slices.ContainsFunc(pod.Spec.InitContainers, named):
		return "spec.initContainers{" + name + "}"
	case ContainerOf(pod, name) != nil:
		return "spec.ephemeralContainers{" + name + "}"
	}
	return ""
}

// ContainerOf is a container of a pod; nil if it has none of that name.
func ContainerOf(pod *corev1.Pod, name string) *corev1.Container {
	spec := &pod.Spec
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range spec.EphemeralContainers {
		if spec.EphemeralContainers[i].Name == name {
			return (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
		}
	}
	return nil
}
