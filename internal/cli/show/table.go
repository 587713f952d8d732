package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Options say how a table is.
type Options struct {
	Wide bool // with the columns that need more room
	Now  time.Time
}

// column is one of a table of objects.
type column[T any] struct {
	head string
	wide bool // is left out of tables that are not
	cell func(o T, now time.Time) string
}

// Table is objects of a kind as rows, of which the first has the names of the columns. An
// empty cell is that nothing is known.
func (k Kind) Table(list []metav1.Object, o Options) [][]string { return k.rows(list, o) }

func rows[T metav1.Object](list []metav1.Object, columns []column[T], o Options) [][]string {
	head := []string{"NAME"}
	columns = slices.DeleteFunc(slices.Clone(columns), func(c column[T]) bool { return c.wide && !o.Wide })
	for _, c := range columns {
		head = append(head, c.head)
	}
	out := [][]string{head}
	for _, item := range list {
		row := []string{Name(item.GetNamespace(), item.GetName())}
		for _, c := range columns {
			row = append(row, c.cell(item.(T), o.Now))
		}
		out = append(out, row)
	}
	return out
}

// Name is what people call an object: the default namespace is left out.
func Name(namespace, name string) string {
	if namespace == "" || namespace == metav1.NamespaceDefault {
		return name
	}
	return namespace + "/" + name
}

// Age is a span of time as people read it.
func Age(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(max(d, 0).Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func since(t *metav1.Time, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return Age(now.Sub(t.Time))
}

func ratio[N ~int | ~int32](have, want N) string { return fmt.Sprintf("%d/%d", have, want) }

func number(n *int32, otherwise int32) int32 {
	if n == nil {
		return otherwise
	}
	return *n
}

func count[N ~int | ~int32](n N) string { return fmt.Sprint(n) }

func images(of corev1.PodTemplateSpec) string {
	var out []string
	for _, c := range of.Spec.Containers {
		out = append(out, c.Image)
	}
	return strings.Join(out, ",")
}

func value(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

var podColumns = []column[*corev1.Pod]{
	{head: "READY", cell: func(p *corev1.Pod, _ time.Time) string { return ratio(Ready(p)) }},
	{head: "STATUS", cell: func(p *corev1.Pod, _ time.Time) string { return Status(p) }},
	{head: "RESTARTS", cell: restarts},
	{head: "AGE", cell: func(p *corev1.Pod, now time.Time) string { return since(p.Status.StartTime, now) }},
	{head: "IP", wide: true, cell: func(p *corev1.Pod, _ time.Time) string { return p.Status.PodIP }},
	{head: "NODE", wide: true, cell: func(p *corev1.Pod, _ time.Time) string { return p.Spec.NodeName }},
	{head: "RUNTIMECLASS", wide: true, cell: func(p *corev1.Pod, _ time.Time) string { return value(p.Spec.RuntimeClassName) }},
}

var nodeColumns = []column[*corev1.Node]{
	{head: "STATUS", cell: func(n *corev1.Node, _ time.Time) string { return nodeStatus(n) }},
	{head: "CPU", cell: func(n *corev1.Node, _ time.Time) string { return n.Status.Allocatable.Cpu().String() }},
	{head: "MEMORY", cell: func(n *corev1.Node, _ time.Time) string { return memory(n.Status.Allocatable.Memory().Value()) }},
	{head: "PODS", cell: func(n *corev1.Node, _ time.Time) string { return n.Status.Allocatable.Pods().String() }},
	{head: "INTERNAL-IP", wide: true, cell: func(n *corev1.Node, _ time.Time) string {
		return strings.Join(addresses(n), ",")
	}},
	{head: "CONTAINER-RUNTIME", wide: true, cell: func(n *corev1.Node, _ time.Time) string { return n.Status.NodeInfo.ContainerRuntimeVersion }},
}

func addresses(n *corev1.Node) (out []string) {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			out = append(out, a.Address)
		}
	}
	return out
}

// nodeStatus is whether it is ready, and what it is short of.
func nodeStatus(n *corev1.Node) string {
	out := []string{"NotReady"}
	for _, c := range n.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == corev1.NodeReady:
			out[0] = "Ready"
		default:
			out = append(out, string(c.Type))
		}
	}
	return strings.Join(out, ",")
}

var deploymentColumns = []column[*appsv1.Deployment]{
	{head: "READY", cell: func(d *appsv1.Deployment, _ time.Time) string {
		return ratio(d.Status.ReadyReplicas, number(d.Spec.Replicas, 1))
	}},
	{head: "UP-TO-DATE", cell: func(d *appsv1.Deployment, _ time.Time) string { return count(d.Status.UpdatedReplicas) }},
	{head: "AVAILABLE", cell: func(d *appsv1.Deployment, _ time.Time) string { return count(d.Status.AvailableReplicas) }},
	{head: "IMAGES", wide: true, cell: func(d *appsv1.Deployment, _ time.Time) string { return images(d.Spec.Template) }},
	{head: "SELECTOR", wide: true, cell: func(d *appsv1.Deployment, _ time.Time) string { return metav1.FormatLabelSelector(d.Spec.Selector) }},
}

var daemonSetColumns = []column[*appsv1.DaemonSet]{
	{head: "DESIRED", cell: func(d *appsv1.DaemonSet, _ time.Time) string { return count(d.Status.DesiredNumberScheduled) }},
	{head: "CURRENT", cell: func(d *appsv1.DaemonSet, _ time.Time) string { return count(d.Status.CurrentNumberScheduled) }},
	{head: "READY", cell: func(d *appsv1.DaemonSet, _ time.Time) string { return count(d.Status.NumberReady) }},
	{head: "UP-TO-DATE", cell: func(d *appsv1.DaemonSet, _ time.Time) string { return count(d.Status.UpdatedNumberScheduled) }},
	{head: "AVAILABLE", cell: func(d *appsv1.DaemonSet, _ time.Time) string { return count(d.Status.NumberAvailable) }},
	{head: "IMAGES", wide: true, cell: func(d *appsv1.DaemonSet, _ time.Time) string { return images(d.Spec.Template) }},
	{head: "SELECTOR", wide: true, cell: func(d *appsv1.DaemonSet, _ time.Time) string { return metav1.FormatLabelSelector(d.Spec.Selector) }},
}

var statefulSetColumns = []column[*appsv1.StatefulSet]{
	{head: "READY", cell: func(s *appsv1.StatefulSet, _ time.Time) string {
		return ratio(s.Status.ReadyReplicas, number(s.Spec.Replicas, 1))
	}},
	{head: "IMAGES", wide: true, cell: func(s *appsv1.StatefulSet, _ time.Time) string { return images(s.Spec.Template) }},
}

var replicaSetColumns = []column[*appsv1.ReplicaSet]{
	{head: "DESIRED", cell: func(s *appsv1.ReplicaSet, _ time.Time) string { return count(number(s.Spec.Replicas, 1)) }},
	{head: "CURRENT", cell: func(s *appsv1.ReplicaSet, _ time.Time) string { return count(s.Status.Replicas) }},
	{head: "READY", cell: func(s *appsv1.ReplicaSet, _ time.Time) string { return count(s.Status.ReadyReplicas) }},
	{head: "IMAGES", wide: true, cell: func(s *appsv1.ReplicaSet, _ time.Time) string { return images(s.Spec.Template) }},
}

var jobColumns = []column[*batchv1.Job]{
	{head: "STATUS", cell: func(j *batchv1.Job, _ time.Time) string { return jobStatus(j) }},
	{head: "COMPLETIONS", cell: func(j *batchv1.Job, _ time.Time) string {
		return ratio(j.Status.Succeeded, number(j.Spec.Completions, 1))
	}},
	{head: "DURATION", cell: func(j *batchv1.Job, now time.Time) string {
		if end := j.Status.CompletionTime; end != nil {
			now = end.Time
		}
		return since(j.Status.StartTime, now)
	}},
	{head: "AGE", cell: func(j *batchv1.Job, now time.Time) string { return since(j.Status.StartTime, now) }},
	{head: "IMAGES", wide: true, cell: func(j *batchv1.Job, _ time.Time) string { return images(j.Spec.Template) }},
}

func jobStatus(j *batchv1.Job) string {
	for _, c := range j.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			return string(c.Type)
		}
	}
	return "Running"
}

var cronJobColumns = []column[*batchv1.CronJob]{
	{head: "SCHEDULE", cell: func(c *batchv1.CronJob, _ time.Time) string { return c.Spec.Schedule }},
	{head: "TIMEZONE", cell: func(c *batchv1.CronJob, _ time.Time) string { return value(c.Spec.TimeZone) }},
	{head: "SUSPEND", cell: func(c *batchv1.CronJob, _ time.Time) string { return suspended(c) }},
	{head: "ACTIVE", cell: func(c *batchv1.CronJob, _ time.Time) string { return count(len(c.Status.Active)) }},
	{head: "LAST SCHEDULE", cell: func(c *batchv1.CronJob, now time.Time) string { return since(c.Status.LastScheduleTime, now) }},
	{head: "IMAGES", wide: true, cell: func(c *batchv1.CronJob, _ time.Time) string { return images(c.Spec.JobTemplate.Spec.Template) }},
}

func suspended(c *batchv1.CronJob) string {
	if c.Spec.Suspend != nil && *c.Spec.Suspend {
		return "True"
	}
	return "False"
}

var configMapColumns = []column[*corev1.ConfigMap]{
	{head: "DATA", cell: func(c *corev1.ConfigMap, _ time.Time) string { return count(len(c.Data) + len(c.BinaryData)) }},
	{head: "KEYS", wide: true, cell: func(c *corev1.ConfigMap, _ time.Time) string { return keys(c.Data, c.BinaryData) }},
}

// secretColumns have no values.
var secretColumns = []column[*corev1.Secret]{
	{head: "TYPE", cell: func(s *corev1.Secret, _ time.Time) string { return string(s.Type) }},
	{head: "DATA", cell: func(s *corev1.Secret, _ time.Time) string { return count(len(s.Data) + len(s.StringData)) }},
	{head: "KEYS", wide: true, cell: func(s *corev1.Secret, _ time.Time) string { return keys(s.StringData, s.Data) }},
}

func keys[A, B any](a map[string]A, b map[string]B) string {
	return strings.Join(slices.Concat(slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b))), ",")
}

var claimColumns = []column[*corev1.PersistentVolumeClaim]{
	{head: "STATUS", cell: func(c *corev1.PersistentVolumeClaim, _ time.Time) string { return string(c.Status.Phase) }},
	{head: "VOLUME", cell: func(c *corev1.PersistentVolumeClaim, _ time.Time) string { return c.Spec.VolumeName }},
	{head: "CAPACITY", cell: func(c *corev1.PersistentVolumeClaim, _ time.Time) string {
		return c.Spec.Resources.Requests.Storage().String()
	}},
	{head: "ACCESS MODES", cell: func(c *corev1.PersistentVolumeClaim, _ time.Time) string { return modes(c.Spec.AccessModes) }},
}

func modes(list []corev1.PersistentVolumeAccessMode) string {
	short := map[corev1.PersistentVolumeAccessMode]string{
		corev1.ReadWriteOnce: "RWO", corev1.ReadOnlyMany: "ROX", corev1.ReadWriteMany: "RWX", corev1.ReadWriteOncePod: "RWOP",
	}
	var out []string
	for _, m := range list {
		out = append(out, short[m])
	}
	return strings.Join(out, ",")
}

var classColumns = []column[*nodev1.RuntimeClass]{
	{head: "HANDLER", cell: func(c *nodev1.RuntimeClass, _ time.Time) string { return c.Handler }},
	{head: "OVERHEAD", wide: true, cell: func(c *nodev1.RuntimeClass, _ time.Time) string {
		if c.Overhead == nil {
			return ""
		}
		return resourceList(c.Overhead.PodFixed)
	}},
}

var priorityColumns = []column[*schedulingv1.PriorityClass]{
	{head: "VALUE", cell: func(c *schedulingv1.PriorityClass, _ time.Time) string { return count(c.Value) }},
	{head: "GLOBAL-DEFAULT", cell: func(c *schedulingv1.PriorityClass, _ time.Time) string { return fmt.Sprint(c.GlobalDefault) }},
	{head: "PREEMPTIONPOLICY", cell: func(c *schedulingv1.PriorityClass, _ time.Time) string {
		return string(*cmp.Or(c.PreemptionPolicy, new(corev1.PreemptLowerPriority)))
	}},
	{head: "DESCRIPTION", wide: true, cell: func(c *schedulingv1.PriorityClass, _ time.Time) string { return c.Description }},
}

var serviceColumns = []column[*corev1.Service]{
	{head: "TYPE", cell: func(s *corev1.Service, _ time.Time) string { return string(s.Spec.Type) }},
	{head: "PORT(S)", cell: func(s *corev1.Service, _ time.Time) string {
		var out []string
		for _, p := range s.Spec.Ports {
			out = append(out, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
		return strings.Join(out, ",")
	}},
	{head: "SELECTOR", wide: true, cell: func(s *corev1.Service, _ time.Time) string {
		return metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: s.Spec.Selector})
	}},
}

// resourceList is resources by name.
func resourceList(list corev1.ResourceList) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		out = append(out, string(name)+"="+q.String())
	}
	return strings.Join(out, ",")
}

// memory is a number of bytes as Kubernetes' tools write it.
func memory(n int64) string { return fmt.Sprintf("%dMi", n>>20) }
