package handlers

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/manifest"
	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
)

// Choice is what a pod's class says.
type Choice struct {
	Class    string // empty without one
	ChosenBy string // what chose the class, if the pod does not name it; see runtimeclass.Injected
	Because  string // why, where there was a choice; may be empty
	Warnings []string
	Handler  string // empty for the default
	Overhead corev1.ResourceList
}

// Resolve finds the handler of a pod by the rules of a cluster's admission, on a
// cluster that is this machine. Errors start with the pod's origin.
func (s *Set) Resolve(p *manifest.Pod, classes map[string]*nodev1.RuntimeClass) (Choice, error) {
	admission := s.admission(classes)
	d, err := admission.Create(p.Pod, nil)
	if err == nil {
		_, err = admission.Check(d.Pod, nil)
	}
	if err != nil {
		return Choice{}, fmt.Errorf("%s: %w", p.Origin, refusal(err))
	}
	choice := Choice{ChosenBy: d.Injected.ChosenBy, Because: d.Injected.Because, Warnings: d.Warnings, Overhead: d.Pod.Spec.Overhead}
	if d.Class == nil {
		if s.known && !s.unnamed && s.Default() == "" {
			return Choice{}, fmt.Errorf("%s: names no RuntimeClass, and %s; %s: %w", p.Origin, s.noDefault(), s.describe(), errdefs.ErrUnavailable)
		}
		return choice, nil
	}
	if err := s.Check(d.Class.Handler); err != nil {
		return Choice{}, fmt.Errorf("%s: RuntimeClass %q asks for the runtime handler %q, %w", p.Origin, d.Class.Name, d.Class.Handler, err)
	}
	choice.Class, choice.Handler = d.Class.Name, d.Class.Handler
	return choice, nil
}

// Notes are what the author of a pod should know of how it came to its class.
func (c Choice) Notes() []string {
	if c.ChosenBy == "" {
		return c.Warnings
	}
	note := "runs on RuntimeClass " + c.Class + ", which " + c.ChosenBy + " gives it"
	if c.Because != "" {
		note += ": " + c.Because
	}
	return append([]string{note}, c.Warnings...)
}

// refusal gives a rejection its kind.
func refusal(err error) error {
	var r *runtimeclass.Rejection
	if !errors.As(err, &r) {
		return err
	}
	switch r.Reason {
	case runtimeclass.ReasonMissing:
		return fmt.Errorf("%w (among the manifests): %w", err, errdefs.ErrNotFound)
	case policy.ReasonNoFit:
		return fmt.Errorf("%w: %w", err, errdefs.ErrUnavailable)
	}
	return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
}

// admission has the classes without what places pods in a cluster: there is no
// other node.
func (s *Set) admission(classes map[string]*nodev1.RuntimeClass) policy.Admission {
	here := runtimeclass.Map{}
	for name, c := range classes {
		here[name] = c.DeepCopy()
		here[name].Scheduling = nil
	}
	a := policy.Admission{Classes: here, Fleet: s.fleet()}
	if c, _ := policy.DefaultOf(slices.Collect(maps.Values(here))); c != nil {
		a.Default = c.Name
	}
	return a
}

// fleet is this machine as a node, or nil if its runtime tells nothing.
func (s *Set) fleet() *policy.Fleet {
	if !s.known {
		return nil
	}
	n := &corev1.Node{}
	n.Name = "this machine"
	n.Labels, n.Annotations = map[string]string{}, map[string]string{}
	for _, h := range s.list {
		if !h.Ready {
			n.Labels[runtimeclass.LabelHandlerPrefix+h.Name] = "false"
			continue
		}
		n.Labels[runtimeclass.LabelHandlerPrefix+h.Name] = "true"
		n.Status.RuntimeHandlers = append(n.Status.RuntimeHandlers, corev1.NodeRuntimeHandler{
			Name:     h.Name,
			Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &h.RecursiveReadOnlyMounts, UserNamespaces: &h.UserNamespaces},
		})
		if h.features != nil {
			n.Annotations[policy.AnnotationFeaturesPrefix+h.Name] = strings.Join(h.features, ",")
		}
	}
	return policy.NewFleet([]*corev1.Node{n})
}

// noDefault says why no handler runs pods without a class.
func (s *Set) noDefault() string {
	for _, h := range s.list {
		if h.Default {
			return fmt.Sprintf("the default handler %s (default_handler in the configuration) does not work here: %s", h.Name, h.Reason)
		}
	}
	return "no default handler works here"
}

// Check says why a handler cannot be used: errdefs.ErrNotFound if it is not here, and
// errdefs.ErrUnavailable if it does not work. The empty name means the default. Of a
// runtime that does not tell its handlers all are taken to work.
func (s *Set) Check(name string) error {
	if !s.known {
		return nil
	}
	if name == "" {
		if s.unnamed || s.Default() != "" {
			return nil
		}
		return fmt.Errorf("and %s; %s: %w", s.noDefault(), s.describe(), errdefs.ErrUnavailable)
	}
	for _, h := range s.list {
		if h.Name == name && h.Ready {
			return nil
		}
		if h.Name == name {
			return fmt.Errorf("which does not work on this machine: %s; %s: %w", h.Reason, s.describe(), errdefs.ErrUnavailable)
		}
	}
	return fmt.Errorf("which this machine does not have; %s. Install a runtime for it, or use a class whose handler is here: %w", s.describe(), errdefs.ErrNotFound)
}

// describe names the handlers that exist.
func (s *Set) describe() string {
	var ready []string
	for _, h := range s.list {
		switch {
		case h.Ready && h.Default:
			ready = append(ready, h.Name+" (default)")
		case h.Ready:
			ready = append(ready, h.Name)
		}
	}
	if len(ready) == 0 {
		return "no handler works here"
	}
	return "the handlers here are " + strings.Join(ready, ", ")
}
