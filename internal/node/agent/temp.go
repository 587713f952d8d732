package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/podspec"
)

func podspecResourcesOf(*corev1.Container, *runtimeapi.ContainerStatus) *corev1.ResourceRequirements {
	return nil
}

func podspecHosts(c *podspec.Context, node []byte) []byte {
	var b strings.Builder
	if c.Pod.Spec.HostNetwork {
		b.Write(node)
	} else {
		b.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost\n")
		for _, ip := range c.IPs {
			fmt.Fprintf(&b, "%s\t%s\n", ip, podspec.Hostname(c.Pod))
		}
	}
	return []byte(b.String())
}
func (w *worker) refresh(context.Context) (time.Time, error) { return time.Time{}, nil }
