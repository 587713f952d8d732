package template

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func of() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "i", Env: []corev1.EnvVar{{Name: "JOB_COMPLETION_INDEX", Value: "own"}}}},
			Containers:     []corev1.Container{{Name: "c"}},
		},
	}
}

func TestStatefulSet(t *testing.T) {
	two := int32(2)
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "n"},
		Spec:       appsv1.StatefulSetSpec{ServiceName: "front", Replicas: &two, Ordinals: &appsv1.StatefulSetOrdinals{Start: 3}, Template: of()},
	}
	pods := StatefulSet(set)
	if len(pods) != 2 {
		t.Fatalf("%d pods", len(pods))
	}
	p := pods[1]
	if p.Name != "db-4" || p.Namespace != "n" || p.Spec.Hostname != "db-4" || p.Spec.Subdomain != "front" || p.Labels["app"] != "a" ||
		p.Labels["statefulset.kubernetes.io/pod-name"] != "db-4" || p.Labels["apps.kubernetes.io/pod-index"] != "4" {
		t.Errorf("%+v", p)
	}
	if len(set.Spec.Template.Labels) != 1 {
		t.Error("the template was changed")
	}
	// Each pod has claims of its own, which win over volumes of the template.
	set.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "tmp"}, {Name: "data"}}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: map[string]string{"a": "b"}}}}
	for i, p := range StatefulSet(set) {
		want := []string{"data-db-3", "data-db-4"}[i]
		if v := p.Spec.Volumes; len(v) != 2 || v[0].Name != "tmp" || v[1].Name != "data" || v[1].PersistentVolumeClaim == nil || v[1].PersistentVolumeClaim.ClaimName != want {
			t.Errorf("%+v", v)
		}
		if c := Claims(set)[i]; c.Name != want || c.Namespace != "n" || c.Labels["a"] != "b" {
			t.Errorf("%+v", c)
		}
	}
	if len(set.Spec.Template.Spec.Volumes) != 2 || set.Spec.VolumeClaimTemplates[0].Name != "data" {
		t.Error("the templates were changed")
	}
}

func TestJobPod(t *testing.T) {
	mode := batchv1.IndexedCompletion
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Namespace: "n"}, Spec: batchv1.JobSpec{Template: of()}}
	if p := JobPod(job, "j-x", 1); p.Name != "j-x" || p.Labels["job-name"] != "j" || len(p.Annotations) > 0 || len(p.Spec.Containers[0].Env) > 0 || p.Spec.Hostname != "" {
		t.Errorf("%+v", p)
	}
	job.Spec.CompletionMode = &mode
	p := JobPod(job, "j-1-x", 1)
	env := p.Spec.Containers[0].Env
	if p.Annotations["batch.kubernetes.io/job-completion-index"] != "1" || p.Labels["batch.kubernetes.io/job-completion-index"] != "1" ||
		p.Spec.Hostname != "j-1" || len(env) != 1 || env[0].Name != "JOB_COMPLETION_INDEX" || env[0].Value != "1" {
		t.Errorf("%+v", p)
	}
	if own := p.Spec.InitContainers[0].Env; len(own) != 1 || own[0].Value != "own" {
		t.Errorf("what the manifest says is not what counts: %+v", own)
	}
	if len(job.Spec.Template.Annotations) > 0 || len(job.Spec.Template.Spec.Containers[0].Env) > 0 {
		t.Error("the template was changed")
	}
}
