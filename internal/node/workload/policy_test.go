package workload

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// failsBy has each pod that fails end with an exit code, or in the way of another one.
func failsBy(w *world, codes map[string]int32) {
	for name, p := range w.pods {
		if !p.ended() || p.Phase != corev1.PodFailed {
			continue
		}
		code, exits := codes[strings.Split(name, "-")[1]]
		if !exits {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
			continue
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}}
	}
}

const policy = "  backoffLimit: 0\n  completions: 2\n  parallelism: 2\n  podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget, status: 'True'}]}, " +
	"{action: FailJob, onExitCodes: {containerName: c, operator: In, values: [42]}}, {action: Count, onExitCodes: {operator: NotIn, values: [1]}}]}\n"

// TestPodFailurePolicy ends a Job for one failure, ignores another, and counts the rest.
func TestPodFailurePolicy(t *testing.T) {
	for name, tt := range map[string]struct {
		codes  map[string]int32 // of pods of a slot; others make place
		state  State
		reason string
		text   string
		failed int
	}{
		"ignored": {nil, Complete, "", "", 0},
		"fatal":   {map[string]int32{"1": 42}, Failed, "PodFailurePolicy", "had container c end with exit code 42, which rule 1 of its podFailurePolicy is for (FailJob)", 1},
		"counted": {map[string]int32{"1": 7}, Failed, "BackoffLimitExceeded", "backoffLimit of 0", 1},
		"no rule": {map[string]int32{"1": 1}, Failed, "BackoffLimitExceeded", "backoffLimit of 0", 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, jobOf(t, policy), script("1 f s"))
			w.decide()
			for _, p := range w.pods {
				if p.then == corev1.PodFailed {
					p.Phase, p.Ended = corev1.PodFailed, start.Add(time.Second)
				}
			}
			failsBy(w, tt.codes)
			w.until(start.Add(time.Hour))
			if s := w.last.Status; s.State != tt.state || s.Reason != tt.reason || !strings.Contains(s.Message, tt.text) || s.Failed != tt.failed {
				t.Errorf("%+v", s)
			}
		})
	}
}
