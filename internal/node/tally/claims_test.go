package tally

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestWriteClaims tells of each claim once, though two pods have it.
func TestWriteClaims(t *testing.T) {
	var out strings.Builder
	data := Claim{Namespace: "default", Name: "data", Capacity: 100, Available: 60, Used: 40, Inodes: 10, InodesFree: 7, InodesUsed: 3}
	if err := WriteClaims(&out, []Claim{data, {Namespace: "a", Name: "data", Capacity: 5}, data}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# TYPE kubelet_volume_stats_capacity_bytes gauge",
		`kubelet_volume_stats_capacity_bytes{namespace="a",persistentvolumeclaim="data"} 5`,
		`kubelet_volume_stats_capacity_bytes{namespace="default",persistentvolumeclaim="data"} 100`,
		`kubelet_volume_stats_available_bytes{namespace="default",persistentvolumeclaim="data"} 60`,
		`kubelet_volume_stats_used_bytes{namespace="default",persistentvolumeclaim="data"} 40`,
		`kubelet_volume_stats_inodes{namespace="default",persistentvolumeclaim="data"} 10`,
		`kubelet_volume_stats_inodes_free{namespace="default",persistentvolumeclaim="data"} 7`,
		`kubelet_volume_stats_inodes_used{namespace="default",persistentvolumeclaim="data"} 3`,
	} {
		if strings.Count(out.String(), want+"\n") != 1 {
			t.Errorf("%s is not there once in\n%s", want, &out)
		}
	}
}

// TestStarts counts what was to be started, by kind and reason.
func TestStarts(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "i"}}, Containers: []corev1.Container{{Name: "c"}}}}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}}
	tally := New()
	tally.Sandbox("runc", "", time.Second, errors.New("no"))
	tally.Sandbox("runc", "", time.Second, nil)
	tally.Pod(time.Now().Add(-time.Second))
	tally.Worked(Kill, time.Millisecond)
	tally.Container(pod, "i", "")
	tally.Container(pod, "c", "RunContainerError")
	tally.Container(pod, "c", "")
	tally.Container(pod, "e", "")
	var out strings.Builder
	if err := tally.Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"kubelet_started_pods_total 2", "kubelet_started_pods_errors_total 1", "kubelet_pod_start_duration_seconds_count 1",
		`kubelet_pod_worker_duration_seconds_count{operation_type="kill"} 1`,
		`kubelet_started_containers_total{container_type="init_container"} 1`, `kubelet_started_containers_total{container_type="container"} 2`,
		`kubelet_started_containers_total{container_type="ephemeral_container"} 1`,
		`kubelet_started_containers_errors_total{container_type="container",code="RunContainerError"} 1`,
	} {
		if !strings.Contains(out.String(), "\n"+want+"\n") {
			t.Errorf("there is no %s in\n%s", want, &out)
		}
	}
}
