package validate

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.run/internal/operator/plugin"
)

// Capability is what a CloudProfile's machine types have among their capabilities if they
// can run virtual machines. Gardener has a name for none but the architecture: each
// landscape has its own. The zero value is none.
type Capability struct{ Name, Value string }

// DefaultCapability is for landscapes that have no name for it yet.
const DefaultCapability = "nestedVirtualization=supported"

// ParseCapability reads NAME=VALUE; nothing is no capability.
func ParseCapability(text string) (Capability, error) {
	name, value, ok := strings.Cut(text, "=")
	if text != "" && (!ok || name == "" || value == "" || strings.ContainsAny(text, " \t\n") || strings.Contains(value, "=")) {
		return Capability{}, fmt.Errorf("is not NAME=VALUE, as in %s, nor empty for none", DefaultCapability)
	}
	return Capability{name, value}, nil
}

// ProfileMachine is a machine type of a profile.
type ProfileMachine struct {
	Name         string              `json:"name"`
	Architecture string              `json:"architecture"`
	Usable       *bool               `json:"usable"`
	Capabilities map[string][]string `json:"capabilities"`
}

// has says whether a machine type states a capability and has the value. What it leaves out
// Gardener takes for every value that there is, so that it fits all images; of the
// machine itself that tells nothing.
func (m *ProfileMachine) has(c Capability) plugin.Answer {
	switch values, stated := m.Capabilities[c.Name]; {
	case c.Name == "" || !stated || len(values) == 0:
		return plugin.Unknown
	case slices.Contains(values, c.Value):
		return plugin.Yes
	}
	return plugin.No
}

// virtual is what a profile states of the machines of a worker group; nil states nothing.
func (p *CloudProfile) virtual(c Capability, w *Worker) plugin.Virtual {
	if p == nil {
		return plugin.Virtual{}
	}
	at := slices.IndexFunc(p.Machines, func(m ProfileMachine) bool { return m.Name == w.Machine.Type })
	if at < 0 {
		return plugin.Virtual{} // Gardener refuses it
	}
	m := &p.Machines[at]
	out := plugin.Virtual{Says: m.has(c)}
	if out.Says == plugin.No {
		out.By = fmt.Sprintf("%s gives it the capability %s: %s, and not %s", p.Ref, c.Name, strings.Join(m.Capabilities[c.Name], ", "), c.Value)
		out.Instead = p.instead(c, w)
	}
	return out
}

// instead is what to do about a machine type without a capability.
func (p *CloudProfile) instead(c Capability, w *Worker) string {
	var fitting []string
	for i := range p.Machines {
		m := &p.Machines[i]
		offered := m.Usable == nil || *m.Usable
		if offered && m.has(c) == plugin.Yes && (m.Architecture == "" || m.Architecture == w.architecture()) {
			fitting = append(fitting, m.Name)
		}
	}
	if len(fitting) == 0 {
		return "no machine type there states that it has it; have who runs the landscape correct spec.machineTypes[].capabilities"
	}
	return "choose one that has it: " + shortened(fitting)
}

// others are the machine types that a worker group could have instead of its own, with what
// is stated of them; nil where there is no profile.
func (p *CloudProfile) others(c Capability, provider string, w *Worker) []plugin.Machine {
	if p == nil || len(p.Machines) == 0 {
		return nil
	}
	out := []plugin.Machine{}
	for i := range p.Machines {
		m := &p.Machines[i]
		if offered := m.Usable == nil || *m.Usable; offered && m.Name != w.Machine.Type && (m.Architecture == "" || m.Architecture == w.architecture()) {
			out = append(out, plugin.Machine{Type: m.Name, Provider: provider, Virtual: plugin.Virtual{Says: m.has(c)}})
		}
	}
	return out
}

// OfMachine says that a fault is about a machine type, of which a profile may say otherwise.
func OfMachine(f *field.Error) bool { return strings.HasSuffix(f.Field, ".machine.type") }
