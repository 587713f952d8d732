package e2e_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"fairlead.run/test/classtable"
)

// The API server gives the answers that pkg/runtimeclass gives: it refuses the same
// RuntimeClasses, for the same fields.
func TestClassTable(t *testing.T) {
	cfg, err := clientcmd.BuildConfigFromFlags("", node.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	classes := &classClient{t: t, http: c, url: cfg.Host + "/apis/node.k8s.io/v1/runtimeclasses"}
	for _, entry := range classtable.All() {
		t.Run(entry.Name, func(t *testing.T) {
			classes.t = t
			refused := classes.send(entry)
			if got, want := faults(refused), entry.AtServer(); !slices.Equal(got, want) {
				t.Errorf("refused for %q, want %q: %+v", got, want, refused)
			}
		})
	}
}

// classClient asks an API server for changes of RuntimeClasses.
type classClient struct {
	t    *testing.T
	http *http.Client
	url  string
}

// send asks for the change of a case, which the server then does not make.
func (c *classClient) send(entry classtable.Case) *metav1.Status {
	c.t.Helper()
	if entry.Old == nil {
		_, refused := c.do(http.MethodPost, "?dryRun=All", entry.Class)
		return refused
	}
	old, refused := c.do(http.MethodPost, "", entry.Old)
	if refused != nil {
		c.t.Fatalf("the class that is to be changed: %+v", refused)
	}
	defer func() {
		if _, refused := c.do(http.MethodDelete, "/"+entry.Old.Name, nil); refused != nil {
			c.t.Errorf("%+v", refused)
		}
	}()
	changed := entry.Class.DeepCopy()
	changed.ResourceVersion = old.ResourceVersion
	_, refused = c.do(http.MethodPut, "/"+entry.Old.Name+"?dryRun=All", changed)
	return refused
}

// do returns what a request has made, or why the server refuses it.
func (c *classClient) do(method, path string, class *nodev1.RuntimeClass) (made nodev1.RuntimeClass, refused *metav1.Status) {
	c.t.Helper()
	body, err := json.Marshal(class)
	if err != nil {
		c.t.Fatal(err)
	}
	if class == nil {
		body = nil
	}
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	var answer any = &made
	if res.StatusCode >= http.StatusBadRequest {
		refused = &metav1.Status{}
		answer = refused
	}
	if err := json.NewDecoder(res.Body).Decode(answer); err != nil {
		c.t.Fatalf("%s: %v", res.Status, err)
	}
	return made, refused
}

// faults are the fields that a server has refused an object for, sorted, each once.
func faults(refused *metav1.Status) (out []string) {
	if refused == nil {
		return nil
	}
	if refused.Details != nil {
		for _, cause := range refused.Details.Causes {
			out = append(out, cause.Field)
		}
	}
	if len(out) == 0 {
		return []string{"none that the server names"}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
