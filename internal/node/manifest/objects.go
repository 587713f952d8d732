package manifest

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/errdefs"
)

// Key names an object within its kind.
type Key struct {
	Namespace string // empty for a RuntimeClass
	Name      string
}

// String is the key as people write it: namespace/name, or the name alone.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Pod is a pod to run.
type Pod struct {
	*corev1.Pod
	// Origin is where the pod is written: file, line, document, and the object
	// itself. It starts every error about the pod.
	Origin string
	// Source is the name of the source that Origin begins with.
	Source string
	// From is the kind of that source where several are merged, such as file.
	From string
	// Owner is the name of the object that the pod was made for, such as a
	// Deployment, and OwnerKind its kind; both are empty for a pod of its own.
	Owner     string
	OwnerKind string
}

// asWritten is what somebody has written of a static pod: the rest of its metadata, and
// its status, are those of another pod.
func asWritten(p *corev1.Pod) corev1.Pod {
	return corev1.Pod{
		TypeMeta:   p.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, Labels: p.Labels, Annotations: p.Annotations},
		Spec:       p.Spec,
	}
}

// Workload is an object whose pods come and go. One of Job, CronJob and StatefulSet
// is set. What pods it is to have is for package workload to say.
type Workload struct {
	Kind        string
	Job         *batchv1.Job
	CronJob     *batchv1.CronJob
	StatefulSet *appsv1.StatefulSet
	Taken       []string // names of its pods that are another object's, and not made

	Origin, Source, From string // as those of a Pod
}

// Key is the namespace and name of the object.
func (w *Workload) Key() Key {
	m := w.meta()
	return Key{m.Namespace, m.Name}
}

func (w *Workload) meta() *metav1.ObjectMeta {
	switch {
	case w.Job != nil:
		return &w.Job.ObjectMeta
	case w.CronJob != nil:
		return &w.CronJob.ObjectMeta
	}
	return &w.StatefulSet.ObjectMeta
}

// template is what its pods are made of.
func (w *Workload) template() *corev1.Pod {
	t := corev1.PodTemplateSpec{}
	switch {
	case w.Job != nil:
		t = w.Job.Spec.Template
	case w.CronJob != nil:
		t = w.CronJob.Spec.JobTemplate.Spec.Template
	case w.StatefulSet != nil:
		t = w.StatefulSet.Spec.Template
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: w.meta().Name, Namespace: w.meta().Namespace}, Spec: t.Spec}
}

// Key is the pod's namespace and name.
func (p *Pod) Key() Key { return Key{p.Namespace, p.Name} }

// Objects is what a set of manifests holds.
type Objects struct {
	Pods       []*Pod // in the order of the files; replicas by number
	Classes    map[string]*nodev1.RuntimeClass
	ConfigMaps map[Key]*corev1.ConfigMap
	Secrets    map[Key]*corev1.Secret
	Claims     map[Key]*corev1.PersistentVolumeClaim
	Priorities map[string]*schedulingv1.PriorityClass
	// Workloads are those whose pods come and go. None are left for a run in the
	// foreground.
	Workloads []*Workload
	// Shown are those that need nothing but to be shown: Deployments, ReplicaSets and
	// DaemonSets, whose pods are among Pods, and those of kinds that mean nothing here.
	Shown []Shown
	// Notes are things that are right but may surprise.
	Notes []string

	claims map[string]claim // by id, to find duplicates
	static bool             // of a node, whose cluster has the PriorityClasses
}

// Shown is an object that is shown as it is written.
type Shown struct {
	Kind string
	metav1.Object
	// LeftOut is what is not done for an object of a kind that nothing here acts on; empty
	// for others. Guards says that it would have refused or changed something.
	LeftOut string
	Guards  bool
}

func (s Shown) key() Key { return Key{s.GetNamespace(), s.GetName()} }

// MaxPods bounds the pods of one run. A node of Kubernetes takes 110 by
// default; this is for machines that are larger than that.
const MaxPods = 1000

func newObjects() *Objects {
	return &Objects{
		Classes:    map[string]*nodev1.RuntimeClass{},
		ConfigMaps: map[Key]*corev1.ConfigMap{},
		Secrets:    map[Key]*corev1.Secret{},
		Claims:     map[Key]*corev1.PersistentVolumeClaim{},
		Priorities: map[string]*schedulingv1.PriorityClass{},
		claims:     map[string]claim{},
	}
}

// id names an object among those of all kinds.
func id(kind string, k Key) string { return kind + " " + k.String() }

// claim is who has a name.
type claim struct {
	where string // the file, line and document
	what  string // starts what is said if another one has it
}

// claim takes a name, or says who has it.
func (o *Objects) claim(id string, c claim) error {
	if first, taken := o.claims[id]; taken {
		return invalid("%sis defined twice; the first is at %s", c.what, first.where)
	}
	o.claims[id] = c
	return nil
}

// fault is an error about a manifest. Its kind is in the chain and not in the
// text, which stands for itself.
type fault struct {
	text string
	kind error
}

func (f *fault) Error() string { return f.text }
func (f *fault) Unwrap() error { return f.kind }

func invalid(format string, args ...any) error {
	return &fault{fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument}
}
