package manifest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

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
	// Owner is the Deployment that the pod is a replica of, or empty.
	Owner string
}

// Key is the pod's namespace and name.
func (p *Pod) Key() Key { return Key{p.Namespace, p.Name} }

// Objects is what a set of manifests holds.
type Objects struct {
	Pods       []*Pod // in the order of the files; replicas by number
	Classes    map[string]*nodev1.RuntimeClass
	ConfigMaps map[Key]*corev1.ConfigMap
	Secrets    map[Key]*corev1.Secret
	// Notes are things that are right but may surprise.
	Notes []string

	origins map[string]string // kind and key to origin, to find duplicates
}

// MaxPods bounds the pods of one run. A node of Kubernetes takes 110 by
// default; this is for machines that are larger than that.
const MaxPods = 1000

func newObjects() *Objects {
	return &Objects{
		Classes:    map[string]*nodev1.RuntimeClass{},
		ConfigMaps: map[Key]*corev1.ConfigMap{},
		Secrets:    map[Key]*corev1.Secret{},
		origins:    map[string]string{},
	}
}

// claim takes a name, or says who has it.
func (o *Objects) claim(kind string, k Key, origin string) error {
	id := kind + " " + k.String()
	if first, taken := o.origins[id]; taken {
		return invalid("is defined twice; the first is at %s", first)
	}
	o.origins[id] = origin
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
