package pick

import (
	"errors"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/errdefs"
)

// podOf is one that has run on a node for an hour, and has been ready as long.
func podOf(name string, changes ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: at(0)}, Spec: corev1.PodSpec{NodeName: "n"}}
	p.Status.Phase = corev1.PodRunning
	ready(0)(&p)
	for _, c := range changes {
		c(&p)
	}
	return p
}

func at(minute int) metav1.Time {
	return metav1.Time{Time: time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC)}
}

func ready(minute int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at(minute)}}
	}
}

func unready(p *corev1.Pod) { p.Status.Conditions = nil }

func phase(as corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase, p.Status.Conditions = as, nil }
}

func restarted(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: n}}
	}
}

func sidecarRestarted(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		always := corev1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []corev1.Container{{Name: "s", RestartPolicy: &always}, {Name: "i"}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "s", RestartCount: n}, {Name: "i", RestartCount: 100 - n}}
	}
}

func deleted(minute int) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.DeletionTimestamp = new(at(minute)) }
}

// TestRules has two pods that differ in one thing: the better one for logs, and for who
// needs one that runs.
func TestRules(t *testing.T) {
	plain := podOf("a")
	for name, tt := range map[string]struct {
		b             corev1.Pod
		logs, running string
	}{
		"no node":              {podOf("b", func(p *corev1.Pod) { p.Spec.NodeName = "" }), "a", "a"},
		"pending":              {podOf("b", phase(corev1.PodPending)), "a", "a"},
		"unknown":              {podOf("b", phase(corev1.PodUnknown)), "a", "a"},
		"ended":                {podOf("b", phase(corev1.PodSucceeded)), "a", "a"}, // as it is not ready
		"not ready":            {podOf("b", unready), "a", "a"},
		"ready for less":       {podOf("b", ready(1)), "a", "a"},
		"restarted":            {podOf("b", restarted(3)), "b", "a"},
		"a sidecar restarted":  {podOf("b", sidecarRestarted(3)), "b", "a"},
		"younger":              {podOf("b", func(p *corev1.Pod) { p.CreationTimestamp = at(1) }), "a", "a"},
		"of an unknown age":    {podOf("b", func(p *corev1.Pod) { p.CreationTimestamp = metav1.Time{} }), "a", "a"},
		"deleted, and younger": {podOf("b", deleted(5), func(p *corev1.Pod) { p.CreationTimestamp = at(1) }), "a", "a"},
		"older, and deleted":   {podOf("b", deleted(5), func(p *corev1.Pod) { p.CreationTimestamp = at(-1) }), "b", "a"},
	} {
		for _, list := range [][]corev1.Pod{{plain, tt.b}, {tt.b, plain}} {
			if got := Best(list, Logs).Name; got != tt.logs {
				t.Errorf("%s: logs of %s, want %s", name, got, tt.logs)
			}
			if got := Best(list, Running).Name; got != tt.running {
				t.Errorf("%s: running %s, want %s", name, got, tt.running)
			}
		}
	}
}

// TestRulesUnready has pods of which none is ready.
func TestRulesUnready(t *testing.T) {
	plain := podOf("a", unready)
	for name, tt := range map[string]struct {
		b             corev1.Pod
		logs, running string
	}{
		"ended before":         {podOf("b", phase(corev1.PodFailed), restarted(1)), "b", "a"},
		"ended first":          {podOf("b", phase(corev1.PodSucceeded), func(p *corev1.Pod) { p.CreationTimestamp = at(-1) }), "b", "a"},
		"unknown, not pending": {podOf("b", phase(corev1.PodUnknown)), "a", "a"},
	} {
		for _, list := range [][]corev1.Pod{{plain, tt.b}, {tt.b, plain}} {
			if got := Best(list, Logs).Name; got != tt.logs {
				t.Errorf("%s: logs of %s, want %s", name, got, tt.logs)
			}
			if got := Best(list, Running).Name; got != tt.running {
				t.Errorf("%s: running %s, want %s", name, got, tt.running)
			}
		}
	}
	pending, unknown := podOf("p", phase(corev1.PodPending)), podOf("u", phase(corev1.PodUnknown))
	if Logs(&unknown, &pending) >= 0 || Running(&unknown, &pending) >= 0 {
		t.Error("a pod that waits comes before one of which nothing is known")
	}
	first, second := podOf("f", deleted(1)), podOf("s", deleted(2))
	if Running(&second, &first) >= 0 {
		t.Error("the pod that ends first comes first")
	}
}

func TestOf(t *testing.T) {
	labelled := func(namespace, name string, labels map[string]string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
	}
	pods := []corev1.Pod{
		labelled("default", "web-0", map[string]string{"app": "web", "x": "y"}), labelled("default", "web-1", map[string]string{"app": "web"}),
		labelled("lab", "web-0", map[string]string{"app": "web"}), labelled("default", "once", map[string]string{batchv1.JobNameLabel: "web"}),
	}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "web"}
	s := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	for _, tt := range []struct {
		o    metav1.Object
		want []string
	}{
		{&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: s}}, []string{"web-0", "web-1"}},
		{&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: s}}, []string{"web-0", "web-1"}},
		{&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: s}}, []string{"web-0", "web-1"}},
		{&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: s}}, []string{"web-0", "web-1"}},
		{&batchv1.Job{ObjectMeta: meta}, []string{"once"}},
		{&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Selector: s}}, []string{"web-0", "web-1"}},
		{&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}}, nil},
	} {
		got, err := Of(tt.o, pods)
		var names []string
		for _, p := range got {
			names = append(names, p.Name)
		}
		if err != nil || !slices.Equal(names, tt.want) {
			t.Errorf("%T: %q, %v", tt.o, names, err)
		}
	}
	for _, o := range []metav1.Object{&batchv1.CronJob{}, &corev1.ConfigMap{}} {
		if _, err := Of(o, pods); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%T: %v", o, err)
		}
	}
}
