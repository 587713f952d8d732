package tally

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestWatch counts what runs when it is asked.
func TestWatch(t *testing.T) {
	running := corev1.ContainerStatus{ContainerID: "x://1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	exited := corev1.ContainerStatus{ContainerID: "x://2", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}
	absent := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}
	up := corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}
	down := corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}
	var pods []*corev1.Pod
	tally := New()
	tally.Watch("n", func() []*corev1.Pod { return pods })
	check := func(want ...string) {
		t.Helper()
		var out strings.Builder
		if err := tally.Write(&out); err != nil {
			t.Fatal(err)
		}
		for _, line := range append(want, `kubelet_node_name{node="n"} 1`) {
			if !strings.Contains(out.String(), line+"\n") {
				t.Errorf("%s is missing in\n%s", line, &out)
			}
		}
	}
	check("kubelet_running_pods 0", `kubelet_running_containers{container_state="running"} 0`)
	for _, c := range []corev1.PodCondition{up, down, up} {
		pods = append(pods, &corev1.Pod{Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{c}, InitContainerStatuses: []corev1.ContainerStatus{exited}, ContainerStatuses: []corev1.ContainerStatus{running, absent},
		}})
	}
	check("kubelet_running_pods 2", `kubelet_running_containers{container_state="exited"} 3`, `kubelet_running_containers{container_state="running"} 3`)
}

// TestListed counts lists of the runtime, and what is between two of them.
func TestListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tally, first := New(), time.Now()
		time.Sleep(20 * time.Millisecond)
		tally.Listed(first, time.Time{})
		time.Sleep(4980 * time.Millisecond)
		second := time.Now()
		time.Sleep(time.Second)
		tally.Listed(second, first)
		var out strings.Builder
		if err := tally.Write(&out); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{
			`kubelet_pleg_relist_duration_seconds_bucket{le="0.025"} 1`, `kubelet_pleg_relist_duration_seconds_bucket{le="1"} 2`, "kubelet_pleg_relist_duration_seconds_sum 1.02",
			`kubelet_pleg_relist_interval_seconds_bucket{le="2.5"} 0`, `kubelet_pleg_relist_interval_seconds_bucket{le="5"} 1`, "kubelet_pleg_relist_interval_seconds_sum 5",
		} {
			if !strings.Contains(out.String(), line+"\n") {
				t.Errorf("%s is missing in\n%s", line, &out)
			}
		}
	})
}
