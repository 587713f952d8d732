package machine

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
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/manifest/leftout"
	"fairlead.run/internal/node/status"
	"fairlead.run/internal/node/workload"
)

// object is one of any kind.
type object interface {
	runtime.Object
	metav1.Object
}

// versions are the kinds that can be listed.
var versions = map[string]schema.GroupVersion{
	"Pod": corev1.SchemeGroupVersion, "Node": corev1.SchemeGroupVersion, "ConfigMap": corev1.SchemeGroupVersion, "Secret": corev1.SchemeGroupVersion,
	"PersistentVolumeClaim": corev1.SchemeGroupVersion, "Service": corev1.SchemeGroupVersion, "ServiceAccount": corev1.SchemeGroupVersion,
	"Namespace": corev1.SchemeGroupVersion, "Deployment": appsv1.SchemeGroupVersion, "ReplicaSet": appsv1.SchemeGroupVersion,
	"DaemonSet": appsv1.SchemeGroupVersion, "StatefulSet": appsv1.SchemeGroupVersion, "Job": batchv1.SchemeGroupVersion,
	"CronJob": batchv1.SchemeGroupVersion, "RuntimeClass": {Group: "node.k8s.io", Version: "v1"}, "PriorityClass": schedulingv1.SchemeGroupVersion,
}

// List is the answer to who lists objects.
type List struct {
	metav1.TypeMeta `json:",inline"`
	Items           []runtime.Object `json:"items"`
}

// list is what there is of a kind, with what is known of it, by namespace and name. It
// has no values of Secrets: whoever asks needs to know which keys there are, and no more.
func (m *Machine) list(kind string) (List, error) {
	version, ok := versions[kind]
	if _, beside := leftout.Named(kind); !ok && !beside {
		return List{}, fmt.Errorf("there are no objects of kind %q here; there are %s: %w", kind, strings.Join(slices.Sorted(maps.Keys(versions)), ", "), errdefs.ErrNotFound)
	}
	found := m.find(kind)
	slices.SortStableFunc(found, func(a, b object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	out := List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: make([]runtime.Object, len(found))}
	for i, o := range found {
		if ok { // others say themselves what they are
			o.GetObjectKind().SetGroupVersionKind(version.WithKind(kind))
		}
		out.Items[i] = o
	}
	return out, nil
}

// find gives copies.
func (m *Machine) find(kind string) (out []object) {
	objects := m.read()
	switch kind {
	case "Pod":
		for _, p := range m.agent.Pods() {
			shown := *p
			out = append(out, &shown)
		}
	case "Node":
		out = append(out, m.described())
	case "ConfigMap":
		for _, c := range objects.ConfigMaps {
			out = append(out, c.DeepCopy())
		}
	case "Secret":
		for _, s := range objects.Secrets {
			out = append(out, withheld(s))
		}
	case "PersistentVolumeClaim":
		for _, c := range objects.Claims {
			out = append(out, bound(c))
		}
	case "RuntimeClass":
		for _, c := range objects.Classes {
			out = append(out, c.DeepCopy())
		}
	case "PriorityClass":
		for _, c := range objects.Priorities {
			out = append(out, c.DeepCopy())
		}
	case "Job", "CronJob", "StatefulSet":
		for _, w := range objects.Workloads {
			if w.Kind == kind {
				out = append(out, m.workload(w))
			}
		}
	default:
		out = m.shown(objects, kind)
	}
	return out
}

// withheld is a Secret without its values, which are also where kubectl apply notes what it
// has applied.
func withheld(s *corev1.Secret) *corev1.Secret {
	out := s.DeepCopy()
	for k := range out.Data {
		out.Data[k] = nil
	}
	for k := range out.StringData {
		out.StringData[k] = ""
	}
	delete(out.Annotations, corev1.LastAppliedConfigAnnotation)
	return out
}

// described is this machine as a node, with how it is.
func (m *Machine) described() *corev1.Node {
	n := m.node()
	room := m.keeper.Node()
	n.Status.Capacity, n.Status.Allocatable = room.Capacity, room.Allocatable
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: n.Name}}
	for _, ip := range m.cfg.Node.IPs() {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	n.Status.NodeInfo.ContainerRuntimeVersion = m.cfg.Endpoint.Name + "://" + m.cfg.Endpoint.Version
	n.Status.NodeInfo.OperatingSystem, n.Status.NodeInfo.Architecture = n.Labels[corev1.LabelOSStable], n.Labels[corev1.LabelArchStable]
	is := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: is[slices.Contains(m.keeper.Pressure(), kind)]})
	}
	why := strings.Join(m.keeper.NotReady(), "; ")
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: is[why == ""], Message: why})
	return n
}

// shown are objects as they are written, with the numbers of their pods.
func (m *Machine) shown(objects *manifest.Objects, kind string) (out []object) {
	for _, s := range objects.Shown {
		o, ok := s.Object.(object)
		if !ok || s.Kind != kind {
			continue
		}
		o = o.DeepCopyObject().(object)
		have, ready := m.count(objects, kind, manifest.Key{Namespace: o.GetNamespace(), Name: o.GetName()})
		switch o := o.(type) {
		case *appsv1.Deployment:
			o.Status.Replicas, o.Status.UpdatedReplicas, o.Status.ReadyReplicas, o.Status.AvailableReplicas = have, have, ready, ready
		case *appsv1.ReplicaSet:
			o.Status.Replicas, o.Status.ReadyReplicas, o.Status.AvailableReplicas = have, ready, ready
		case *appsv1.DaemonSet:
			o.Status.DesiredNumberScheduled, o.Status.CurrentNumberScheduled, o.Status.UpdatedNumberScheduled = 1, have, have
			o.Status.NumberReady, o.Status.NumberAvailable = ready, ready
		}
		out = append(out, o)
	}
	return out
}

// count counts the pods that there are of an owner.
func (m *Machine) count(objects *manifest.Objects, kind string, of manifest.Key) (have, ready int32) {
	owned := map[manifest.Key]bool{}
	for _, p := range objects.Pods {
		if p.OwnerKind == kind && p.Owner == of.Name && p.Namespace == of.Namespace {
			owned[p.Key()] = true
		}
	}
	for _, p := range m.agent.Pods() {
		if !owned[manifest.Key{Namespace: p.Namespace, Name: p.Name}] {
			continue
		}
		if p.DeletionTimestamp != nil {
			continue
		}
		have++
		if status.Ready(&p.Status) {
			ready++
		}
	}
	return have, ready
}

// workload is one with how far it is.
func (m *Machine) workload(w *manifest.Workload) object {
	m.mu.Lock()
	s := m.last.statuses[w.Kind+" "+w.Key().String()]
	m.mu.Unlock()
	switch {
	case w.Job != nil:
		j := w.Job.DeepCopy()
		j.Status = jobStatus(s)
		return j
	case w.CronJob != nil:
		c := w.CronJob.DeepCopy()
		c.Status.LastScheduleTime = at(s.Last)
		c.Status.Active = make([]corev1.ObjectReference, s.Active)
		for i := range c.Status.Active {
			c.Status.Active[i] = corev1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: c.Namespace}
		}
		return c
	}
	set := w.StatefulSet.DeepCopy()
	set.Status.Replicas, set.Status.CurrentReplicas, set.Status.ReadyReplicas = int32(s.Active), int32(s.Active), int32(s.Ready)
	return set
}

func jobStatus(s workload.Status) batchv1.JobStatus {
	out := batchv1.JobStatus{
		Active: int32(s.Active), Ready: new(int32(s.Ready)), Succeeded: int32(s.Succeeded), Failed: int32(s.Failed), StartTime: at(s.Started),
	}
	kind := map[workload.State]batchv1.JobConditionType{workload.Complete: batchv1.JobComplete, workload.Failed: batchv1.JobFailed, workload.Suspended: batchv1.JobSuspended}[s.State]
	if kind != "" {
		out.Conditions = []batchv1.JobCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: s.Reason, Message: s.Message}}
	}
	if s.State == workload.Complete {
		out.CompletionTime = at(s.Ended)
	}
	return out
}

// at is a time as statuses have it: none for the zero one.
func at(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}
