package handlers

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/manifest"
	"fairlead.run/pkg/runtimeclass/policy"
)

// TestResolveByAdmission holds that one machine has the rules of a cluster.
func TestResolveByAdmission(t *testing.T) {
	set, err := List(t.Context(), endpoint{answer: &runtimeapi.StatusResponse{
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{}, {Name: "runc", Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}, {Name: "gvisor"}},
		Info:            map[string]string{"handlers": `{"runc": {"default": true, "features": {"userNamespaces": true, "checkpoints": true, "noStats": "why"}}, "gvisor": {"features": {"seccomp": true}}, "kata": {"reason": "no kvm"}}`},
	}})
	if err != nil {
		t.Fatal(err)
	}
	class := func(name, handler, isolation string) *nodev1.RuntimeClass {
		return &nodev1.RuntimeClass{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{policy.LabelIsolation: isolation}}, Handler: handler,
			Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"elsewhere": "true"}},
		}
	}
	classes := map[string]*nodev1.RuntimeClass{
		"native": class("native", "runc", "none"), "sandboxed": class("sandboxed", "gvisor", "sandbox"), "vm": class("vm", "kata", "vm"),
	}
	standard := class("standard", "gvisor", "sandbox")
	standard.Annotations = map[string]string{policy.AnnotationDefault: "true"}
	requires := func(text string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{policy.AnnotationRequires: text}}}
	}
	sandboxed := "sandboxed"
	for name, tt := range map[string]struct {
		pod        corev1.Pod
		standard   bool // there is a default class
		class, err string
		kind       error
	}{
		"no class":                        {corev1.Pod{}, false, "", "", nil},
		"the default class":               {corev1.Pod{}, true, "standard", "", nil},
		"isolation":                       {requires("isolation=sandbox"), false, "sandboxed", "", nil},
		"a feature":                       {requires("checkpoint"), false, "native", "", nil},
		"a handler that does not work":    {requires("isolation=vm"), false, "", "vm has no node with handler kata", errdefs.ErrUnavailable},
		"a feature that nothing has":      {requires("isolation=sandbox,checkpoint"), false, "", "sandboxed lacks checkpoint", errdefs.ErrUnavailable},
		"what the handler cannot do":      {corev1.Pod{Spec: corev1.PodSpec{RuntimeClassName: &sandboxed, HostPID: true}}, false, "", "spec.hostPID: RuntimeClass sandboxed has no hostPID", errdefs.ErrInvalidArgument},
		"a requirement that is not sound": {requires("isolation=yes"), false, "", "cannot be read", errdefs.ErrInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			all := map[string]*nodev1.RuntimeClass{}
			for k, v := range classes {
				all[k] = v
			}
			if tt.standard {
				all["standard"] = standard
			}
			c, err := set.Resolve(&manifest.Pod{Pod: &tt.pod, Origin: "f.yaml:1"}, all)
			if tt.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), "f.yaml:1: ") || !strings.Contains(err.Error(), tt.err) || !errors.Is(err, tt.kind) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || c.Class != tt.class {
				t.Fatalf("%+v, %v", c, err)
			}
			if chosen := len(c.Notes()) > 0; chosen != (tt.class != "") {
				t.Errorf("notes %q", c.Notes())
			}
		})
	}
}
