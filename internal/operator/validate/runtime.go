package validate

import (
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	gardener "fairlead.run/api/gardener/v1alpha1"
	"fairlead.run/internal/operator/placed"
	"fairlead.run/internal/osimage"
)

// Runtime looks at a ContainerRuntime. One whose type nobody here knows is somebody
// else's, and only its shape is looked at.
func (k Known) Runtime(c *gardener.ContainerRuntime) Result {
	var r Result
	spec := field.NewPath("spec")
	if c.Spec.Type == "" {
		r.add(field.Required(spec.Child("type"), "name the runtime, as in gvisor"))
	}
	pool := spec.Child("workerPool")
	switch {
	case c.Spec.WorkerPool.Name == "":
		r.add(field.Required(pool.Child("name"), "name the worker pool"))
	case len(validation.IsDNS1123Label(c.Spec.WorkerPool.Name)) > 0 || len(c.Spec.WorkerPool.Name) > longestPool:
		r.add(field.Invalid(pool.Child("name"), c.Spec.WorkerPool.Name, fmt.Sprintf("it becomes a part of labels: use lower case letters, digits and -, %d at most", longestPool)))
	}
	selector := c.Spec.WorkerPool.Selector
	if len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		r.add(field.Required(pool.Child("selector"), "an empty one would choose every node; give the label of the pool, as in matchLabels: {worker.gardener.cloud/pool: NAME}"))
	} else if _, err := metav1.LabelSelectorAsSelector(&selector); err != nil {
		r.add(field.Invalid(pool.Child("selector"), "", err.Error()))
	}
	for _, key := range sortedKeys(selector.MatchLabels) {
		r.add(ofOperator(key, pool.Child("selector", "matchLabels").Key(key)))
	}
	for i := range selector.MatchExpressions {
		r.add(ofOperator(selector.MatchExpressions[i].Key, pool.Child("selector", "matchExpressions").Index(i).Child("key")))
	}
	checkBinaryPath(c.Spec.BinaryPath, spec.Child("binaryPath"), &r)
	k.checkWritable(c, spec.Child("binaryPath"), &r)
	p := k.Plugins.Lookup(c.Spec.Type)
	if p == nil {
		return r
	}
	var raw []byte
	if c.Spec.ProviderConfig != nil {
		raw = c.Spec.ProviderConfig.Raw
	}
	_, faults := p.Configure(raw, nil, spec.Child("providerConfig"))
	r.add(faults...)
	return r
}

// checkBinaryPath wants a folder that can be made and removed again.
func checkBinaryPath(p string, at *field.Path, r *Result) {
	switch {
	case p == "":
		r.add(field.Required(at, "give the folder on the nodes that programs go to, as in /opt/bin"))
	case !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsFunc(p, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		r.add(field.Invalid(at, p, "give a clean absolute path without spaces, as in /opt/bin"))
	case p == "/":
		r.add(field.Invalid(at, p, "give a folder below the root, as in /opt/bin"))
	}
}

// InUsr says that programs are to go below /usr, which some systems have read-only.
func InUsr(binaryPath string) bool { return strings.HasPrefix(binaryPath+"/", "/usr/") }

// checkWritable refuses a folder below /usr on systems on which nobody can write there.
func (k Known) checkWritable(c *gardener.ContainerRuntime, at *field.Path, r *Result) {
	if !InUsr(c.Spec.BinaryPath) {
		return
	}
	if who := k.withReadOnlyUsr(c); who != "" {
		r.add(field.Invalid(at, c.Spec.BinaryPath, fmt.Sprintf("%s, where /usr is read-only; give another folder, as in %s", who, images["flatcar"].binaries)))
	}
}

// withReadOnlyUsr says which of the machines that an object is for have /usr read-only, as
// the begin of a sentence; "" if none is known.
func (k Known) withReadOnlyUsr(c *gardener.ContainerRuntime) string {
	for i := range k.Pools {
		image := k.Pools[i].Spec.MachineImage.Name
		if k.Pools[i].Name == c.Spec.WorkerPool.Name && (image == "flatcar" || image == "coreos") {
			return fmt.Sprintf("WorkerPool %s has the machine image %s", k.Pools[i].Name, image)
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(&c.Spec.WorkerPool.Selector)
	if err != nil || selector.Empty() {
		return ""
	}
	for _, n := range k.Nodes {
		is := osimage.OfText(n.Status.NodeInfo.OSImage)
		if (is == "flatcar" || is == "coreos") && selector.Matches(labels.Set(n.Labels)) {
			return fmt.Sprintf("node %s has %s", n.Name, n.Status.NodeInfo.OSImage)
		}
	}
	return ""
}

// RuntimeUpdate is Runtime, and what must not change.
func (k Known) RuntimeUpdate(c, old *gardener.ContainerRuntime) Result {
	spec := field.NewPath("spec")
	if old.DeletionTimestamp != nil {
		var r Result
		if !equality.Semantic.DeepEqual(c.Spec, old.Spec) {
			r.add(field.Forbidden(spec, "the object is being deleted, and what is to be taken off the nodes cannot be changed any more"))
		}
		return r // its finalizer must be able to go, whatever else is wrong
	}
	r := k.Runtime(c)
	was := placed.As(old) // what was changed while nobody looked may be changed back
	if c.Spec.Type != old.Spec.Type && c.Spec.Type != was.Spec.Type {
		r.add(field.Forbidden(spec.Child("type"), fmt.Sprintf("it was %s and cannot be changed; delete this object and make another", was.Spec.Type)))
	}
	if pool := c.Spec.WorkerPool.Name; pool != old.Spec.WorkerPool.Name && pool != was.Spec.WorkerPool.Name {
		r.add(field.Forbidden(spec.Child("workerPool", "name"), fmt.Sprintf("it was %s and cannot be changed; delete this object and make another", was.Spec.WorkerPool.Name)))
	}
	if c.Spec.BinaryPath != old.Spec.BinaryPath && c.Spec.BinaryPath != was.Spec.BinaryPath {
		r.add(field.Forbidden(spec.Child("binaryPath"), fmt.Sprintf("it was %s and cannot be changed, as nodes have the programs there and pods run from them; delete this object and make another", was.Spec.BinaryPath)))
	}
	return r
}

// RuntimeTwin says whether another object asks for the same runtime on the same
// pool: two would undo each other's work. One that is being deleted asks for nothing any
// more. It is nil, or the fault.
func (k Known) RuntimeTwin(c *gardener.ContainerRuntime, all []gardener.ContainerRuntime) *field.Error {
	for i := range all {
		o := &all[i]
		other := o.Namespace == c.Namespace && o.Name != c.Name && o.DeletionTimestamp == nil
		if other && o.Spec.WorkerPool.Name == c.Spec.WorkerPool.Name && k.Plugins.Canonical(o.Spec.Type) == k.Plugins.Canonical(c.Spec.Type) {
			return field.Forbidden(field.NewPath("spec", "type"), fmt.Sprintf("ContainerRuntime %s/%s asks for %s on worker pool %s already; change that one", o.Namespace, o.Name, k.Plugins.Canonical(c.Spec.Type), c.Spec.WorkerPool.Name))
		}
	}
	return nil
}
