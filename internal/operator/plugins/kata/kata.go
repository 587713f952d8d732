// Package kata is the type kata-containers: each pod is a virtual machine.
package kata

import (
	"slices"

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
