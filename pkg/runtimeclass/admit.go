package runtimeclass

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
)

// Admission decides which pods get in, and what their classes put into them. It
// has the answers of Kubernetes' own admission plugin, and more to say.
//
// A mutating webhook calls Create, and calls it again when it is invoked again:
// twice gives what once gives. A validating one calls Validate for what has been
// created, and Update for what changes.
type Admission struct {
	Classes Classes // those that exist; nil for none
	Legacy  Legacy  // what annotations from before RuntimeClass mean
	Chooser Chooser // asked for pods that have no class yet; nil for nobody
	// Shallow has a Decision's Pod share all that admission does not change with the
	// pod that it was asked about. It is for those who only compare the two.
	Shallow bool
}

// Chooser gives a class to a pod that neither names one nor has an old
// annotation that stands for one.
type Chooser interface {
	// Choose returns a Choice without a class for the default behaviour. The pod
	// is read only. The same pod gets the same answer.
	Choose(pod *corev1.Pod) (Choice, error)
}

// Choice is what was chosen for a pod.
type Choice struct {
	Class    string // empty: the pod's own field decides
	By       string // what chose it: the name of an annotation, or of a policy
	Because  string // a sentence about it, where there is more to say; may be empty
	Warnings []string
}

// Decision is what became of a pod that was admitted.
type Decision struct {
	Pod      *corev1.Pod          // a copy with all that was injected; see Shallow
	Class    *nodev1.RuntimeClass // as it was found; nil for the default behaviour
	Injected Injected             // the same is in the pod's AnnotationInjected
	Warnings []string             // for the author, in the order of importance
}

// maxTolerations bounds what is merged: each is compared with each. Nodes do not
// have that many taints.
const maxTolerations = 1000

// Create admits a new pod, or returns a *Rejection; Warnings are for both.
func (a Admission) Create(pod *corev1.Pod) (Decision, error) {
	d := Decision{Pod: a.copyOf(pod)}
	choice, err := a.choose(pod)
	d.Warnings = choice.Warnings
	if err != nil {
		return Decision{Warnings: d.Warnings}, err
	}
	name := NameOf(pod)
	if choice.Class != "" {
		name, d.Injected.ChosenBy, d.Injected.Because = choice.Class, choice.By, choice.Because
	}
	if name == "" {
		// The API server refuses an empty name, though the API says that it
		// stands for none.
		d.Pod.Spec.RuntimeClassName = nil
		if err := checkOverhead(pod, nil); err != nil {
			return Decision{Warnings: d.Warnings}, err
		}
		d.Injected.note(d.Pod)
		return d, nil
	}
	d.Pod.Spec.RuntimeClassName = &name
	class, err := a.find(name, d.Injected.ChosenBy)
	if err != nil {
		return Decision{Warnings: d.Warnings}, err
	}
	d.Class, d.Injected.Class = class, class.Name
	if err := inject(d.Pod, class, &d.Injected); err != nil {
		return Decision{Warnings: d.Warnings}, err
	}
	d.Injected.resume(a.earlier(pod), class)
	d.Injected.note(d.Pod)
	return d, nil
}

// copyOf is a copy of a pod to inject into.
func (a Admission) copyOf(pod *corev1.Pod) *corev1.Pod {
	if !a.Shallow {
		return pod.DeepCopy()
	}
	// Members are added to these two. All else is set anew, if it is.
	out := *pod
	out.Annotations, out.Spec.NodeSelector = maps.Clone(pod.Annotations), maps.Clone(pod.Spec.NodeSelector)
	return &out
}

// choose is the class for a pod that names none.
func (a Admission) choose(pod *corev1.Pod) (Choice, error) {
	legacy, err := a.Legacy.Choose(pod)
	if err != nil || a.Chooser == nil || legacy.Class != "" || NameOf(pod) != "" {
		return legacy, err
	}
	choice, err := a.Chooser.Choose(pod)
	choice.Warnings = slices.Concat(legacy.Warnings, choice.Warnings)
	return choice, err
}

// earlier is what an earlier pass noted, with what chose the class only if it
// would choose it again: an author can write the annotation, too.
func (a Admission) earlier(pod *corev1.Pod) *Injected {
	in, err := InjectedOf(pod)
	if err != nil || in == nil {
		return nil // no pass of ours wrote that
	}
	if in.ChosenBy == "" || in.Class != NameOf(pod) {
		in.ChosenBy, in.Because = "", ""
		return in
	}
	unchosen := pod.DeepCopy()
	unchosen.Spec.RuntimeClassName = nil
	again, err := a.choose(unchosen)
	if err != nil || again.Class != in.Class || again.By != in.ChosenBy {
		in.ChosenBy, in.Because = "", ""
		return in
	}
	in.Because = again.Because
	return in
}

// Validate checks a pod after everybody has changed it: its class exists, and
// its overhead is the class's. What it returns is a *Rejection.
func (a Admission) Validate(pod *corev1.Pod) error {
	name := NameOf(pod)
	if name == "" {
		return checkOverhead(pod, nil)
	}
	class, err := a.find(name, "")
	if err != nil {
		return err
	}
	if class.Overhead != nil && len(class.Overhead.PodFixed) > 0 && len(pod.Spec.Overhead) == 0 {
		return Rejection{Reason: ReasonOverhead, Class: name, Field: "spec.overhead"}.saying("is missing; RuntimeClass %s has %s, which its admission sets when the pod is created", name, quantities(class.Overhead.PodFixed))
	}
	return checkOverhead(pod, class)
}

// Update checks a change of a pod that exists. Its class and its overhead stay
// as they were when it was created, even if the class is gone or another now.
func (a Admission) Update(updated, old *corev1.Pod) error {
	from, to := NameOf(old), NameOf(updated)
	if from != to {
		return Rejection{Reason: ReasonImmutable, Class: to, Field: "spec.runtimeClassName"}.saying("the class of a pod cannot change, from %s to %s; make a new pod", orNone(from), orNone(to))
	}
	if !sameResources(old.Spec.Overhead, updated.Spec.Overhead) {
		return Rejection{Reason: ReasonImmutable, Class: to, Field: "spec.overhead"}.saying("the overhead of a pod cannot change, from %s to %s; it was set when the pod was created",
			quantities(old.Spec.Overhead), quantities(updated.Spec.Overhead))
	}
	return nil
}

// find is Find with a *Rejection that says where the name stands.
func (a Admission) find(name, chosenBy string) (*nodev1.RuntimeClass, error) {
	class, err := Find(a.Classes, name)
	if err == nil {
		return class, nil
	}
	r := &Rejection{Reason: ReasonMissing, Class: name, Field: "spec.runtimeClassName", Detail: err.Error(), cause: err}
	switch {
	case slices.Contains(legacyKeys(), chosenBy):
		r.Field = "metadata.annotations[" + chosenBy + "]"
	case chosenBy != "":
		r.Detail = "the pod names no class and " + chosenBy + " gives it one, but " + r.Detail
	}
	return nil, r
}

// inject puts what the class demands into the pod, which is changed, and notes
// what of it the pod did not have.
func inject(pod *corev1.Pod, class *nodev1.RuntimeClass, in *Injected) error {
	if err := checkOverhead(pod, class); err != nil {
		return err
	}
	if class.Overhead != nil && len(class.Overhead.PodFixed) > 0 && len(pod.Spec.Overhead) == 0 {
		pod.Spec.Overhead = class.Overhead.DeepCopy().PodFixed
		in.Overhead = texts(class.Overhead.PodFixed)
	}
	if class.Scheduling == nil {
		return nil
	}
	if err := injectSelector(pod, class, in); err != nil {
		return err
	}
	had := pod.Spec.Tolerations
	if len(had)+len(class.Scheduling.Tolerations) > maxTolerations {
		return Rejection{Reason: ReasonTolerations, Class: class.Name, Field: "spec.tolerations"}.saying("there are %d, and with those of RuntimeClass %s at most %d are merged; one without a key tolerates all taints",
			len(had), class.Name, maxTolerations)
	}
	pod.Spec.Tolerations = mergeTolerations(had, class.Scheduling.Tolerations)
	in.Tolerations = without(pod.Spec.Tolerations, had)
	return nil
}

func injectSelector(pod *corev1.Pod, class *nodev1.RuntimeClass, in *Injected) error {
	wants := class.Scheduling.NodeSelector
	for _, key := range slices.Sorted(maps.Keys(wants)) {
		has, ok := pod.Spec.NodeSelector[key]
		if ok && has != wants[key] {
			return Rejection{Reason: ReasonSelector, Class: class.Name, Field: "spec.nodeSelector[" + key + "]"}.saying("the pod wants %q, and RuntimeClass %s wants %q, so no node fits both; leave the key out, or use another class",
				has, class.Name, wants[key])
		}
		if ok {
			continue
		}
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		if in.NodeSelector == nil {
			in.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[key], in.NodeSelector[key] = wants[key], wants[key]
	}
	return nil
}

// checkOverhead refuses an overhead that is not the class's; nil is no class.
func checkOverhead(pod *corev1.Pod, class *nodev1.RuntimeClass) error {
	has := pod.Spec.Overhead
	switch {
	case len(has) == 0:
		return nil
	case class == nil:
		return Rejection{Reason: ReasonOverhead, Field: "spec.overhead"}.saying("only a RuntimeClass gives a pod overhead, and the pod names none; leave it out")
	case class.Overhead == nil:
		return Rejection{Reason: ReasonOverhead, Class: class.Name, Field: "spec.overhead"}.saying("is %s, and RuntimeClass %s has no overhead; leave it out", quantities(has), class.Name)
	case !sameOverhead(has, class.Overhead.PodFixed):
		return Rejection{Reason: ReasonOverhead, Class: class.Name, Field: "spec.overhead"}.saying("is %s, and that of RuntimeClass %s is %s; leave it out, and it is set",
			quantities(has), class.Name, quantities(class.Overhead.PodFixed))
	}
	return nil
}

// quantities writes resources by name: "cpu 250m, memory 64Mi".
func quantities(list corev1.ResourceList) string {
	if len(list) == 0 {
		return "nothing"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		parts = append(parts, string(name)+" "+q.String())
	}
	return strings.Join(parts, ", ")
}

func orNone(class string) string {
	if class == "" {
		return "none"
	}
	return class
}
