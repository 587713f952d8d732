package check

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// faults collects messages that start with a field's path.
type faults []string

func (f *faults) add(path, format string, args ...any) {
	*f = append(*f, path+": "+fmt.Sprintf(format, args...))
}

// all adds the problems that one of Kubernetes' validators found with a value.
func (f *faults) all(path, value string, problems []string) {
	if len(problems) > 0 {
		f.add(path, "%q: %s", value, strings.Join(problems, "; "))
	}
}

// oneOf wants the value to be empty or one of the list.
func oneOf[T ~string](f *faults, path string, value T, list ...T) {
	if value != "" && !slices.Contains(list, value) {
		f.add(path, "%q is not one of %v", value, list)
	}
}

// Meta checks the name, the namespace and the labels of an object.
func Meta(m *metav1.ObjectMeta) []string {
	var f faults
	if m.Name == "" {
		f.add("metadata.name", "is required")
	} else {
		f.all("metadata.name", m.Name, validation.IsDNS1123Subdomain(m.Name))
	}
	if m.Namespace != "" {
		f.all("metadata.namespace", m.Namespace, validation.IsDNS1123Label(m.Namespace))
	}
	checkLabels(&f, "metadata", m)
	return f
}

// Named checks an object of which nothing but its name counts. Names of some kinds hold
// colons, as those of roles do.
func Named(m *metav1.ObjectMeta) []string {
	var f faults
	if m.Name == "" {
		f.add("metadata.name", "is required")
	} else {
		f.all("metadata.name", m.Name, content.IsPathSegmentName(m.Name))
	}
	if m.Namespace != "" {
		f.all("metadata.namespace", m.Namespace, validation.IsDNS1123Label(m.Namespace))
	}
	return f
}

func checkLabels(f *faults, path string, m *metav1.ObjectMeta) {
	for k, v := range m.Labels {
		f.all(path+".labels["+k+"]", k, validation.IsQualifiedName(k))
		f.all(path+".labels["+k+"]", v, validation.IsValidLabelValue(v))
	}
	for k := range m.Annotations {
		f.all(path+".annotations["+k+"]", k, validation.IsQualifiedName(strings.ToLower(k)))
		for _, old := range []string{"container.apparmor.security.beta.kubernetes.io/", "seccomp.security.alpha.kubernetes.io/", "container.seccomp.security.alpha.kubernetes.io/"} {
			if strings.HasPrefix(k, old) {
				f.add(path+".annotations["+k+"]", "is not honoured; use appArmorProfile or seccompProfile in a securityContext")
			}
		}
	}
}

// Keys checks the keys of a ConfigMap or Secret, whose data has two parts.
func Keys[T any](data map[string]T, more map[string][]byte) string {
	for k := range data {
		if p := validation.IsConfigMapKey(k); len(p) > 0 {
			return fmt.Sprintf("data[%s]: %s", k, strings.Join(p, "; "))
		}
		if _, both := more[k]; both {
			return fmt.Sprintf("data[%s]: is in both parts of the object", k)
		}
	}
	for k := range more {
		if p := validation.IsConfigMapKey(k); len(p) > 0 {
			return fmt.Sprintf("binaryData[%s]: %s", k, strings.Join(p, "; "))
		}
	}
	return ""
}

// Pod holds a pod of one machine against the rules of Kubernetes, as far as fields
// are concerned that Fairlead honours there. Paths start with prefix.
func Pod(prefix string, pod *corev1.Pod) []string {
	return common(prefix, pod)
}

// Static holds a static pod of a node of a cluster against these rules. What they do
// not cover changes nothing, or is refused when the pod comes to the node.
func Static(pod *corev1.Pod) []string {
	f := common("", pod)
	if len(pod.Spec.EphemeralContainers) > 0 {
		f.add("spec.ephemeralContainers", "are added to pods that run, and no part of a manifest; remove them")
	}
	return f
}

// common are the rules for all pods.
func common(prefix string, pod *corev1.Pod) faults {
	var f faults
	spec, path := &pod.Spec, prefix+"spec"
	checkLabels(&f, prefix+"metadata", &pod.ObjectMeta)
	checkBandwidth(&f, prefix+"metadata", pod)
	oneOf(&f, path+".restartPolicy", spec.RestartPolicy, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	oneOf(&f, path+".dnsPolicy", spec.DNSPolicy, corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone)
	if spec.DNSPolicy == corev1.DNSNone && (spec.DNSConfig == nil || len(spec.DNSConfig.Nameservers) == 0) {
		f.add(path+".dnsConfig.nameservers", "at least one is required by dnsPolicy None")
	}
	if g := spec.TerminationGracePeriodSeconds; g != nil && *g < 0 {
		f.add(path+".terminationGracePeriodSeconds", "%d is negative", *g)
	}
	if d := spec.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > math.MaxInt32) {
		f.add(path+".activeDeadlineSeconds", "%d is not between 1 and %d", *d, math.MaxInt32)
	}
	if p := spec.PreemptionPolicy; p != nil {
		oneOf(&f, path+".preemptionPolicy", *p, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
	if spec.Hostname != "" {
		f.all(path+".hostname", spec.Hostname, validation.IsDNS1123Label(spec.Hostname))
	}
	if spec.Subdomain != "" {
		f.all(path+".subdomain", spec.Subdomain, validation.IsDNS1123Label(spec.Subdomain))
	}
	checkOverride(&f, path+".hostnameOverride", spec)
	if spec.RuntimeClassName != nil && *spec.RuntimeClassName != "" {
		f.all(path+".runtimeClassName", *spec.RuntimeClassName, validation.IsDNS1123Subdomain(*spec.RuntimeClassName))
	}
	if spec.HostPID && spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace {
		f.add(path+".shareProcessNamespace", "does not go with hostPID")
	}
	for i, a := range spec.HostAliases {
		at := fmt.Sprintf("%s.hostAliases[%d]", path, i)
		f.all(at+".ip", a.IP, ipProblems(a.IP))
		for j, name := range a.Hostnames {
			f.all(fmt.Sprintf("%s.hostnames[%d]", at, j), name, validation.IsDNS1123Subdomain(name))
		}
	}
	checkPodSecurity(&f, path+".securityContext", spec)
	checkVolumes(&f, path+".volumes", spec.Volumes)
	if len(spec.Containers) == 0 {
		f.add(path+".containers", "at least one container is required")
	}
	c := containerCheck{faults: &f, spec: spec, names: map[string]bool{}, ports: map[string]bool{}}
	for i := range spec.InitContainers {
		c.check(fmt.Sprintf("%s.initContainers[%d]", path, i), &spec.InitContainers[i], true)
	}
	for i := range spec.Containers {
		c.check(fmt.Sprintf("%s.containers[%d]", path, i), &spec.Containers[i], false)
	}
	checkWhole(&f, path+".resources", pod)
	return f
}

// maxHostname is what the kernel takes as the name of a host.
const maxHostname = 64

func checkOverride(f *faults, path string, spec *corev1.PodSpec) {
	name := spec.HostnameOverride
	if name == nil {
		return
	}
	f.all(path, *name, validation.IsDNS1123Subdomain(*name))
	switch {
	case len(*name) > maxHostname:
		f.add(path, "has %d characters, and at most %d are allowed", len(*name), maxHostname)
	case spec.HostNetwork:
		f.add(path, "does not go with hostNetwork")
	case spec.SetHostnameAsFQDN != nil && *spec.SetHostnameAsFQDN:
		f.add(path, "does not go with setHostnameAsFQDN")
	}
}

func ipProblems(ip string) []string {
	var out []string
	for _, err := range validation.IsValidIP(nil, ip) {
		out = append(out, err.Detail)
	}
	return out
}

func checkPodSecurity(f *faults, path string, spec *corev1.PodSpec) {
	sc := spec.SecurityContext
	if sc == nil {
		return
	}
	checkID(f, path+".runAsUser", sc.RunAsUser)
	checkID(f, path+".runAsGroup", sc.RunAsGroup)
	checkID(f, path+".fsGroup", sc.FSGroup)
	for i := range sc.SupplementalGroups {
		checkID(f, fmt.Sprintf("%s.supplementalGroups[%d]", path, i), &sc.SupplementalGroups[i])
	}
	if p := sc.SupplementalGroupsPolicy; p != nil {
		oneOf(f, path+".supplementalGroupsPolicy", *p, corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	}
	for i, s := range sc.Sysctls {
		at := fmt.Sprintf("%s.sysctls[%d].name", path, i)
		name := strings.ReplaceAll(s.Name, "/", ".")
		switch {
		case strings.HasPrefix(name, "net."):
			if spec.HostNetwork {
				f.add(at, "%s would change the node: the pod has hostNetwork", s.Name)
			}
		case strings.HasPrefix(name, "kernel.shm"), strings.HasPrefix(name, "kernel.msg"), name == "kernel.sem", strings.HasPrefix(name, "fs.mqueue."):
			if spec.HostIPC {
				f.add(at, "%s would change the node: the pod has hostIPC", s.Name)
			}
		default:
			f.add(at, "%q belongs to the whole node and cannot be set for a pod", s.Name)
		}
	}
	checkProfiles(f, path, sc.SeccompProfile, sc.AppArmorProfile)
}

func checkID(f *faults, path string, id *int64) {
	if id != nil && (*id < 0 || *id > 1<<31-1) {
		f.add(path, "%d is not between 0 and %d", *id, 1<<31-1)
	}
}

func checkProfiles(f *faults, path string, seccomp *corev1.SeccompProfile, apparmor *corev1.AppArmorProfile) {
	if p := seccomp; p != nil {
		oneOf(f, path+".seccompProfile.type", p.Type, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined, corev1.SeccompProfileTypeLocalhost)
		checkLocal(f, path+".seccompProfile", string(p.Type), p.LocalhostProfile)
		if p.LocalhostProfile != nil && !isLocal(*p.LocalhostProfile) {
			f.add(path+".seccompProfile.localhostProfile", "%q is not a relative path without ..", *p.LocalhostProfile)
		}
	}
	if p := apparmor; p != nil {
		oneOf(f, path+".appArmorProfile.type", p.Type, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined, corev1.AppArmorProfileTypeLocalhost)
		checkLocal(f, path+".appArmorProfile", string(p.Type), p.LocalhostProfile)
	}
}

func checkLocal(f *faults, path, kind string, local *string) {
	has := local != nil && *local != ""
	switch {
	case kind == "":
		f.add(path+".type", "is required")
	case (kind == "Localhost") != has:
		f.add(path+".localhostProfile", "goes with type Localhost, and only with it")
	}
}
