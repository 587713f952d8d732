package podspec

import (
	"path/filepath"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/sysctl"
)

// Sandbox is the configuration of the pod's sandbox. Whoever makes it has asked
// KernelName before whether the pod can have a name, and ResolvConf what to warn of.
func Sandbox(c *Context) *runtimeapi.PodSandboxConfig {
	pod := c.Pod
	dns, _ := ResolvConf(c)
	cfg := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID)},
		LogDirectory: c.LogDir,
		DnsConfig:    dns,
		Labels:       podLabels(pod),
		Annotations:  map[string]string{},
	}
	if !pod.Spec.HostNetwork {
		cfg.Hostname = hostname(c)
	}
	for k, v := range pod.Annotations {
		cfg.Annotations[k] = v
	}
	if pod.Spec.RuntimeClassName != nil && *pod.Spec.RuntimeClassName != "" {
		cfg.Annotations[AnnotationClass] = *pod.Spec.RuntimeClassName
	}
	cfg.Annotations[AnnotationGrace] = strconv.FormatInt(Grace(pod), 10)
	for _, ct := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) { // of the first only sidecars may have some
		for _, p := range ct.Ports {
			cfg.PortMappings = append(cfg.PortMappings, portMapping(p))
		}
	}
	cfg.Linux = linuxSandbox(c)
	return cfg
}

// hostname is the pod's without its domain where both are too long, as sandboxes have it
// that were made before such pods were refused.
func hostname(c *Context) string {
	if name, err := KernelName(c); err == nil {
		return name
	}
	return Hostname(c.Pod)
}

// Grace is the pod's termination grace period in seconds.
func Grace(pod *corev1.Pod) int64 {
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		return *g
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}

func podLabels(pod *corev1.Pod) map[string]string {
	labels := map[string]string{}
	for k, v := range pod.Labels {
		labels[k] = v
	}
	labels[LabelPodName], labels[LabelPodNamespace], labels[LabelPodUID] = pod.Name, pod.Namespace, string(pod.UID)
	return labels
}

func portMapping(p corev1.ContainerPort) *runtimeapi.PortMapping {
	protocol := runtimeapi.Protocol_TCP
	switch p.Protocol {
	case corev1.ProtocolUDP:
		protocol = runtimeapi.Protocol_UDP
	case corev1.ProtocolSCTP:
		protocol = runtimeapi.Protocol_SCTP
	}
	return &runtimeapi.PortMapping{Protocol: protocol, ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP}
}

func linuxSandbox(c *Context) *runtimeapi.LinuxPodSandboxConfig {
	spec := &c.Pod.Spec
	security := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(c),
		// The pod's own profile is for its containers: it may allow less than a runtime's own
		// process needs.
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	for i := range spec.Containers {
		security.Privileged = security.Privileged || isTrue(containerSecurity(&spec.Containers[i]).Privileged)
	}
	for i := range spec.InitContainers {
		security.Privileged = security.Privileged || isTrue(containerSecurity(&spec.InitContainers[i]).Privileged)
	}
	linux := &runtimeapi.LinuxPodSandboxConfig{CgroupParent: c.CgroupParent, SecurityContext: security, Sysctls: map[string]string{}}
	linux.Overhead = overhead(c.Overhead)
	linux.Resources = podResources(c)
	sc := spec.SecurityContext
	if sc == nil {
		return linux
	}
	if sc.RunAsUser != nil { // a group alone is refused by the CRI
		security.RunAsUser, security.RunAsGroup = int64Value(sc.RunAsUser), int64Value(sc.RunAsGroup)
	}
	security.SupplementalGroups, security.SupplementalGroupsPolicy = groups(sc)
	security.SelinuxOptions = selinux(sc.SELinuxOptions)
	for _, s := range sc.Sysctls {
		linux.Sysctls[sysctl.Dotted(s.Name)] = s.Value
	}
	return linux
}

func namespaces(c *Context) *runtimeapi.NamespaceOption {
	spec := &c.Pod.Spec
	n := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	if isTrue(spec.ShareProcessNamespace) {
		n.Pid = runtimeapi.NamespaceMode_POD
	}
	if spec.HostPID {
		n.Pid = runtimeapi.NamespaceMode_NODE
	}
	if spec.HostIPC {
		n.Ipc = runtimeapi.NamespaceMode_NODE
	}
	if spec.HostNetwork {
		n.Network = runtimeapi.NamespaceMode_NODE
	}
	if OwnUsers(c.Pod) {
		n.UsernsOptions = c.Userns
	}
	return n
}

func groups(sc *corev1.PodSecurityContext) ([]int64, runtimeapi.SupplementalGroupsPolicy) {
	list := append([]int64(nil), sc.SupplementalGroups...)
	if sc.FSGroup != nil {
		list = append(list, *sc.FSGroup)
	}
	policy := runtimeapi.SupplementalGroupsPolicy_Merge
	if sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict {
		policy = runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return list, policy
}

// seccomp picks the container's profile, else the pod's, else the node's default.
func seccomp(c *Context, own *corev1.SecurityContext) *runtimeapi.SecurityProfile {
	p := &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	if c.Node.SeccompUnconfined {
		p.Type = corev1.SeccompProfileTypeUnconfined
	}
	if sc := c.Pod.Spec.SecurityContext; sc != nil && sc.SeccompProfile != nil {
		p = sc.SeccompProfile
	}
	if own.SeccompProfile != nil {
		p = own.SeccompProfile
	}
	switch p.Type {
	case corev1.SeccompProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	case corev1.SeccompProfileTypeLocalhost:
		return &runtimeapi.SecurityProfile{
			ProfileType:  runtimeapi.SecurityProfile_Localhost,
			LocalhostRef: filepath.Join(c.Node.SeccompRoot, *p.LocalhostProfile),
		}
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
}

// apparmor is nil where neither asks for a profile: the runtime then knows
// best whether the kernel has AppArmor.
func apparmor(c *Context, own *corev1.SecurityContext) *runtimeapi.SecurityProfile {
	var p *corev1.AppArmorProfile
	if sc := c.Pod.Spec.SecurityContext; sc != nil {
		p = sc.AppArmorProfile
	}
	if own != nil && own.AppArmorProfile != nil {
		p = own.AppArmorProfile
	}
	if p == nil {
		return nil
	}
	switch p.Type {
	case corev1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	case corev1.AppArmorProfileTypeLocalhost:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *p.LocalhostProfile}
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
}

func selinux(o *corev1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func int64Value(v *int64) *runtimeapi.Int64Value {
	if v == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *v}
}

func isTrue(b *bool) bool { return b != nil && *b }

func containerSecurity(ct *corev1.Container) *corev1.SecurityContext {
	if ct.SecurityContext == nil {
		return &corev1.SecurityContext{}
	}
	return ct.SecurityContext
}
