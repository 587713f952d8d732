package check

import (
	"fmt"
	"math"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.run/internal/node/manifest/cron"
	"fairlead.run/internal/node/priority"
)

// maxIndexes is the most completions that an indexed Job of Kubernetes has.
const maxIndexes = 100_000

// Replicated is what Deployments and their like have in common.
type Replicated struct {
	Kind     string
	Replicas *int32
	Most     int // replicas
	Selector *metav1.LabelSelector
	Template *corev1.PodTemplateSpec
}

// Check checks the object but for its metadata.
func (r Replicated) Check() []string {
	var f faults
	if n := r.Replicas; n != nil && (*n < 0 || int(*n) > r.Most) {
		f.add("spec.replicas", "%d is not between 0 and %d", *n, r.Most)
	}
	if p := r.Template.Spec.RestartPolicy; p != "" && p != corev1.RestartPolicyAlways {
		f.add("spec.template.spec.restartPolicy", "%q does not fit a %s, only Always does", p, r.Kind)
	}
	f = append(f, r.selector()...)
	return append(f, template("spec.template.", r.Template)...)
}

func (r Replicated) selector() []string {
	if r.Selector == nil {
		return []string{"spec.selector: is required"}
	}
	selector, err := metav1.LabelSelectorAsSelector(r.Selector)
	if err != nil {
		return []string{fmt.Sprintf("spec.selector: %v", err)}
	}
	if selector.Empty() {
		return []string{"spec.selector: selects everything; it must name a label of the template"}
	}
	if !selector.Matches(labels.Set(r.Template.Labels)) {
		return []string{fmt.Sprintf("spec.selector: %s does not select the template's labels (%s)", selector, labels.Set(r.Template.Labels))}
	}
	return nil
}

func template(prefix string, t *corev1.PodTemplateSpec) []string {
	return Pod(prefix, &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec})
}

// StatefulSet checks what others have not.
func StatefulSet(set *appsv1.StatefulSet) []string {
	var f faults
	oneOf(&f, "spec.podManagementPolicy", set.Spec.PodManagementPolicy, appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)
	if name := set.Spec.ServiceName; name != "" {
		f.all("spec.serviceName", name, validation.IsDNS1123Label(name))
	}
	if o := set.Spec.Ordinals; o != nil && o.Start < 0 {
		f.add("spec.ordinals.start", "%d is negative", o.Start)
	}
	names := map[string]bool{}
	for i := range set.Spec.VolumeClaimTemplates {
		c, at := &set.Spec.VolumeClaimTemplates[i], fmt.Sprintf("spec.volumeClaimTemplates[%d].", i)
		f.all(at+"metadata.name", c.Name, validation.IsDNS1123Label(c.Name))
		if names[c.Name] {
			f.add(at+"metadata.name", "%q is the name of an earlier one", c.Name)
		}
		names[c.Name] = true
		for _, why := range Claim(c) {
			f = append(f, at+why)
		}
	}
	// Its pods have their names as host names.
	f.all("metadata.name", set.Name, validation.IsDNS1123Label(set.Name+"-0"))
	return f
}

// Job checks the spec of a Job, whose paths start with prefix and "spec".
func Job(prefix string, spec *batchv1.JobSpec, most int) []string {
	var f faults
	path := prefix + "spec"
	number := func(name string, n *int32, most int) {
		if n != nil && (*n < 0 || int(*n) > most) {
			f.add(path+"."+name, "%d is not between 0 and %d", *n, most)
		}
	}
	number("parallelism", spec.Parallelism, most)
	number("completions", spec.Completions, maxIndexes)
	number("backoffLimit", spec.BackoffLimit, math.MaxInt32)
	number("ttlSecondsAfterFinished", spec.TTLSecondsAfterFinished, math.MaxInt32)
	if d := spec.ActiveDeadlineSeconds; d != nil && (*d < 0 || *d > math.MaxInt32) {
		f.add(path+".activeDeadlineSeconds", "%d is not between 0 and %d", *d, math.MaxInt32)
	}
	if m := spec.CompletionMode; m != nil {
		oneOf(&f, path+".completionMode", *m, batchv1.NonIndexedCompletion, batchv1.IndexedCompletion)
		if *m == batchv1.IndexedCompletion && spec.Completions == nil {
			f.add(path+".completions", "is required by completionMode Indexed")
		}
	}
	checkFailurePolicy(&f, path, spec)
	switch p := spec.Template.Spec.RestartPolicy; p {
	case corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure:
	case "":
		f.add(path+".template.spec.restartPolicy", "is required: Never or OnFailure")
	default:
		f.add(path+".template.spec.restartPolicy", "%q does not fit a Job, only Never and OnFailure do", p)
	}
	return append(f, template(path+".template.", &spec.Template)...)
}

// maxCronName is what is left of a name for that of a Job with a time in it.
const maxCronName = 52

// CronJob checks a CronJob but for its metadata.
func CronJob(c *batchv1.CronJob, most int) []string {
	var f faults
	if len(c.Name) > maxCronName {
		f.add("metadata.name", "has %d characters, and at most %d are allowed", len(c.Name), maxCronName)
	}
	if _, err := cron.Parse(c.Spec.Schedule); err != nil {
		f.add("spec.schedule", "%q: %v", c.Spec.Schedule, err)
	}
	if zone := c.Spec.TimeZone; zone != nil {
		checkZone(&f, "spec.timeZone", *zone)
	}
	oneOf(&f, "spec.concurrencyPolicy", c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)
	if d := c.Spec.StartingDeadlineSeconds; d != nil && (*d < 0 || *d > math.MaxInt32) {
		f.add("spec.startingDeadlineSeconds", "%d is not between 0 and %d", *d, math.MaxInt32)
	}
	for name, n := range map[string]*int32{"successfulJobsHistoryLimit": c.Spec.SuccessfulJobsHistoryLimit, "failedJobsHistoryLimit": c.Spec.FailedJobsHistoryLimit} {
		if n != nil && (*n < 0 || int(*n) > most) {
			f.add("spec."+name, "%d is not between 0 and %d", *n, most)
		}
	}
	return append(f, Job("spec.jobTemplate.", &c.Spec.JobTemplate.Spec, most)...)
}

func checkZone(f *faults, path, zone string) {
	if zone == "" || zone == "Local" {
		f.add(path, "%q is not the name of a time zone such as Etc/UTC", zone)
		return
	}
	if _, err := time.LoadLocation(zone); err != nil {
		f.add(path, "%q is not a time zone that this machine knows (%v); see /usr/share/zoneinfo", zone, err)
	}
}

// PriorityClass checks a PriorityClass but for its metadata. Names of the system's own are
// for its two classes alone, and so are their values.
func PriorityClass(c *schedulingv1.PriorityClass) []string {
	var f faults
	value, system := priority.System()[c.Name]
	switch {
	case system && (c.Value != value || c.GlobalDefault):
		f.add("value", "the class %s that every cluster has has the value %d, and is no default", c.Name, value)
	case system:
	case strings.HasPrefix(c.Name, "system-"):
		f.add("metadata.name", "%q: names that begin with system- are those of classes that every cluster has", c.Name)
	case c.Value > priority.HighestOwn:
		f.add("value", "%d is more than %d, and priorities beyond that are those of the system", c.Value, priority.HighestOwn)
	}
	if p := c.PreemptionPolicy; p != nil {
		oneOf(&f, "preemptionPolicy", *p, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
	return f
}

// Claim checks a PersistentVolumeClaim but for its metadata.
func Claim(c *corev1.PersistentVolumeClaim) []string {
	var f faults
	if len(c.Spec.AccessModes) == 0 {
		f.add("spec.accessModes", "at least one is required")
	}
	for i, m := range c.Spec.AccessModes {
		oneOf(&f, fmt.Sprintf("spec.accessModes[%d]", i), m, corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod)
	}
	return append(f, Quantities("spec.resources.requests", c.Spec.Resources.Requests)...)
}
