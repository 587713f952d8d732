// Package kata is the type kata-containers: each pod is a virtual machine.
package kata

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/plugin"
)

// New is the plugin.
func New() plugin.Plugin { return kata{} }

type kata struct{}

// Describe says what Kata Containers are. The overheads are those that kata-deploy
// 4.1 gives its classes: of the memory that a machine takes beside its containers.
func (kata) Describe() plugin.Description {
	small := amount("250m", "130Mi")
	return plugin.Description{
		Type: "kata-containers", Aliases: []string{"kata"}, Isolation: v1alpha1.IsolationVM,
		Overhead: map[string]corev1.ResourceList{
			"": amount("250m", "320Mi"), "kata-clh": small, "kata-fc": small, "kata-dragonball": small,
		},
	}
}

func amount(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

type config struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Handlers   []string          `json:"handlers"`
	Overhead   map[string]string `json:"overhead"`
}

var kind = plugin.Kind{Name: "KataConfiguration", Versions: []string{"kata.fairlead.run/v1alpha1"}}

// Configure takes which handlers are wanted of those that the payload has.
func (kata) Configure(raw []byte, p *payload.RuntimePayload, at *field.Path) (plugin.Settings, field.ErrorList) {
	var c config
	faults := plugin.Decode(raw, &c, []string{"apiVersion", "kind", "handlers", "overhead"}, at)
	faults = append(faults, kind.Check(c.APIVersion, c.Kind, at)...)
	for i, h := range c.Handlers {
		if slices.Contains(c.Handlers[:i], h) {
			faults = append(faults, field.Duplicate(at.Child("handlers").Index(i), h))
		}
	}
	overhead, more := plugin.CheckOverhead(c.Overhead, at.Child("overhead"))
	settings := plugin.Settings{Install: payload.InstallSettings{Handlers: c.Handlers}, Overhead: overhead}
	faults = append(faults, more...)
	if p != nil {
		faults = append(faults, settings.Install.CheckAgainst(p, at)...)
	}
	return settings, faults
}

var (
	// metal machines have the processor's own virtualisation.
	metal = regexp.MustCompile(`^[a-z0-9-]+\.metal(-[0-9a-z]+)?$`)
	// nested are families that pass virtualisation on once it is turned on: AWS from
	// the 8th generation of Intel's on.
	nested = regexp.MustCompile(`^[a-z]+8i(-flex|[a-z]*)\.[0-9a-z]+$`)
	// sized is how AWS names all its machines.
	sized = regexp.MustCompile(`^([a-z]+[0-9]+[a-z]*|[a-z]+-[0-9a-z]+)(-flex)?\.(nano|micro|small|medium|large|[0-9]*xlarge)$`)
)

// Suits has a table for AWS's machines, whose names tell it. All others have to be
// tried, and so have those of which nobody says that they are AWS's.
func (kata) Suits(m plugin.Machine, at *field.Path) (*field.Error, string) {
	machine := m.Type
	switch {
	case machine == "":
		return nil, ""
	case m.Provider == "":
		return nil, fmt.Sprintf("%s: nobody says whose machines of type %s are, so that nothing is known of them; give the provider beside it, such as aws; nodes without /dev/kvm will be refused", at, machine)
	case m.Provider != "aws":
	case metal.MatchString(machine):
		return nil, ""
	case nested.MatchString(machine):
		return nil, fmt.Sprintf("%s: machines of type %s can run virtual machines only if nested virtualisation is turned on for them; nodes without /dev/kvm will be refused", at, machine)
	case sized.MatchString(machine):
		family, _, _ := strings.Cut(machine, ".")
		return field.Invalid(at, machine, fmt.Sprintf("machines of type %s cannot run virtual machines, which kata-containers needs; choose one such as %s.metal, or take kata-containers off this pool", machine, family)), ""
	}
	return nil, fmt.Sprintf("%s: nothing is known of machines of type %s; nodes without /dev/kvm will be refused", at, machine)
}
