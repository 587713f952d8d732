package policy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/api/v1alpha1"
)

// Features that the fields of a pod ask for. Beside them, each kind of volume
// is one: hostPathVolumes, imageVolumes, csiVolumes. Policies and
// AnnotationRequires can name any other that nodes or classes tell of.
const (
	UserNamespaces          v1alpha1.Feature = "userNamespaces"
	RecursiveReadOnlyMounts v1alpha1.Feature = "recursiveReadOnlyMounts"
	SupplementalGroups      v1alpha1.Feature = "supplementalGroupsPolicy"
	HostNetwork             v1alpha1.Feature = "hostNetwork"
	HostPID                 v1alpha1.Feature = "hostPID"
	HostIPC                 v1alpha1.Feature = "hostIPC"
	Privileged              v1alpha1.Feature = "privileged"
	BlockVolumes            v1alpha1.Feature = "blockVolumes"
	BidirectionalMounts     v1alpha1.Feature = "bidirectionalMounts"
)

// Need is a feature that a field of a pod asks for.
type Need struct {
	Feature v1alpha1.Feature
	Field   string // of the pod: "spec.hostNetwork"
}

// Needs are the features that a pod's own fields ask for, each once, in the
// order of the fields.
func Needs(pod *corev1.Pod) []Need {
	var n needs
	s := &pod.Spec
	n.add(HostNetwork, "spec.hostNetwork", s.HostNetwork)
	n.add(HostPID, "spec.hostPID", s.HostPID)
	n.add(HostIPC, "spec.hostIPC", s.HostIPC)
	n.add(UserNamespaces, "spec.hostUsers", s.HostUsers != nil && !*s.HostUsers)
	if c := s.SecurityContext; c != nil {
		n.add(SupplementalGroups, "spec.securityContext.supplementalGroupsPolicy", c.SupplementalGroupsPolicy != nil && *c.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict)
	}
	for i := range s.Volumes {
		if kind := kindOf(&s.Volumes[i]); kind != "" {
			n.add(v1alpha1.Feature(kind+"Volumes"), fmt.Sprintf("spec.volumes[%s].%s", s.Volumes[i].Name, kind), true)
		}
	}
	for i := range s.InitContainers {
		n.container("spec.initContainers", &s.InitContainers[i])
	}
	for i := range s.Containers {
		n.container("spec.containers", &s.Containers[i])
	}
	for i := range s.EphemeralContainers {
		c := corev1.Container(s.EphemeralContainers[i].EphemeralContainerCommon)
		n.container("spec.ephemeralContainers", &c)
	}
	return n
}

type needs []Need

func (n *needs) add(f v1alpha1.Feature, field string, needed bool) {
	if needed && !slices.ContainsFunc(*n, func(has Need) bool { return has.Feature == f }) {
		*n = append(*n, Need{f, field})
	}
}

func (n *needs) container(list string, c *corev1.Container) {
	at := list + "[" + c.Name + "]"
	if s := c.SecurityContext; s != nil {
		n.add(Privileged, at+".securityContext.privileged", s.Privileged != nil && *s.Privileged)
	}
	n.add(BlockVolumes, at+".volumeDevices", len(c.VolumeDevices) > 0)
	for _, m := range c.VolumeMounts {
		mount := at + ".volumeMounts[" + m.Name + "]"
		n.add(BidirectionalMounts, mount+".mountPropagation", m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationBidirectional)
		n.add(RecursiveReadOnlyMounts, mount+".recursiveReadOnly", m.RecursiveReadOnly != nil && *m.RecursiveReadOnly == corev1.RecursiveReadOnlyEnabled)
	}
}

// kinds are the fields of a volume's source by their names in JSON.
var kinds = func() []string {
	t := reflect.TypeFor[corev1.VolumeSource]()
	var out []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		out = append(out, name)
	}
	return out
}()

func kindOf(v *corev1.Volume) string {
	source := reflect.ValueOf(&v.VolumeSource).Elem()
	for i, name := range kinds {
		if !source.Field(i).IsNil() {
			return name
		}
	}
	return ""
}

// key makes one of the ways in which a feature is written: nodes write
// userNamespaces, `fairlead handlers` user-namespaces, and where one writes
// checkpoints, people write checkpoint.
func key(f v1alpha1.Feature) string {
	return strings.TrimSuffix(strings.ToLower(strings.ReplaceAll(string(f), "-", "")), "s")
}

// listed reads the value of an annotation that lists features.
func listed(text string) (map[string]v1alpha1.Feature, error) {
	out := map[string]v1alpha1.Feature{}
	for word := range strings.SplitSeq(text, ",") {
		f := v1alpha1.Feature(strings.TrimSpace(word))
		if f == "" && strings.TrimSpace(text) == "" {
			continue
		}
		if !named(f) {
			return nil, fmt.Errorf("%.60q is no feature: write names such as userNamespaces,checkpoint, with commas between them", f)
		}
		out[key(f)] = f
	}
	return out, nil
}

// named says whether a feature is written as the CRD has it.
func named(f v1alpha1.Feature) bool {
	letter := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }
	for i, r := range f {
		inner := i > 0 && (r >= '0' && r <= '9' || r == '-' && i < len(f)-1)
		if !letter(r) && !inner {
			return false
		}
	}
	return f != "" && len(f) <= 63
}

func sortedNames(features map[string]v1alpha1.Feature) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(features)) {
		out = append(out, string(features[k]))
	}
	return out
}
