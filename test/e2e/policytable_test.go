package e2e_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.run/test/classtable"
)

// The CRD has an API server refuse what policy.Compile refuses, but for what no
// schema can say.
func TestPolicyTable(t *testing.T) {
	crds, err := filepath.Abs("../../deploy/crds")
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "--server-side", "-f", crds)
	defer kubectl(t, "delete", "-f", crds)
	kubectl(t, "wait", "--for=condition=Established", "crd/runtimeclasspolicies.fairlead.run")
	cfg, err := clientcmd.BuildConfigFromFlags("", node.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	create := func(t *testing.T, body []byte) (*metav1.Status, int) {
		url := cfg.Host + "/apis/fairlead.run/v1alpha1/runtimeclasspolicies?dryRun=All&fieldValidation=Strict"
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var status metav1.Status
		if err := json.NewDecoder(res.Body).Decode(&status); err != nil {
			t.Fatalf("%s: %v", res.Status, err)
		}
		if res.StatusCode < http.StatusBadRequest {
			return nil, res.StatusCode
		}
		return &status, res.StatusCode
	}
	for _, c := range classtable.Policies() {
		t.Run(c.Name, func(t *testing.T) {
			body, err := json.Marshal(c.Policy)
			if err != nil {
				t.Fatal(err)
			}
			refused, _ := create(t, body)
			// Of no field it is that its rules were not tried, as the schema was broken.
			got := slices.DeleteFunc(faults(refused), func(field string) bool { return field == "<nil>" })
			if want := c.AtServer(); !slices.Equal(got, want) {
				t.Errorf("refused for %q, want %q: %+v", got, want, refused)
			}
		})
	}
	t.Run("an unknown field", func(t *testing.T) {
		body := `{"apiVersion":"fairlead.run/v1alpha1","kind":"RuntimeClassPolicy","metadata":{"name":"x"},"spec":{"namespaceSelector":{},"defaultClass":"a","defaultClas":"b"}}`
		if refused, code := create(t, []byte(body)); refused == nil || code != http.StatusBadRequest {
			t.Errorf("answered with %d: %+v", code, refused)
		}
	})
	t.Run("the example of the guide", func(t *testing.T) {
		guide, err := os.ReadFile("../../docs/policies.md")
		if err != nil {
			t.Fatal(err)
		}
		_, example, _ := bytes.Cut(guide, []byte("```yaml\n"))
		example, _, _ = bytes.Cut(example, []byte("```"))
		file := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(file, example, 0o600); err != nil {
			t.Fatal(err)
		}
		kubectl(t, "apply", "--dry-run=server", "--validate=strict", "-f", file)
	})
}
