package plugin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
)

// Plugin is one type of container runtime.
type Plugin interface {
	// Describe says what the type is, and is always the same.
	Describe() Description

	// Configure reads a providerConfig, strictly; raw is nil if there is none. Faults
	// are below at, and name what is allowed. The payload is that of the type, or nil
	// where only the syntax is of interest.
	Configure(raw []byte, p *payload.RuntimePayload, at *field.Path) (Settings, field.ErrorList)

	// Suits says whether a type of machine can run it. What nobody can tell by the
	// name is a warning: the node's devices decide.
	Suits(m Machine, at *field.Path) (*field.Error, string)
}

// Machine is a type of machine. A name says something only together with who rents
// the machines out: two may call different ones the same.
type Machine struct {
	Type string
	// Provider is by Gardener's words, such as aws; "" if nobody says.
	Provider string
	// Virtual is what is known of such machines beside their name.
	Virtual Virtual
}

// Virtual says whether machines can run virtual machines, by something that goes before
// their name.
type Virtual struct {
	Says Answer
	// By is who says so, as a sentence about the machines, and Instead what to do if
	// they cannot, also by their name. By of an unknown answer is why it is doubtful that
	// they can.
	By, Instead string
}

// Answer is what is known of a question.
type Answer int

// The answers; Unknown is that of who was not asked, or does not say.
const (
	Unknown Answer = iota
	Yes
	No
)

// Description is what a type is.
type Description struct {
	// Type is a DNS label, and Aliases are what it may be called as well.
	Type    string
	Aliases []string
	// ClassNames are the RuntimeClasses of handlers; that of another handler has the
	// handler's name.
	ClassNames map[string]string
	// Isolation is what the classes offer, by the words of policies.
	Isolation v1alpha1.Isolation
	// Overhead is that of a pod, by handler, and by "" for all others. What the
	// payload or a providerConfig says goes before it.
	Overhead map[string]corev1.ResourceList
}

// Settings are what a providerConfig comes to.
type Settings struct {
	// Install is for the installer on the nodes.
	Install payload.InstallSettings
	// Overhead is that of a pod on all handlers, if it is not empty.
	Overhead corev1.ResourceList
}

// Class is a RuntimeClass that a runtime is to have.
type Class struct {
	Name, Handler string
	Isolation     v1alpha1.Isolation
	Overhead      corev1.ResourceList
}

// Classes are the RuntimeClasses of a payload under some settings.
func Classes(d Description, p *payload.RuntimePayload, s Settings) ([]Class, error) {
	var out []Class
	for i := range p.Handlers {
		h := &p.Handlers[i]
		if len(s.Install.Handlers) > 0 && !slices.Contains(s.Install.Handlers, h.Name) {
			continue
		}
		overhead, err := overheadOf(d, p, s, h)
		if err != nil {
			return nil, fmt.Errorf("read the overhead of handler %s: %w", h.Name, err)
		}
		name := d.ClassNames[h.Name]
		if name == "" {
			name = h.Name
		}
		out = append(out, Class{Name: name, Handler: h.Name, Isolation: d.Isolation, Overhead: overhead})
	}
	return out, nil
}

// Below are those of the classes of a payload whose handlers a CRI runtime can have.
func Below(cri v1alpha1.CRIName, classes []Class, p *payload.RuntimePayload) []Class {
	return slices.DeleteFunc(slices.Clone(classes), func(c Class) bool {
		return !slices.ContainsFunc(p.Handlers, func(h payload.Handler) bool { return h.Name == c.Handler && cri.Runs(&h) })
	})
}

// Amounts is resources for people, always in the same order.
func Amounts(r corev1.ResourceList) string {
	if len(r) == 0 {
		return "none"
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(r)) {
		amount := r[name]
		out = append(out, string(name)+"="+amount.String())
	}
	return strings.Join(out, ",")
}

func overheadOf(d Description, p *payload.RuntimePayload, s Settings, h *payload.Handler) (corev1.ResourceList, error) {
	switch {
	case len(s.Overhead) > 0:
		return s.Overhead, nil
	case len(h.Overhead) > 0:
		return Resources(h.Overhead)
	case len(p.Overhead) > 0:
		return Resources(p.Overhead)
	case d.Overhead[h.Name] != nil:
		return d.Overhead[h.Name], nil
	}
	return d.Overhead[""], nil
}

// Set is the types that there are.
type Set struct{ all []Plugin }

// NewSet is a set of these; two of one name make it panic, as only a program that
// is built wrong has them.
func NewSet(all ...Plugin) Set {
	seen := map[string]bool{}
	for _, p := range all {
		d := p.Describe()
		for _, name := range append([]string{d.Type}, d.Aliases...) {
			if seen[name] {
				panic("plugin: two types are called " + name)
			}
			seen[name] = true
		}
	}
	return Set{all}
}

// All are the plugins.
func (s Set) All() []Plugin { return s.all }

// Lookup finds a type by its name or an alias; nil is none.
func (s Set) Lookup(name string) Plugin {
	for _, p := range s.all {
		if d := p.Describe(); d.Type == name || slices.Contains(d.Aliases, name) {
			return p
		}
	}
	return nil
}

// Canonical is the name of a type that may be given by an alias. One that is not in
// the set is somebody else's, and has its own name.
func (s Set) Canonical(name string) string {
	if p := s.Lookup(name); p != nil {
		return p.Describe().Type
	}
	return name
}

// Names are the types, with their aliases in brackets.
func (s Set) Names() []string {
	var out []string
	for _, p := range s.all {
		d := p.Describe()
		name := d.Type
		for _, alias := range d.Aliases {
			name += " (" + alias + ")"
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
