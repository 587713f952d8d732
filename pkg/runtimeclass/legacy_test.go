package runtimeclass_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/pkg/runtimeclass"
)

// mapped stands every annotation for a class of its own.
var mapped = runtimeclass.Legacy{
	CRIOUntrusted: "crio", ContainerdUntrusted: "containerd", FraktiOSContainer: "os", FraktiUnikernel: "unikernel", WindowsHyperV: "hyperv",
}

func TestLegacyAnnotations(t *testing.T) {
	const (
		crio       = runtimeclass.AnnotationCRIOTrusted
		containerd = runtimeclass.AnnotationContainerdUntrusted
		container  = runtimeclass.AnnotationFraktiOSContainer
		unikernel  = runtimeclass.AnnotationFraktiUnikernel
		windows    = runtimeclass.AnnotationWindowsIsolation
	)
	for name, tt := range map[string]struct {
		pod     *corev1.Pod
		legacy  runtimeclass.Legacy
		class   string
		warning string // part of the only one; empty for none
	}{
		"none":                  {pod(), mapped, "", ""},
		"another":               {pod(noted("a", "true")), mapped, "", ""},
		"CRI-O":                 {pod(noted(crio, "false")), mapped, "crio", "write spec.runtimeClassName: crio instead"},
		"CRI-O, trusted":        {pod(noted(crio, "true")), mapped, "", "asks for what pods without it get; remove it"},
		"containerd":            {pod(noted(containerd, "true")), mapped, "containerd", "write spec.runtimeClassName: containerd instead"},
		"containerd, capitals":  {pod(noted(containerd, "True")), mapped, "containerd", "is deprecated"},
		"containerd, trusted":   {pod(noted(containerd, "false")), mapped, "", "remove it"},
		"containerd, no answer": {pod(noted(containerd, "yes")), mapped, "", `its value "yes" is none of true, false; it changes nothing`},
		"frakti, container":     {pod(noted(container, "true")), mapped, "os", "write spec.runtimeClassName: os"},
		"frakti, unikernel":     {pod(noted(unikernel, "true")), mapped, "unikernel", "write spec.runtimeClassName: unikernel"},
		"Windows":               {pod(noted(windows, "hyperv")), mapped, "hyperv", "write spec.runtimeClassName: hyperv"},
		"Windows, process":      {pod(noted(windows, "process")), mapped, "", "remove it"},
		"not mapped":            {pod(noted(crio, "false")), runtimeclass.Legacy{}, "", "stands for no class here, so the pod gets the default runtime"},
		"the pod's own class":   {pod(onClass("gvisor"), noted(crio, "false")), mapped, "", "changes nothing: spec.runtimeClassName is gvisor; remove it"},
		"no class of its own":   {pod(onClass(""), noted(crio, "false")), mapped, "crio", "is deprecated"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := tt.legacy.Choose(tt.pod)
			if err != nil || c.Class != tt.class || (c.By == "") != (tt.class == "") {
				t.Fatalf("chose %q by %q, want %q; %v", c.Class, c.By, tt.class, err)
			}
			if tt.warning == "" && len(c.Warnings) > 0 || tt.warning != "" && (len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], tt.warning)) {
				t.Errorf("warnings %q, want one with %q", c.Warnings, tt.warning)
			}
		})
	}
}

func TestLegacyAnnotationsThatDisagree(t *testing.T) {
	p := pod(noted(runtimeclass.AnnotationCRIOTrusted, "false"), noted(runtimeclass.AnnotationContainerdUntrusted, "true"))
	_, err := runtimeclass.Admission{Legacy: mapped, Classes: runtimeclass.NewMap(plain("crio"), plain("containerd"))}.Create(p)
	var r *runtimeclass.Rejection
	if !errors.As(err, &r) || r.Reason != runtimeclass.ReasonLegacy {
		t.Fatalf("got %v", err)
	}
	want := "metadata.annotations[io.kubernetes.cri.untrusted-workload]: stands for RuntimeClass containerd, and io.kubernetes.cri-o.TrustedSandbox for crio; write one of them"
	if !strings.Contains(err.Error(), want) {
		t.Errorf("got %q, want %q", err, want)
	}
	same := runtimeclass.Legacy{CRIOUntrusted: "gvisor", ContainerdUntrusted: "gvisor"}
	if c, err := same.Choose(p); err != nil || c.Class != "gvisor" || len(c.Warnings) != 2 {
		t.Errorf("two that agree: %+v, %v", c, err)
	}
}

func TestLegacyClassIsAdmitted(t *testing.T) {
	a := cluster()
	a.Legacy = runtimeclass.Legacy{WindowsHyperV: "gvisor", FraktiUnikernel: "gone"}
	d, err := a.Create(pod(noted(runtimeclass.AnnotationWindowsIsolation, "hyperv")))
	if err != nil || runtimeclass.NameOf(d.Pod) != "gvisor" || d.Pod.Spec.NodeSelector["runtime"] != "gvisor" || len(d.Warnings) != 1 {
		t.Fatalf("got %+v, %v", d, err)
	}
	if d.Injected.ChosenBy != runtimeclass.AnnotationWindowsIsolation || !strings.Contains(d.Pod.Annotations[runtimeclass.AnnotationInjected], `"chosenBy":"experimental.windows`) {
		t.Errorf("what chose the class is not told: %v", d.Pod.Annotations)
	}
	d, err = a.Create(pod(noted(runtimeclass.AnnotationFraktiUnikernel, "true")))
	want := `metadata.annotations[runtime.frakti.alpha.kubernetes.io/Unikernel]: there is no RuntimeClass "gone"; there are`
	if err == nil || !strings.HasPrefix(err.Error(), want) || len(d.Warnings) != 1 {
		t.Errorf("got %v with %q, want %s", err, d.Warnings, want)
	}
}
