package e2e_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// listed is a class as fairlead classes list has it.
type listed struct {
	Name, Handler, Isolation   string
	MatchingNodes, Nodes, Pods int
}

// fairlead classes reads a real cluster: one whose API server has a CRD of policies,
// and one whose has not.
func TestClassesCommand(t *testing.T) {
	classes := func(stdin string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(*fairlead, "fairlead"), append([]string{"classes"}, append(args, "--kubeconfig", node.Kubeconfig)...)...)
		cmd.Stdin = strings.NewReader(stdin)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		return string(out) + errs.String(), err
	}
	manifests := `apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: looked-at, labels: {fairlead.run/isolation: sandbox}}
handler: no-such-handler
overhead: {podFixed: {memory: 32Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: looked-at}
spec:
  runtimeClassName: looked-at
  containers: [{name: c, image: none}]
`
	apply(t, manifests)
	defer kubectlInput(t, manifests, "delete", "--now", "-f", "-")
	list := func() {
		t.Helper()
		out, err := classes("", "list", "-o", "json")
		var got []listed
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if want := (listed{Name: "looked-at", Handler: "no-such-handler", Isolation: "sandbox", Nodes: 1, Pods: 1}); err != nil || !slices.Contains(got, want) {
			t.Errorf("%v: %s", err, out)
		}
	}
	list()
	crds, err := filepath.Abs("../../deploy/crds")
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "--server-side", "-f", crds)
	defer kubectl(t, "delete", "-f", crds)
	kubectl(t, "wait", "--for=condition=Established", "crd/runtimeclasspolicies.fairlead.run")
	list()
	out, err := classes("", "explain", "class/looked-at")
	if err == nil || !strings.Contains(out, "0/1 nodes: 1 does not match RuntimeClass looked-at (no runtime handler no-such-handler)") {
		t.Errorf("explain: %v: %s", err, out)
	}
	out, err = classes(strings.ReplaceAll(manifests, "runtimeClassName: looked-at", "runtimeClassName: looked-up"), "lint", "-f", "-")
	if err == nil || !strings.Contains(out, "did you mean looked-at?") {
		t.Errorf("lint: %v: %s", err, out)
	}
}
