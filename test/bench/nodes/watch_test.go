package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod's times are those of the first version that was so, and not of later ones.
func TestSee(t *testing.T) {
	w := &watch{pods: map[string]*life{}, changed: make(chan struct{}, 1)}
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	w.see(p, false, at(1))
	p.Spec.NodeName = "n"
	w.see(p, false, at(2))
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	w.see(p, false, at(3))
	p.Status.Conditions[0].Status = corev1.ConditionTrue
	w.see(p, false, at(4))
	w.see(p, false, at(5))
	if got, want := w.of("p"), (life{created: at(1), bound: at(2), ready: at(4)}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	w.see(p, true, at(6))
	last, err := w.await(t.Context(), []string{"p"}, func(l life) time.Time { return l.gone })
	if err != nil || !last.Equal(at(6)) {
		t.Errorf("%v, %v", last, err)
	}
	w.ended = true
	if _, err := w.await(t.Context(), []string{"p", "q"}, func(l life) time.Time { return l.ready }); err == nil {
		t.Error("it does not say that the watch has ended")
	}
}

func TestVersionIn(t *testing.T) {
	for line, want := range map[string]string{
		"Kubernetes v1.36.3": "v1.36.3", "containerd example.com/containerd v2.4.2 abc": "v2.4.2", "runc version 1.5.2": "1.5.2", "fairlead   068d4bb": "068d4bb", "": "",
	} {
		if got := versionIn(line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
