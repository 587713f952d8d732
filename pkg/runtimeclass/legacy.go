package runtimeclass

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Annotations by which pods chose a sandbox before there were classes.
const (
	AnnotationCRIOTrusted         = "io.kubernetes.cri-o.TrustedSandbox"
	AnnotationContainerdUntrusted = "io.kubernetes.cri.untrusted-workload"
	AnnotationFraktiOSContainer   = "runtime.frakti.alpha.kubernetes.io/OSContainer"
	AnnotationFraktiUnikernel     = "runtime.frakti.alpha.kubernetes.io/Unikernel"
	AnnotationWindowsIsolation    = "experimental.windows.kubernetes.io/isolation-type"
)

// Legacy says which class each of the old annotations stands for. Where one is
// empty, its annotation gives a warning and nothing else.
type Legacy struct {
	// CRIOUntrusted is for CRI-O's TrustedSandbox: "false".
	CRIOUntrusted string `json:"crioUntrusted,omitempty"`
	// ContainerdUntrusted is for containerd's untrusted-workload: "true".
	ContainerdUntrusted string `json:"containerdUntrusted,omitempty"`
	// FraktiOSContainer is for frakti's OSContainer: "true", which asked for a
	// container on the host's kernel.
	FraktiOSContainer string `json:"fraktiOSContainer,omitempty"`
	// FraktiUnikernel is for frakti's Unikernel: "true".
	FraktiUnikernel string `json:"fraktiUnikernel,omitempty"`
	// WindowsHyperV is for isolation-type: "hyperv".
	WindowsHyperV string `json:"windowsHyperV,omitempty"`
}

// legacyKey is one of the annotations, the value that asks for something, and
// those that ask for what happens without it.
type legacyKey struct {
	name, asks string
	idle       []string
	class      func(Legacy) string
}

var legacyTable = []legacyKey{
	{AnnotationCRIOTrusted, "false", []string{"true"}, func(l Legacy) string { return l.CRIOUntrusted }},
	{AnnotationContainerdUntrusted, "true", []string{"false"}, func(l Legacy) string { return l.ContainerdUntrusted }},
	{AnnotationFraktiOSContainer, "true", []string{"false"}, func(l Legacy) string { return l.FraktiOSContainer }},
	{AnnotationFraktiUnikernel, "true", []string{"false"}, func(l Legacy) string { return l.FraktiUnikernel }},
	{AnnotationWindowsIsolation, "hyperv", []string{"process"}, func(l Legacy) string { return l.WindowsHyperV }},
}

func legacyKeys() []string {
	var out []string
	for _, k := range legacyTable {
		out = append(out, k.name)
	}
	return out
}

// Choose reads the old annotations of a pod. A pod that names a class keeps it,
// whatever they say. Two annotations that stand for different classes are a
// *Rejection: one of them would be given less isolation than it asks for.
//
// Each annotation gives a warning, with what to write instead.
func (l Legacy) Choose(pod *corev1.Pod) (Choice, error) {
	var c Choice
	own, chosen := NameOf(pod), ""
	if in, err := InjectedOf(pod); err == nil && in != nil && in.Class == own {
		chosen = in.ChosenBy // by an earlier pass, so the field is not the author's
	}
	for _, k := range legacyTable {
		value, ok := pod.Annotations[k.name]
		if !ok {
			continue
		}
		class := k.class(l)
		asks := strings.EqualFold(value, k.asks)
		authors := own
		if chosen == k.name && own == class {
			authors = ""
		}
		c.Warnings = append(c.Warnings, k.warning(value, class, authors))
		if !asks || class == "" || own != "" {
			continue
		}
		if c.Class != "" && c.Class != class {
			return Choice{Warnings: c.Warnings}, Rejection{Reason: ReasonLegacy, Field: "metadata.annotations[" + k.name + "]"}.saying("stands for RuntimeClass %s, and %s for %s; write one of them in spec.runtimeClassName, and remove the annotations",
				class, c.By, c.Class)
		}
		if c.Class == "" {
			c.Class, c.By = class, k.name
		}
	}
	return c, nil
}

// warning says of one annotation what it does here and what replaces it.
func (k legacyKey) warning(value, class, own string) string {
	head := fmt.Sprintf("metadata.annotations[%s]: is deprecated", k.name)
	switch {
	case own != "":
		return head + " and changes nothing: spec.runtimeClassName is " + own + "; remove it"
	case k.isIdle(value):
		return head + " and asks for what pods without it get; remove it"
	case !strings.EqualFold(value, k.asks):
		return fmt.Sprintf("%s, and its value %.40q is none of %s, %s; it changes nothing, write the class that you want in spec.runtimeClassName", head, value, k.asks, strings.Join(k.idle, ", "))
	case class == "":
		return head + " and stands for no class here, so the pod gets the default runtime; write the class that you want in spec.runtimeClassName"
	}
	return fmt.Sprintf("%s; write spec.runtimeClassName: %s instead", head, class)
}

func (k legacyKey) isIdle(value string) bool {
	for _, v := range k.idle {
		if strings.EqualFold(value, v) {
			return true
		}
	}
	return false
}
