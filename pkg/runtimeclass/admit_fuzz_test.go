package runtimeclass_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"fairlead.run/pkg/runtimeclass"
)

// taintsFor is a taint for all that the tolerations could be about.
func taintsFor(list []corev1.Toleration) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range append(list, corev1.Toleration{Key: "unheard-of", Value: "of"}) {
		for _, value := range []string{t.Value, "", "1"} {
			for _, effect := range []corev1.TaintEffect{t.Effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
				out = append(out, corev1.Taint{Key: t.Key, Value: value, Effect: effect})
			}
		}
	}
	return out
}

// Whatever pod and class are: the result is the same the second time, the pod
// tolerates what the two tolerated and nothing else, and loses no label.
func FuzzCreate(f *testing.F) {
	for _, s := range [][2]string{
		{`{}`, `{}`},
		{`{"nodeSelector":{"a":"b"},"overhead":{"cpu":"1"}}`, `{"overhead":{"podFixed":{"cpu":"1000m"}},"scheduling":{"nodeSelector":{"a":"b","c":"d"}}}`},
		{`{"tolerations":[{"key":"a","operator":"Equal","value":"b"},{"key":"a","value":"b"},{"operator":"Exists","effect":"NoExecute","tolerationSeconds":3}]}`, `{"scheduling":{"tolerations":[{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":5},{"operator":"Exists"}]}}`},
		{`{"tolerations":[{"key":"a","operator":"Gt","value":"5"},{}]}`, `{"scheduling":{"tolerations":[{"value":"b"},{"key":"a","operator":"In"}]}}`},
	} {
		f.Add([]byte(s[0]), []byte(s[1]))
	}
	f.Fuzz(func(t *testing.T, spec, class []byte) {
		p, c := pod(), &nodev1.RuntimeClass{}
		if !decode(spec, &p.Spec) || !decode(class, c) {
			return
		}
		c.Name = "c"
		onClass("c")(p)
		a := runtimeclass.Admission{Classes: runtimeclass.NewMap(c)}
		before := p.DeepCopy()
		first, err := a.Create(p)
		a.Shallow = true
		shallow, sameErr := a.Create(p)
		if diff(before, p) != "" {
			t.Fatalf("the pod was changed:\n%s", diff(before, p))
		}
		if diff(first.Pod, shallow.Pod) != "" || fmt.Sprint(err) != fmt.Sprint(sameErr) {
			t.Fatalf("deep (%v) and shallow (%v):\n%s", err, sameErr, diff(first.Pod, shallow.Pod))
		}
		if err != nil {
			var r *runtimeclass.Rejection
			if !errors.As(err, &r) || r.Detail == "" || r.Field == "" || r.Reason == "" {
				t.Fatalf("rejected without a reason: %v", err)
			}
			return
		}
		again, err := a.Create(first.Pod)
		if err != nil || diff(first.Pod, again.Pod) != "" {
			t.Fatalf("first and again (%v):\n%s", err, diff(first.Pod, again.Pod))
		}
		for key, value := range p.Spec.NodeSelector {
			if first.Pod.Spec.NodeSelector[key] != value {
				t.Errorf("lost label %q=%q", key, value)
			}
		}
		all := p.Spec.Tolerations
		if c.Scheduling != nil {
			all = slices.Concat(all, c.Scheduling.Tolerations)
		}
		for _, taint := range taintsFor(all) {
			had := scheduling.TolerationsTolerateTaint(klog.Logger{}, all, &taint, true)
			has := scheduling.TolerationsTolerateTaint(klog.Logger{}, first.Pod.Spec.Tolerations, &taint, true)
			if had != has {
				t.Errorf("taint %v: tolerated before %t, and now %t", taint, had, has)
			}
		}
	})
}
