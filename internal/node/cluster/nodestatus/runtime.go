package nodestatus

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FromRuntime is what a container runtime's answer says of a node. The error is
// that of the call: then the answer does not count.
func FromRuntime(answer *runtimeapi.StatusResponse, err error) Runtime {
	if err != nil {
		return Runtime{NotReady: []string{fmt.Sprintf("container runtime is down: %v", err)}}
	}
	var out Runtime
	for _, need := range []struct{ condition, text string }{
		{runtimeapi.RuntimeReady, "container runtime not ready"},
		{runtimeapi.NetworkReady, "container runtime network not ready"},
	} {
		if why := lacks(answer, need.condition); why != "" {
			out.NotReady = append(out.NotReady, need.text+": "+why)
		}
	}
	for _, h := range answer.GetRuntimeHandlers() {
		one := corev1.NodeRuntimeHandler{Name: h.GetName()}
		if f := h.GetFeatures(); f != nil {
			one.Features = &corev1.NodeRuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: new(f.GetRecursiveReadOnlyMounts()),
				UserNamespaces:          new(f.GetUserNamespaces()),
			}
		}
		out.Handlers = append(out.Handlers, one)
	}
	if f := answer.GetFeatures(); f != nil {
		out.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: new(f.GetSupplementalGroupsPolicy())}
	}
	return out
}

// Incompatible is what there is to say of a node whose runtime answers, and cannot be used.
func Incompatible(err error) Runtime {
	return Runtime{NotReady: []string{fmt.Sprintf("container runtime is not compatible: %v", err)}}
}

// lacks says why a condition does not hold, or "".
func lacks(answer *runtimeapi.StatusResponse, condition string) string {
	for _, c := range answer.GetStatus().GetConditions() {
		if c.GetType() != condition {
			continue
		}
		if c.GetStatus() {
			return ""
		}
		return fmt.Sprintf("%s=false reason:%s message:%s", condition, c.GetReason(), c.GetMessage())
	}
	return "the runtime does not say " + condition
}
