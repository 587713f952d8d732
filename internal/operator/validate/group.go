package validate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/plugin"
)

// Known is what there is beside the object that is looked at.
type Known struct {
	Plugins plugin.Set
	// Payload is that of a type; nil if there is none. Where nobody can know, as in
	// a garden cluster, the function is nil.
	Payload func(typ string) *v1alpha1.RuntimePayload
	// Foreign says whose a RuntimeClass is that this operator has not made; "" if it
	// may have the name. Nil where nobody can know.
	Foreign func(class string) string
	// Pools are all pools.
	Pools []v1alpha1.WorkerPool
	// Nodes are all nodes; nil where nobody can know, or has to.
	Nodes []*corev1.Node
	// Kubelet is the version of the oldest kubelet of a pool, or what no kubelet of it can
	// be newer than; "" if nobody can know. Unknown says why, for who should be told.
	Kubelet, Unknown string
	// Virtual is what is known of the machines of a pool beside their name.
	Virtual plugin.Virtual
	// Profile is that of a shoot; nil if there is none, or nobody can know. Capability is
	// what tells there which machines can run virtual machines.
	Profile    *CloudProfile
	Capability Capability
}

// group is nodes that are alike, as a WorkerPool and a Shoot have them.
type group struct {
	machine    plugin.Machine
	image      string
	arch       string
	kubernetes string
	cri        v1alpha1.CRIName
	runtimes   []v1alpha1.PoolRuntime
	paths      groupPaths
	// images is what to do about one that nothing can be installed on, and machines are
	// others that there are; nil where nobody knows.
	images   string
	machines []plugin.Machine
	// ours says that a type without a plugin is a fault: nobody else would act on it.
	ours bool
}

// groupPaths are where the fields stand.
type groupPaths struct {
	machine, image, arch, kubernetes, cri, runtimes *field.Path
}

// check looks at what a group is to have.
func (k Known) check(g group, r *Result) {
	switch g.cri {
	case v1alpha1.CRIContainerd, v1alpha1.CRICRIO:
	case "":
		if len(g.runtimes) > 0 {
			r.add(field.Required(g.paths.cri, "runtimes are installed below a CRI runtime; give containerd or crio"))
		}
	default:
		r.add(field.NotSupported(g.paths.cri, g.cri, []v1alpha1.CRIName{v1alpha1.CRIContainerd, v1alpha1.CRICRIO}))
	}
	if len(g.runtimes) == 0 {
		return
	}
	checkKubernetes(g.kubernetes, g.paths.kubernetes, r)
	if g.image != "" { // else Gardener chooses one
		checkImage(g, r)
	}
	seen := map[string]int{}
	for i := range g.runtimes {
		at, typ := g.paths.runtimes.Index(i), g.runtimes[i].Type
		if typ == "" {
			r.add(field.Required(at.Child("type"), "name the runtime, as in gvisor"))
			continue
		}
		name := k.Plugins.Canonical(typ)
		if first, ok := seen[name]; ok {
			f := field.Duplicate(at.Child("type"), typ)
			f.Detail = fmt.Sprintf("is the same runtime as %s; give each once", g.paths.runtimes.Index(first).Child("type"))
			r.add(f)
			continue
		}
		seen[name] = i
		k.checkRuntime(g, i, r)
	}
}

// checkRuntime looks at one runtime of a group.
func (k Known) checkRuntime(g group, i int, r *Result) {
	want, at := g.runtimes[i], g.paths.runtimes.Index(i)
	p := k.Plugins.Lookup(want.Type)
	if p == nil {
		if g.ours {
			r.add(field.NotSupported(at.Child("type"), want.Type, k.Plugins.Names()))
		}
		return
	}
	d := p.Describe()
	fault, warning := p.Suits(g.machine, g.paths.machine)
	if fault != nil && g.machines != nil && g.machine.Virtual.Says == plugin.Unknown {
		g.machine.Virtual.Instead = instead(p, g.machines)
		fault, warning = p.Suits(g.machine, g.paths.machine)
	}
	r.add(fault)
	if warning != "" {
		r.Warnings = append(r.Warnings, warning)
	}
	var manifest *payload.RuntimePayload
	if k.Payload != nil {
		object := k.Payload(d.Type)
		if object == nil {
			r.warn("%s: there is no RuntimePayload %s, so that nothing can be installed before there is one", at, d.Type)
		} else {
			manifest = &object.Spec.Manifest
		}
	}
	var raw []byte
	if want.ProviderConfig != nil {
		raw = want.ProviderConfig.Raw
	}
	settings, faults := p.Configure(raw, manifest, at.Child("providerConfig"))
	if manifest != nil {
		g.checkPayload(manifest, settings.Install.Handlers, at, r)
	}
	r.add(faults...)
	if manifest != nil && len(faults) == 0 {
		classes, err := plugin.Classes(d, manifest, settings)
		if err != nil {
			r.add(field.Invalid(at.Child("type"), d.Type, "RuntimePayload "+d.Type+": "+err.Error()))
		}
		k.checkClasses(plugin.Below(g.cri, classes, manifest), at, r)
	}
}

// instead is what to do about a machine on which a type does not run, where there are these.
func instead(p plugin.Plugin, all []plugin.Machine) string {
	var fit, may []string
	for _, m := range all {
		switch fault, warning := p.Suits(m, nil); {
		case fault != nil:
		case warning == "":
			fit = append(fit, m.Type)
		default:
			may = append(may, m.Type)
		}
	}
	switch {
	case len(fit) > 0:
		return "choose one that can: " + shortened(fit)
	case len(may) > 0:
		return "choose one that may: " + shortened(may)
	}
	return "no other machine type there can; have who runs the landscape add one"
}

// checkPayload says whether there is something to install for these nodes. Asked for are
// some handlers of the payload, or none, which means all that the CRI runtime can have.
func (g *group) checkPayload(p *payload.RuntimePayload, asked []string, at *field.Path, r *Result) {
	if g.arch != "" && !slices.Contains(p.Architectures, g.arch) {
		r.add(field.Invalid(g.paths.arch, g.arch, fmt.Sprintf("the RuntimePayload %s has programs for %s only; add those for %s to it, or take %s off this pool", p.Type, strings.Join(p.Architectures, ", "), g.arch, p.Type)))
	}
	runs, lacking := false, []string{}
	for i := range p.Handlers {
		h := &p.Handlers[i]
		switch {
		case g.cri == v1alpha1.CRIContainerd && h.Containerd != nil || g.cri == v1alpha1.CRICRIO && h.CRIO != nil:
			runs = true
		case slices.Contains(asked, h.Name):
			lacking = append(lacking, h.Name)
		}
	}
	switch {
	case !runs:
		r.add(field.Invalid(at.Child("type"), p.Type, fmt.Sprintf("no handler of the RuntimePayload %s runs below %s; use the other CRI runtime, or add one to it", p.Type, g.cri)))
	case len(lacking) > 0:
		r.add(field.Invalid(at.Child("providerConfig"), strings.Join(lacking, ", "), fmt.Sprintf("handlers %s of the RuntimePayload %s do not run below %s; ask for others of it, or use the other CRI runtime", strings.Join(lacking, ", "), p.Type, g.cri)))
	}
}

// checkClasses says whether the RuntimeClasses may have their names.
func (k Known) checkClasses(classes []plugin.Class, at *field.Path, r *Result) {
	if k.Foreign == nil {
		return
	}
	for _, c := range classes {
		if owner := k.Foreign(c.Name); owner != "" {
			r.add(field.Forbidden(at.Child("type"), fmt.Sprintf("it needs RuntimeClass %s, which is %s; delete or rename that one first", c.Name, owner)))
		}
	}
}
