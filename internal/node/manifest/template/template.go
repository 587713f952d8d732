// Package template makes pods of the templates of Deployments, Jobs and their like.
// What it makes of the same object is the same each time.
package template

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Replicas makes n pods named NAME-0, NAME-1, ...: numbered and not random, so that
// they are the same at every run.
func Replicas(of *metav1.ObjectMeta, t *corev1.PodTemplateSpec, n int) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range n {
		pods = append(pods, pod(of, t, fmt.Sprintf("%s-%d", of.Name, i)))
	}
	return pods
}

func pod(of *metav1.ObjectMeta, t *corev1.PodTemplateSpec, name string) *corev1.Pod {
	c := t.DeepCopy()
	p := &corev1.Pod{ObjectMeta: c.ObjectMeta, Spec: c.Spec}
	p.Name, p.Namespace = name, of.Namespace
	return p
}

// AddClaims gives the pod of that name volumes of its own claims, by the volumeClaimTemplates
// of its StatefulSet. They win over volumes of the same names.
func AddClaims(spec *corev1.PodSpec, set *appsv1.StatefulSet, pod string) {
	for i := range set.Spec.VolumeClaimTemplates {
		name := set.Spec.VolumeClaimTemplates[i].Name
		spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
		source := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name + "-" + pod}
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: source}})
	}
}

// Claims are those of the pods of a StatefulSet, named TEMPLATE-POD.
func Claims(set *appsv1.StatefulSet) []*corev1.PersistentVolumeClaim {
	var out []*corev1.PersistentVolumeClaim
	for _, p := range StatefulSet(set) {
		for i := range set.Spec.VolumeClaimTemplates {
			c := set.Spec.VolumeClaimTemplates[i].DeepCopy()
			c.Name, c.Namespace = c.Name+"-"+p.Name, set.Namespace
			out = append(out, c)
		}
	}
	return out
}

// StatefulSet makes the pods of a StatefulSet, in order. Each has its own name as
// its host name, and the StatefulSet's service as its subdomain, whatever the template says.
func StatefulSet(set *appsv1.StatefulSet) []*corev1.Pod {
	first := 0
	if set.Spec.Ordinals != nil {
		first = int(set.Spec.Ordinals.Start)
	}
	var pods []*corev1.Pod
	for i := range Number(set.Spec.Replicas, 1) {
		p := pod(&set.ObjectMeta, &set.Spec.Template, fmt.Sprintf("%s-%d", set.Name, first+i))
		p.Spec.Hostname, p.Spec.Subdomain = p.Name, set.Spec.ServiceName
		AddClaims(&p.Spec, set, p.Name)
		label(p, appsv1.StatefulSetPodNameLabel, p.Name)
		label(p, appsv1.PodIndexLabel, strconv.Itoa(first+i))
		pods = append(pods, p)
	}
	return pods
}

// Number is a number that has a default.
func Number(n *int32, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return int(*n)
}

// Indexed says whether the pods of a Job have an index.
func Indexed(job *batchv1.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion
}

// indexName is the variable with the index of a pod of a Job.
const indexName = "JOB_COMPLETION_INDEX"

// JobPod makes a pod of a Job. The index counts for an indexed one only.
func JobPod(job *batchv1.Job, name string, index int) *corev1.Pod {
	p := pod(&job.ObjectMeta, &job.Spec.Template, name)
	label(p, batchv1.JobNameLabel, job.Name)
	label(p, "job-name", job.Name)
	if !Indexed(job) {
		return p
	}
	text := strconv.Itoa(index)
	label(p, batchv1.JobCompletionIndexAnnotation, text)
	p.Annotations = with(p.Annotations, batchv1.JobCompletionIndexAnnotation, text)
	if p.Spec.Hostname == "" {
		p.Spec.Hostname = fmt.Sprintf("%s-%d", job.Name, index)
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if !slices.ContainsFunc(list[i].Env, func(e corev1.EnvVar) bool { return e.Name == indexName }) {
				list[i].Env = append(list[i].Env, corev1.EnvVar{Name: indexName, Value: text})
			}
		}
	}
	return p
}

func label(p *corev1.Pod, name, value string) { p.Labels = with(p.Labels, name, value) }

// with is a copy of m that has one more entry.
func with(m map[string]string, name, value string) map[string]string {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]string{}
	}
	m[name] = value
	return m
}
