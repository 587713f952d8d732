package webhook

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/webhook/podpatch"
	"fairlead.run/internal/webhook/review"
	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
)

// admitted are the answers that change and say nothing.
var admitted = review.Answer{}

// podRules answers for pods.
type podRules struct {
	known  *known
	ledger *ledger
	legacy runtimeclass.Legacy
	exempt map[string]bool // namespaces
}

// mutate puts the class into a pod that is created.
func (p *podRules) mutate(ctx context.Context, r *review.Request) (review.Answer, error) {
	if err := ofKind(r, "", "v1", "Pod"); err != nil {
		return admitted, err
	}
	if r.Operation != review.Create || r.SubResource != "" || p.exempt[r.Namespace] {
		return admitted, nil
	}
	pod, err := podOf(r)
	if err != nil || mirror(r, pod) {
		return admitted, err
	}
	ns, err := p.known.namespace(ctx, r.Namespace)
	if err != nil {
		return admitted, err
	}
	var d runtimeclass.Decision
	refused, err := p.known.decide(ctx, p.known.admission(ns, p.legacy), func(a policy.Admission) (err error) {
		d, err = a.Create(pod, ns)
		return err
	})
	if refused != nil || err != nil {
		return review.Answer{Refused: refused, Warnings: d.Warnings}, err
	}
	patch, err := podpatch.Of(pod, d.Pod)
	return review.Answer{Warnings: d.Warnings, Patch: patch}, err
}

// validate holds a pod against everything, after everybody has changed it.
func (p *podRules) validate(ctx context.Context, r *review.Request) (review.Answer, error) {
	if err := ofKind(r, "", "v1", "Pod"); err != nil {
		return admitted, err
	}
	created, updated := r.Operation == review.Create && r.SubResource == "", r.Operation == review.Update
	if !created && !updated || p.exempt[r.Namespace] {
		return admitted, nil
	}
	pod, err := podOf(r)
	if err != nil || mirror(r, pod) {
		return admitted, err
	}
	if updated {
		return p.update(r, pod)
	}
	ns, err := p.known.namespace(ctx, r.Namespace)
	if err != nil {
		return admitted, err
	}
	return p.judge(ctx, r, pod, ns)
}

// judge holds a pod that is created against the rules, and has it count.
func (p *podRules) judge(ctx context.Context, r *review.Request, pod *corev1.Pod, ns *corev1.Namespace) (answer review.Answer, err error) {
	turn, judged := &decision{ledger: p.ledger, pod: pod.UID}, false
	defer func() {
		counts := judged && answer.Refused == nil && err == nil && !r.IsDryRun()
		err = errors.Join(err, turn.end(pod, counts))
	}()
	rules := p.known.admission(ns, p.legacy)
	rules.Usage = turn.usage
	var v policy.Verdict
	answer.Refused, err = p.known.decide(ctx, rules, func(a policy.Admission) (err error) {
		v, err = a.Check(pod, ns)
		return err
	})
	answer.Warnings, answer.Audit, judged = v.Warnings, v.Audit, true
	return answer, err
}

// ephemeralContainers is the subresource by which containers are added to a pod.
const ephemeralContainers = "ephemeralcontainers"

// update is for pods that are there already, and for their subresources.
func (p *podRules) update(r *review.Request, pod *corev1.Pod) (review.Answer, error) {
	old := &corev1.Pod{}
	if err := review.Into(r.OldObject, "oldObject", old); err != nil {
		return admitted, err
	}
	if refused := (policy.Admission{}).Update(pod, old); refused != nil || r.SubResource != ephemeralContainers {
		return review.Answer{Refused: refused}, nil
	}
	rules := policy.Admission{Classes: p.known.cache.Classes, Fleet: p.known.measured()}
	v, refused := rules.Debug(pod, old)
	return review.Answer{Refused: refused, Warnings: v.Warnings}, nil
}

// podOf is the pod of a request, in the namespace of the request.
func podOf(r *review.Request) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := review.Into(r.Object, "object", pod); err != nil {
		return nil, err
	}
	if pod.Namespace == "" {
		pod.Namespace = r.Namespace
	}
	return pod, nil
}

// mirror says that a pod only shows what a kubelet runs by a file of its own. The
// annotation alone proves nothing: anybody can write it.
func mirror(r *review.Request, pod *corev1.Pod) bool {
	_, marked := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return marked && r.ByNode() && pod.Spec.NodeName != ""
}

// ofKind refuses what a configuration sends to the wrong path.
func ofKind(r *review.Request, group, version string, kinds ...string) error {
	for _, kind := range kinds {
		if r.Kind.Group == group && r.Kind.Version == version && r.Kind.Kind == kind {
			return nil
		}
	}
	return fmt.Errorf("read AdmissionReview: request.kind is %q %q of version %q, and this path is for %v of %s; correct the rules of the webhook configuration: %w", r.Kind.Group, r.Kind.Kind, r.Kind.Version, kinds, version, errdefs.ErrInvalidArgument)
}

// mostLookups is how many classes are asked for because of one pod.
const mostLookups = 2

// decide asks the rules, and asks again with a class that the cache has not heard
// of yet. A pod that is refused is no error.
func (k *known) decide(ctx context.Context, rules policy.Admission, ask func(policy.Admission) error) (refused, err error) {
	found := runtimeclass.Map{}
	for {
		why := ask(rules)
		var rejection *runtimeclass.Rejection
		switch {
		case why == nil:
			return nil, nil
		case !errors.As(why, &rejection):
			return nil, why
		case rejection.Reason != runtimeclass.ReasonMissing || len(found) >= mostLookups:
			return rejection, nil
		}
		var class *nodev1.RuntimeClass
		if class, err = k.class(ctx, rejection.Class); err != nil {
			return nil, err
		}
		if class == nil {
			return rejection, nil
		}
		found[class.Name] = class
		rules.Classes = withFound{k.cache.Classes, found}
	}
}
