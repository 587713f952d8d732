package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// api is a client of the API server that sees all of an answer, as kubectl does not
// show it: the code, the warnings, and the cause of a refusal.
type api struct {
	http *http.Client
	host string
}

// answer is what the API server said.
type answer struct {
	code     int
	warnings []string
	body     []byte
}

func (a answer) ok() bool { return a.code < http.StatusBadRequest }

// String is for what a test says.
func (a answer) String() string { return fmt.Sprintf("%d %.600s", a.code, a.body) }

func newAPI(t *testing.T) *api {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", node.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &api{client, cfg.Host}
}

// do sends a request. A body for PATCH is a merge patch.
func (a *api) do(ctx context.Context, method, path string, body any) (answer, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return answer{}, err
	}
	if body == nil {
		text = nil
	}
	req, err := http.NewRequestWithContext(ctx, method, a.host+path, bytes.NewReader(text))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	res, err := a.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	out := answer{code: res.StatusCode, warnings: res.Header.Values("Warning")}
	out.body, err = io.ReadAll(res.Body)
	return out, err
}

// ask is do where no answer is a failure of the test.
func (a *api) ask(t *testing.T, method, path string, body any) answer {
	t.Helper()
	out, err := a.do(t.Context(), method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// must is ask where a refusal is a failure of the test, too. It reads the answer
// into a value, if there is one.
func (a *api) must(t *testing.T, method, path string, body, into any) {
	t.Helper()
	out := a.ask(t, method, path, body)
	if !out.ok() {
		t.Fatalf("%s %s: %s", method, path, out)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(out.body, into); err != nil {
		t.Fatal(err)
	}
}

// object is any object of the API, as it is written.
type object = map[string]any

// podsOf is the path of the pods of a namespace.
func podsOf(namespace string) string { return "/api/v1/namespaces/" + namespace + "/pods" }

// namespaceFor makes a namespace that goes with the test.
func (a *api) namespaceFor(t *testing.T, name string, labels object) {
	t.Helper()
	a.must(t, http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": name, "labels": labels}}, nil)
	t.Cleanup(func() {
		for _, args := range [][]string{
			{"delete", "pod", "-n", name, "--all", "--force", "--grace-period=0", "--wait=false"},
			{"delete", "namespace", name, "--timeout", patience.String()},
		} {
			if _, err := node.Kubectl(context.Background(), args...); err != nil {
				t.Error(err)
			}
		}
	})
	// Pods need it, and a controller makes it.
	eventually(t, func() error {
		if got := a.ask(t, http.MethodGet, "/api/v1/namespaces/"+name+"/serviceaccounts/default", nil); !got.ok() {
			return fmt.Errorf("the service account of namespace %s: %s", name, got)
		}
		return nil
	})
}

// classFor makes a class that goes with the test.
func (a *api) classFor(t *testing.T, class object) answer {
	t.Helper()
	const classes = "/apis/node.k8s.io/v1/runtimeclasses"
	name, _ := class["metadata"].(object)["name"].(string)
	got := a.ask(t, http.MethodPost, classes, class)
	if !got.ok() {
		t.Fatalf("make class %s: %s", name, got)
	}
	t.Cleanup(func() {
		if got, err := a.do(context.Background(), http.MethodDelete, classes+"/"+name, nil); err != nil || !got.ok() {
			t.Errorf("delete class %s: %v %s", name, err, got)
		}
	})
	return got
}
