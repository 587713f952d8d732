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
}

// Decision is what became of a pod that was admitted.
type Decision struct {
	Pod      *corev1.Pod          // a copy with all that was injected
	Class    *nodev1.RuntimeClass // as it was found; nil for the default behaviour
	Injected Injected             // the same is in the pod's AnnotationInjected
	Warnings []string             // for the author, in the order of importance
}

// maxTolerations bounds what is merged: each is compared with each. Nodes do not
// have that many taints.
const maxTolerations = 1000

// Create admits a new pod, or returns a *Rejection; Warnings are for both.
func (a Admission) Create(pod *corev1.Pod) (Decision, error) {
	d := Decision{Pod: pod.DeepCopy()}
	choice, err := a.Legacy.Choose(pod)
	d.Warnings = choice.Warnings
	if err != nil {
		return Decision{Warnings: d.Warnings}, err
	}
	name := NameOf(pod)
	if choice.Class != "" {
		name, d.Injected.ChosenBy = choice.Class, choice.Annotation
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
	earlier, err := InjectedOf(pod)
	if err != nil {
		earlier = nil // no pass of ours wrote that
	}
	d.Injected.resume(earlier, class)
	d.Injected.note(d.Pod)
	return d, nil
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
	field := "spec.runtimeClassName"
	if chosenBy != "" {
		field = "metadata.annotations[" + chosenBy + "]"
	}
	return nil, &Rejection{Reason: ReasonMissing, Class: name, Field: field, Detail: err.Error(), cause: err}
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
	case !sameResources(has, class.Overhead.PodFixed):
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
