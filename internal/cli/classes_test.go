package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/test/apiserver"
)

// ran is a command's exit code and what it wrote.
type ran struct {
	code     int
	out, err string
}

func command(t *testing.T, stdin string, args ...string) ran {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{version: "test", in: strings.NewReader(stdin), out: &out, err: &errs}
	code := a.run(t.Context(), args)
	return ran{code, out.String(), errs.String()}
}

var (
	classResource  = apiserver.Resource{Path: "apis/node.k8s.io/v1/runtimeclasses", Kind: "RuntimeClass"}
	nodeResource   = apiserver.Resource{Path: "api/v1/nodes", Kind: "Node"}
	podResource    = apiserver.Resource{Path: "api/v1/pods", Kind: "Pod", Namespaced: true}
	spaceResource  = apiserver.Resource{Path: "api/v1/namespaces", Kind: "Namespace"}
	policyResource = apiserver.Resource{Path: "apis/fairlead.run/v1alpha1/runtimeclasspolicies", Kind: "RuntimeClassPolicy"}
)

// aCluster has one class, one node that has it, one that has not, and a pod that
// waits. It returns its kubeconfig.
func aCluster(t *testing.T, resources ...apiserver.Resource) (*apiserver.Server, string) {
	t.Helper()
	s := apiserver.New(t, append(resources, classResource, nodeResource, podResource, spaceResource)...)
	s.Put(classResource, nodev1.RuntimeClass{TypeMeta: metav1.TypeMeta{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"}, ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "runsc"})
	for name, handler := range map[string]string{"n1": "runsc", "n2": "runc"} {
		n := corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.RuntimeHandlers = []corev1.NodeRuntimeHandler{{Name: handler}}
		s.Put(nodeResource, n)
	}
	class := "gvisor"
	s.Put(podResource, corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "build"},
		Spec: corev1.PodSpec{RuntimeClassName: &class, NodeSelector: map[string]string{"disk": "ssd"}},
	})
	file := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n", s.Config().Host)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, file
}

func TestClassesOfACluster(t *testing.T) {
	for name, resources := range map[string][]apiserver.Resource{"with policies": {policyResource}, "without their CRD": nil} {
		t.Run(name, func(t *testing.T) {
			_, config := aCluster(t, resources...)
			r := command(t, "", "classes", "list", "--kubeconfig", config)
			if r.code != 0 || !strings.Contains(strings.Join(strings.Fields(r.out), " "), "gvisor runsc none - 1/2 1 ") {
				t.Errorf("list: %+v", r)
			}
			r = command(t, "", "classes", "explain", "--kubeconfig", config, "-n", "ci", "build")
			if r.code != 1 || !strings.Contains(r.out, "0/2 nodes: 1 does not match RuntimeClass gvisor (no runtime handler runsc), 1 does not match the pod's nodeSelector (no node label disk=ssd)") || r.err != "" {
				t.Errorf("explain a pod: %+v", r)
			}
			r = command(t, "", "classes", "explain", "--kubeconfig", config, "gvisor", "-o", "json")
			var class struct{ Handler, Sentence string }
			if err := json.Unmarshal([]byte(r.out), &class); err != nil || r.code != 0 || class.Handler != "runsc" {
				t.Errorf("explain a class: %+v, %v", r, err)
			}
			r = command(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {runtimeClassName: gviso, containers: [{name: c, image: i}]}\n", "classes", "lint", "--kubeconfig", config, "-f", "-")
			if r.code != 1 || !strings.Contains(r.out, `standard input:4: error: Pod default/a: spec.runtimeClassName: there is no RuntimeClass "gviso"; there is only gvisor; did you mean gvisor? [ClassMissing]`) {
				t.Errorf("lint: %+v", r)
			}
		})
	}
}

func TestClassesOfManifests(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: native}\nhandler: runc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string
		code int
		out  string
		err  string
	}{
		"list":                  {[]string{"list", "-f", dir}, 0, "native   runc", ""},
		"lint":                  {[]string{"lint", "-f", dir}, 0, "", "0 errors, 0 warnings in 1 objects; 0 of other kinds"},
		"lint as JSON":          {[]string{"lint", "-f", dir, "-o", "json"}, 0, "[]\n", ""},
		"lint nothing":          {[]string{"lint"}, 2, "", "say what to look at with -f PATH"},
		"a kind that is none":   {[]string{"explain", "-f", dir, "node/x"}, 2, "", "write pod/NAME or class/NAME"},
		"a name that is none":   {[]string{"explain", "-f", dir, "x"}, 1, "", "there is neither a pod default/x nor a RuntimeClass x"},
		"an output that is not": {[]string{"list", "-f", dir, "-o", "xml"}, 2, "", "-o xml is not one of table, json, yaml"},
		"a file that is not":    {[]string{"list", "-f", dir + "/none"}, 1, "", "none: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			r := command(t, "", append([]string{"classes"}, tt.args...)...)
			if r.code != tt.code || !strings.Contains(r.out, tt.out) || !strings.Contains(r.err, tt.err) {
				t.Errorf("%+v, want %+v", r, tt)
			}
		})
	}
}
