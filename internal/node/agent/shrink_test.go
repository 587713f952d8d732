package agent

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func remembering(memory string) *corev1.Pod {
	p := pod(1, corev1.RestartPolicyAlways, "x")
	r := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: r, Limits: r}
	return p
}

// TestShrink gives a container no limit of memory below what it uses, for which a kernel would
// end it, and says so; it does once the container uses less.
func TestShrink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.room = few{most: 9, cpu: "2"}
		n.boot(t, remembering("64Mi"))
		n.Use("p1/x", 40<<20)
		n.Set([]*corev1.Pod{remembering("32Mi")})
		synctest.Wait()
		const why = `attempting to set container "x" memory limit (33554432) below current usage (41 MiB)`
		got := condition(n.of("p1"), corev1.PodResizeInProgress)
		if calls := n.Calls("resize"); len(calls) > 0 || !strings.HasPrefix(got, "True Error: ") || !strings.Contains(got, why) || !n.saw(why) {
			t.Errorf("%q, %q", got, calls)
		}
		n.Use("p1/x", 20<<20)
		time.Sleep(time.Minute)
		synctest.Wait()
		s := n.of("p1")
		if calls := n.Calls("resize p1/x"); len(calls) != 1 || condition(s, corev1.PodResizeInProgress) != "" || s.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%q %+v", calls, s)
		}
		// More is given whatever is used.
		n.Use("p1/x", 80<<20)
		n.Set([]*corev1.Pod{remembering("64Mi")})
		synctest.Wait()
		if calls := n.Calls("resize p1/x"); len(calls) != 2 {
			t.Errorf("%q", calls)
		}
		n.stop()
	})
}
