package validate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/names"
	"fairlead.run/internal/operator/plugin"
)

// longestPool is what the name of a pool may have: it stands in labels, after a word.
const longestPool = 40

// Pool looks at a WorkerPool.
func (k Known) Pool(p *v1alpha1.WorkerPool) Result {
	var r Result
	spec, cri := field.NewPath("spec"), field.NewPath("spec", "cri")
	if whys := validation.IsDNS1123Label(p.Name); len(whys) > 0 || len(p.Name) > longestPool {
		r.add(field.Invalid(field.NewPath("metadata", "name"), p.Name, fmt.Sprintf("the name of a pool becomes a part of labels: use lower case letters, digits and -, %d at most", longestPool)))
	}
	if len(p.Spec.NodeSelector) == 0 {
		r.add(field.Required(spec.Child("nodeSelector"), "give at least one label that the nodes of the pool have"))
	}
	for _, key := range sortedKeys(p.Spec.NodeSelector) {
		at := spec.Child("nodeSelector").Key(key)
		for _, why := range append(validation.IsQualifiedName(key), validation.IsValidLabelValue(p.Spec.NodeSelector[key])...) {
			r.add(field.Invalid(at, p.Spec.NodeSelector[key], why))
		}
		r.add(ofOperator(key, at))
	}
	kubernetes := p.Spec.KubernetesVersion
	if kubernetes == "" {
		kubernetes = k.Kubelet
	}
	if kubernetes == "" && k.Unknown != "" && len(p.Spec.CRI.ContainerRuntimes) > 0 {
		r.warn("%s: %s, so that Kubernetes 1.16 or newer is assumed; give the version of the kubelets", spec.Child("kubernetesVersion"), k.Unknown)
	}
	k.check(group{
		machine: plugin.Machine{Type: p.Spec.MachineType, Provider: p.Spec.Provider, Virtual: k.Virtual}, image: p.Spec.MachineImage.Name, arch: p.Spec.Architecture, kubernetes: kubernetes,
		cri: p.Spec.CRI.Name, runtimes: p.Spec.CRI.ContainerRuntimes, ours: true, images: "choose one of " + supported(p.Spec.CRI.Name),
		paths: groupPaths{
			machine: spec.Child("machineType"), image: spec.Child("machineImage", "name"), arch: spec.Child("architecture"),
			kubernetes: spec.Child("kubernetesVersion"), cri: cri.Child("name"), runtimes: cri.Child("containerRuntimes"),
		},
	}, &r)
	checkRestart(p, spec.Child("restart"), &r)
	if t := p.Spec.StartupTaint; t != nil {
		for _, why := range validation.IsQualifiedName(t.Key) {
			r.add(field.Invalid(spec.Child("startupTaint", "key"), t.Key, why))
		}
	}
	k.checkOthers(p, spec.Child("nodeSelector"), &r)
	k.checkAgreement(p, cri.Child("containerRuntimes"), &r)
	return r
}

// PoolUpdate is Pool, and what must not change.
func (k Known) PoolUpdate(p, old *v1alpha1.WorkerPool) Result {
	r := k.Pool(p)
	if p.Spec.CRI.Name != old.Spec.CRI.Name {
		r.add(field.Forbidden(field.NewPath("spec", "cri", "name"), fmt.Sprintf("it was %s and cannot be changed, as nodes have what was installed for that; make another pool", old.Spec.CRI.Name)))
	}
	if len(old.Spec.CRI.ContainerRuntimes) > 0 {
		r.add(Moved(p, BinaryPath(old.Spec.MachineImage.Name)))
	}
	return r
}

// Moved says whether a pool wants its programs in another folder than from, where its
// nodes have them: pods run from there, so that nothing is ever moved.
func Moved(p *v1alpha1.WorkerPool, from string) *field.Error {
	image := p.Spec.MachineImage.Name
	if to := BinaryPath(image); to != from {
		return field.Forbidden(field.NewPath("spec", "machineImage", "name"), fmt.Sprintf("programs go to %s on %s, and the nodes of this pool have them in %s; make another pool for nodes with that image", to, image, from))
	}
	return nil
}

func checkRestart(p *v1alpha1.WorkerPool, at *field.Path, r *Result) {
	restart := p.Spec.Restart
	if restart.Method == v1alpha1.RestartSighup && p.Spec.CRI.Name != v1alpha1.CRICRIO {
		r.add(field.Invalid(at.Child("method"), restart.Method, fmt.Sprintf("%s ends by SIGHUP; only crio reads its configuration again; set auto or systemd", p.Spec.CRI.Name)))
	}
	if (restart.Method == v1alpha1.RestartCommand) != (len(restart.Command) > 0) {
		r.add(field.Invalid(at.Child("command"), restart.Command, "is for the method command, which needs it"))
	}
	if len(restart.Command) > 0 && strings.Contains(restart.Command[0], "/") && !path.IsAbs(restart.Command[0]) {
		r.add(field.Invalid(at.Child("command").Index(0), restart.Command[0], "give the absolute path of a program on the nodes, or its name alone"))
	}
}

// ofOperator refuses to choose nodes by what the operator writes on them: a node that waits
// for its turn has none of it, and would leave its pool.
func ofOperator(label string, at *field.Path) *field.Error {
	if !names.OfOperator(label) {
		return nil
	}
	return field.Invalid(at, label, "the operator writes it itself, by how far a node is, and takes it off nodes that wait; choose them by a label of your own")
}

// checkOthers compares with the other pools: two that choose the same nodes disagree
// about them.
func (k Known) checkOthers(p *v1alpha1.WorkerPool, at *field.Path, r *Result) {
	for i := range k.Pools {
		other := &k.Pools[i]
		if other.Name == p.Name || other.DeletionTimestamp != nil {
			continue
		}
		switch {
		case sameLabels(p.Spec.NodeSelector, other.Spec.NodeSelector):
			r.add(field.Forbidden(at, fmt.Sprintf("WorkerPool %s has the same one, and a node can only be in one pool; tell them apart by a label", other.Name)))
		case compatible(p.Spec.NodeSelector, other.Spec.NodeSelector):
			r.warn("%s: a node can fit this pool and WorkerPool %s, and stays in the one that it was in first; give both a label with different values", at, other.Name)
		}
	}
}

func sameLabels(a, b map[string]string) bool {
	return len(a) == len(b) && compatible(a, b) && slices.Equal(sortedKeys(a), sortedKeys(b))
}

// compatible says that a node can have all labels of both.
func compatible(a, b map[string]string) bool {
	for key, value := range a {
		if other, ok := b[key]; ok && other != value {
			return false
		}
	}
	return true
}

func sortedKeys(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for key := range m {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

// Release looks at a RuntimePayload.
func (k Known) Release(p *v1alpha1.RuntimePayload) Result {
	var r Result
	at := field.NewPath("spec", "manifest")
	r.add(p.Spec.Manifest.Validate(at)...)
	if p.Name != p.Spec.Manifest.Type {
		r.add(field.Invalid(at.Child("type"), p.Spec.Manifest.Type, fmt.Sprintf("has to be the name of the object, %s: there is one payload for each type", p.Name)))
	}
	return r
}
