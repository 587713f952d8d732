package podspec

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// AnnotationPreStop records on a container its preStop hook, for those who stop it
// and do not know its manifest.
const AnnotationPreStop = "fairlead.run/pre-stop"

// AnnotationPorts records on a container the ports that its manifest has, as a kubelet
// does, for those who know them by name.
const AnnotationPorts = "io.kubernetes.container.ports"

func annotatePorts(ct *corev1.Container, cfg *runtimeapi.ContainerConfig) error {
	if len(ct.Ports) == 0 {
		return nil
	}
	text, err := json.Marshal(ct.Ports)
	if err != nil {
		return err
	}
	annotate(cfg, AnnotationPorts, string(text))
	return nil
}

// PortsOf reads them back from the annotations of a container.
func PortsOf(annotations map[string]string) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	if text := annotations[AnnotationPorts]; text == "" || json.Unmarshal([]byte(text), &out) != nil {
		return nil
	}
	return out
}

// annotatePreStop writes the hook so that it can be run without the pod: with the
// number of its port and an address.
func annotatePreStop(c *Context, ct *corev1.Container, cfg *runtimeapi.ContainerConfig) error {
	if ct.Lifecycle == nil || ct.Lifecycle.PreStop == nil {
		return nil
	}
	h := ct.Lifecycle.PreStop.DeepCopy()
	if get := h.HTTPGet; get != nil {
		if get.Host == "" {
			get.Host = first(c.Addresses())
		}
		for _, p := range ct.Ports {
			if get.Port.Type == intstr.String && p.Name == get.Port.StrVal {
				get.Port = intstr.FromInt32(p.ContainerPort)
			}
		}
	}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	annotate(cfg, AnnotationPreStop, string(text))
	return nil
}

// PreStopOf reads it back from the annotations of a container; nil if there is none,
// or none that can be read.
func PreStopOf(annotations map[string]string) *corev1.LifecycleHandler {
	h := &corev1.LifecycleHandler{}
	if text := annotations[AnnotationPreStop]; text == "" || json.Unmarshal([]byte(text), h) != nil {
		return nil
	}
	return h
}
