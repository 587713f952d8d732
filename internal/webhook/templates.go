package webhook

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/webhook/review"
	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
)

// workload is any object that makes pods by a template, with nothing else of it.
type workload struct {
	Metadata struct {
		OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		Template    *corev1.PodTemplateSpec `json:"template"`
		JobTemplate struct {
			Spec struct {
				Template *corev1.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		} `json:"jobTemplate"`
	} `json:"spec"`
}

func (w *workload) template() *corev1.PodTemplateSpec {
	if w.Spec.Template != nil {
		return w.Spec.Template
	}
	return w.Spec.JobTemplate.Spec.Template
}

// templates warns whoever applies a workload of what will become of its pods. It
// refuses nothing: classes and policies may be others when pods are made.
func (p *podRules) templates(ctx context.Context, r *review.Request) (review.Answer, error) {
	apps, batch := []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"}, []string{"Job", "CronJob"}
	if err := ofKind(r, "apps", "v1", apps...); err != nil {
		if ofKind(r, "batch", "v1", batch...) != nil {
			return admitted, err
		}
	}
	if r.Operation != review.Create && r.Operation != review.Update || r.SubResource != "" || p.exempt[r.Namespace] {
		return admitted, nil
	}
	var w workload
	if err := review.Into(r.Object, "object", &w); err != nil {
		return admitted, err
	}
	controlled := slices.ContainsFunc(w.Metadata.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller })
	template := w.template()
	if controlled || template == nil {
		return admitted, nil // a controller reads no warnings
	}
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	pod.Namespace = r.Namespace
	ns, err := p.known.namespace(ctx, r.Namespace)
	if err != nil {
		return admitted, err
	}
	return review.Answer{Warnings: p.foretell(ctx, pod, ns)}, nil
}

// foretell is the warnings for a pod that would be created now.
func (p *podRules) foretell(ctx context.Context, pod *corev1.Pod, ns *corev1.Namespace) []string {
	rules := p.known.admission(ns, p.legacy)
	var warnings []string
	var d runtimeclass.Decision
	refused, err := p.known.decide(ctx, rules, func(a policy.Admission) (err error) {
		d, err = a.Create(pod, ns)
		return err
	})
	warnings = append(warnings, d.Warnings...)
	if refused == nil && err == nil {
		var v policy.Verdict
		refused, err = p.known.decide(ctx, rules, func(a policy.Admission) (err error) {
			v, err = a.Check(d.Pod, ns)
			return err
		})
		warnings = append(warnings, v.Warnings...)
	}
	if refused != nil {
		warnings = append([]string{"its pods will be refused: " + refused.Error()}, warnings...)
	}
	if err != nil {
		warnings = append(warnings, "what becomes of its pods cannot be told now: "+err.Error())
	}
	return warnings
}
