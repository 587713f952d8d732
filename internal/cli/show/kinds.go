// Package show turns the objects that a machine keeps into what people read: tables with
// the columns of kubectl, and descriptions.
//
// It asks nobody for anything: what it shows is given to it, the time included. What is
// known of no object here, such as the age of a Deployment in a file, has no column.
package show

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.run/internal/node/manifest/leftout"
)

// Kind is a kind of object. Find finds it.
type Kind struct {
	Name string // as manifests have it
	// Unspaced says that its objects are in no namespace.
	Unspaced bool
	// New makes an empty object.
	New func() metav1.Object

	names []string // that people use for it, the plural first
	rare  bool     // is not told to who is looking for kinds
	rows  func(list []metav1.Object, o Options) [][]string
}

// kinds are all that there are, in the order in which they are told.
var kinds = append([]Kind{
	of[corev1.Pod]("Pod", podColumns, "pods", "po"),
	of[corev1.Node]("Node", nodeColumns, "nodes", "no"),
	of[appsv1.Deployment]("Deployment", deploymentColumns, "deployments", "deploy"),
	of[appsv1.DaemonSet]("DaemonSet", daemonSetColumns, "daemonsets", "ds"),
	of[appsv1.StatefulSet]("StatefulSet", statefulSetColumns, "statefulsets", "sts"),
	of[appsv1.ReplicaSet]("ReplicaSet", replicaSetColumns, "replicasets", "rs"),
	of[batchv1.Job]("Job", jobColumns, "jobs"),
	of[batchv1.CronJob]("CronJob", cronJobColumns, "cronjobs", "cj"),
	of[corev1.ConfigMap]("ConfigMap", configMapColumns, "configmaps", "cm"),
	of[corev1.Secret]("Secret", secretColumns, "secrets"),
	of[corev1.PersistentVolumeClaim]("PersistentVolumeClaim", claimColumns, "persistentvolumeclaims", "pvc"),
	of[nodev1.RuntimeClass]("RuntimeClass", classColumns, "runtimeclasses"),
	of[schedulingv1.PriorityClass]("PriorityClass", priorityColumns, "priorityclasses", "pc"),
	of[corev1.Service]("Service", serviceColumns, "services", "svc"),
	of[corev1.ServiceAccount]("ServiceAccount", nil, "serviceaccounts", "sa"),
	of[corev1.Namespace]("Namespace", nil, "namespaces", "ns"),
}, leftOut()...)

// leftOut are the kinds that nothing acts on where there is one machine.
func leftOut() (out []Kind) {
	for _, k := range leftout.All() {
		if slices.ContainsFunc(out, func(other Kind) bool { return other.Name == k.Name }) {
			continue // it has moved to another group
		}
		names := []string{k.Plural}
		if k.Short != "" {
			names = append(names, k.Short)
		}
		kind := of[unstructured.Unstructured](k.Name, []column[*unstructured.Unstructured]{
			{head: "LEFT OUT", cell: func(*unstructured.Unstructured, time.Time) string { return k.Why }},
		}, names...)
		kind.Unspaced, kind.rare = k.Unspaced, true
		out = append(out, kind)
	}
	return out
}

// of is the kind whose objects are of type T.
func of[T any, P interface {
	*T
	metav1.Object
}](name string, columns []column[P], names ...string,
) Kind {
	return Kind{
		Name: name, names: names, Unspaced: name == "Node" || name == "RuntimeClass" || name == "PriorityClass" || name == "Namespace",
		New: func() metav1.Object { return P(new(T)) },
		rows: func(list []metav1.Object, o Options) [][]string {
			return rows(list, columns, o)
		},
	}
}

// All are the kinds that kubectl means by all, by their plurals: what runs, and what has
// it run.
var All = []string{"pods", "services", "daemonsets", "deployments", "replicasets", "statefulsets", "jobs", "cronjobs"}

// Find finds a kind by its name in any case, its plural or a short name.
func Find(text string) (Kind, error) {
	low := strings.ToLower(text)
	i := slices.IndexFunc(kinds, func(k Kind) bool { return low == strings.ToLower(k.Name) || slices.Contains(k.names, low) })
	if i >= 0 {
		return kinds[i], nil
	}
	var known []string
	for _, k := range kinds {
		if !k.rare {
			known = append(known, k.Plural()+short(k))
		}
	}
	return Kind{}, fmt.Errorf("%q is no kind of object here; there are %s, and kinds that are left out, such as ingresses", text, strings.Join(known, ", "))
}

func short(k Kind) string {
	if len(k.names) == 1 {
		return ""
	}
	return " (" + k.names[1] + ")"
}

// Plural is the name of several.
func (k Kind) Plural() string { return k.names[0] }

// Singular is the name of one, as people write it.
func (k Kind) Singular() string { return strings.ToLower(k.Name) }
