package v1alpha1

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// shape is what Gardener's own CRD has: every field with its type, and "!" where
// it is required. Objects that keep unknown fields are "any".
const shape = `
spec! object
spec.binaryPath! string
spec.class string
spec.providerConfig any
spec.type! string
spec.workerPool! object
spec.workerPool.name! string
spec.workerPool.selector! object
spec.workerPool.selector.matchExpressions array
spec.workerPool.selector.matchExpressions[].key! string
spec.workerPool.selector.matchExpressions[].operator! string
spec.workerPool.selector.matchExpressions[].values array
spec.workerPool.selector.matchExpressions[].values[] string
spec.workerPool.selector.matchLabels object
status object
status.conditions array
status.conditions[].codes array
status.conditions[].codes[] string
status.conditions[].lastTransitionTime! string
status.conditions[].lastUpdateTime! string
status.conditions[].message! string
status.conditions[].reason! string
status.conditions[].status! string
status.conditions[].type! string
status.lastError object
status.lastError.codes array
status.lastError.codes[] string
status.lastError.description! string
status.lastError.lastUpdateTime string
status.lastError.taskID string
status.lastOperation object
status.lastOperation.description! string
status.lastOperation.lastUpdateTime! string
status.lastOperation.progress! integer
status.lastOperation.state! string
status.lastOperation.type! string
status.observedGeneration integer
status.providerStatus any
status.resources array
status.resources[].name! string
status.resources[].resourceRef! object
status.resources[].resourceRef.apiVersion string
status.resources[].resourceRef.kind! string
status.resources[].resourceRef.name! string
status.state any
`

// openAPI is as much of OpenAPI as is compared.
type openAPI struct {
	Type       string             `json:"type"`
	Any        bool               `json:"x-kubernetes-preserve-unknown-fields"`
	Required   []string           `json:"required"`
	Properties map[string]openAPI `json:"properties"`
	Items      *openAPI           `json:"items"`
}

func (s openAPI) lines(at string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p, path, mark := s.Properties[name], at+name, ""
		if slices.Contains(s.Required, name) {
			mark = "!"
		}
		kind := p.Type
		if p.Any {
			kind = "any"
		}
		out = append(out, path+mark+" "+kind)
		for p.Items != nil {
			path += "[]"
			if p.Items.Type != "object" {
				out = append(out, path+" "+p.Items.Type)
			}
			p = *p.Items
		}
		out = append(out, p.lines(path+".")...)
	}
	return out
}

func TestCRDIsGardeners(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/crds/gardener/extensions.gardener.cloud_containerruntimes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Metadata struct{ Name string }
		Spec     struct {
			Scope string
			Names struct {
				Kind, Plural string
				ShortNames   []string
			}
			Versions []struct {
				Name            string
				Served, Storage bool
				Subresources    map[string]any
				Schema          struct{ OpenAPIV3Schema openAPI }
			}
		}
	}
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	spec := crd.Spec
	if crd.Metadata.Name != "containerruntimes.extensions.gardener.cloud" || spec.Scope != "Namespaced" || spec.Names.Kind != "ContainerRuntime" || !slices.Equal(spec.Names.ShortNames, []string{"cr"}) {
		t.Errorf("%s: %+v", crd.Metadata.Name, spec.Names)
	}
	if len(spec.Versions) != 1 || spec.Versions[0].Name != "v1alpha1" || !spec.Versions[0].Served || !spec.Versions[0].Storage || spec.Versions[0].Subresources["status"] == nil {
		t.Fatalf("versions: %+v", spec.Versions)
	}
	root := spec.Versions[0].Schema.OpenAPIV3Schema
	for _, own := range []string{"apiVersion", "kind", "metadata"} {
		delete(root.Properties, own)
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(shape), "\n"), root.lines("")); diff != "" {
		t.Errorf("not Gardener's (-), but ours (+):\n%s", diff)
	}
}
