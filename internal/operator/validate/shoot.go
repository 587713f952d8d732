package validate

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/plugin"
)

// Shoot is as much of a cluster of Gardener's (core.gardener.cloud/v1beta1) as there
// is to look at.
type Shoot struct {
	Metadata struct {
		DeletionTimestamp *string `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		// One of the two names the profile.
		CloudProfile     *ShootProfile   `json:"cloudProfile"`
		CloudProfileName string          `json:"cloudProfileName"`
		Kubernetes       ShootKubernetes `json:"kubernetes"`
		Provider         struct {
			Type    string   `json:"type"`
			Workers []Worker `json:"workers"`
		} `json:"provider"`
	} `json:"spec"`
}

// ShootProfile names a CloudProfile or a NamespacedCloudProfile.
type ShootProfile struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// ShootKubernetes is a version.
type ShootKubernetes struct {
	Version string `json:"version"`
}

// Worker is a worker group of a shoot.
type Worker struct {
	Name       string           `json:"name"`
	Kubernetes *ShootKubernetes `json:"kubernetes"`
	Machine    struct {
		Type         string `json:"type"`
		Architecture string `json:"architecture"`
		Image        *struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"image"`
	} `json:"machine"`
	UpdateStrategy string `json:"updateStrategy"`
	CRI            *struct {
		Name              v1alpha1.CRIName       `json:"name"`
		ContainerRuntimes []v1alpha1.PoolRuntime `json:"containerRuntimes"`
	} `json:"cri"`
}

// inPlace says that machines stay when the group changes.
func (w *Worker) inPlace() bool { return strings.Contains(w.UpdateStrategy, "InPlace") }

// architecture is that of its machines; without one it is as Gardener takes it.
func (w *Worker) architecture() string {
	if w.Machine.Architecture == "" {
		return "amd64"
	}
	return w.Machine.Architecture
}

func (w *Worker) cri() v1alpha1.CRIName {
	if w.CRI == nil {
		return ""
	}
	return w.CRI.Name
}

var workersAt = field.NewPath("spec", "provider", "workers")

// Shoot looks at the worker groups of a shoot. What no runtime is asked for on is
// Gardener's own to check.
func (k Known) Shoot(s *Shoot) Result {
	var r Result
	k.checkNames(s, &r)
	for i := range s.Spec.Provider.Workers {
		w, at := &s.Spec.Provider.Workers[i], workersAt.Index(i)
		if w.CRI == nil || len(w.CRI.ContainerRuntimes) == 0 {
			continue
		}
		g := group{
			machine: plugin.Machine{Type: w.Machine.Type, Provider: s.Spec.Provider.Type, Virtual: k.Profile.virtual(k.Capability, w)}, arch: w.Machine.Architecture, kubernetes: s.Spec.Kubernetes.Version, cri: w.CRI.Name, runtimes: w.CRI.ContainerRuntimes,
			paths: groupPaths{
				machine: at.Child("machine", "type"), image: at.Child("machine", "image", "name"), arch: at.Child("machine", "architecture"),
				kubernetes: field.NewPath("spec", "kubernetes", "version"), cri: at.Child("cri", "name"), runtimes: at.Child("cri", "containerRuntimes"),
			},
		}
		if w.Kubernetes != nil && w.Kubernetes.Version != "" {
			g.kubernetes, g.paths.kubernetes = w.Kubernetes.Version, at.Child("kubernetes", "version")
		}
		// Whatever else is to be done is so for the only one that there can be.
		switch g.cri {
		case v1alpha1.CRIContainerd:
		case "":
			r.add(field.Required(g.paths.cri, "runtimes are installed below a CRI runtime; give containerd"))
		default:
			r.add(field.NotSupported(g.paths.cri, g.cri, []v1alpha1.CRIName{v1alpha1.CRIContainerd}))
		}
		g.cri, g.images, g.machines = v1alpha1.CRIContainerd, k.Profile.images(w), k.Profile.others(k.Capability, s.Spec.Provider.Type, w)
		if w.Machine.Image != nil {
			g.image = w.Machine.Image.Name
		}
		k.check(g, &r)
	}
	return r
}

// checkNames warns of a type that is asked for by several names: nodes are labelled by the
// name that their group has, and a RuntimeClass finds those with one label.
func (k Known) checkNames(s *Shoot, r *Result) {
	first := map[string]string{}
	for i := range s.Spec.Provider.Workers {
		w := &s.Spec.Provider.Workers[i]
		if w.CRI == nil {
			continue
		}
		for j := range w.CRI.ContainerRuntimes {
			typ := w.CRI.ContainerRuntimes[j].Type
			name := k.Plugins.Canonical(typ)
			switch was := first[name]; was {
			case "":
				first[name] = typ
			case typ:
			default:
				r.warn("%s: another group asks for it as %s, and its RuntimeClasses lead to the nodes of one name only; ask for it by one name in all groups", workersAt.Index(i).Child("cri", "containerRuntimes").Index(j).Child("type"), was)
			}
		}
	}
}

// byNames puts names in the place of indexes: a worker group that has moved in its
// list is the same one.
func (s *Shoot) byNames() *strings.Replacer {
	var pairs []string
	for i := range s.Spec.Provider.Workers {
		w, at := &s.Spec.Provider.Workers[i], workersAt.Index(i)
		if w.CRI != nil {
			for j := range w.CRI.ContainerRuntimes {
				pairs = append(pairs, at.Child("cri", "containerRuntimes").Index(j).String(), w.Name+"/"+w.CRI.ContainerRuntimes[j].Type)
			}
		}
		pairs = append(pairs, at.String(), w.Name)
	}
	return strings.NewReplacer(pairs...)
}

// cause is a fault without its advice, which follows a semicolon and depends on what else
// there is, such as the machines of a profile.
func cause(f *field.Error) string {
	bare := *f
	bare.Detail, _, _ = strings.Cut(f.Detail, "; ")
	return bare.Error()
}

// ShootUpdate is Shoot, without the faults that the old one had, and what must not
// change.
func (k Known) ShootUpdate(s, old *Shoot) Result {
	if s.Metadata.DeletionTimestamp != nil {
		return Result{}
	}
	r := k.Shoot(s)
	if old.Profile("") != s.Profile("") {
		k.Profile = nil // the old one was not held against this
	}
	had, past := map[string]bool{}, k.Shoot(old)
	nameOld, nameNew := old.byNames(), s.byNames()
	for _, f := range past.Faults {
		had[nameOld.Replace(cause(f))] = true
	}
	r.Faults = slices.DeleteFunc(r.Faults, func(f *field.Error) bool { return had[nameNew.Replace(cause(f))] })
	was := map[string]*Worker{}
	for i := range old.Spec.Provider.Workers {
		was[old.Spec.Provider.Workers[i].Name] = &old.Spec.Provider.Workers[i]
	}
	for i := range s.Spec.Provider.Workers {
		w := &s.Spec.Provider.Workers[i]
		before := was[w.Name]
		// Without a name it was containerd all the time, as Gardener takes it.
		named := before != nil && before.cri() == "" && w.cri() == v1alpha1.CRIContainerd
		if before != nil && w.inPlace() && before.cri() != w.cri() && !named {
			r.add(field.Forbidden(workersAt.Index(i).Child("cri", "name"), fmt.Sprintf("it was %q and cannot be changed, as the machines of worker group %s are updated in place; make another worker group", before.cri(), w.Name)))
		}
	}
	return r
}
