package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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

// What may be read is shown, and what may not is said.
func TestClassesOfAClusterInPart(t *testing.T) {
	s, config := aCluster(t, policyResource)
	refuse := func(code int, resources ...string) {
		s.FailWith(func(c apiserver.Call) int {
			if slices.Contains(resources, c.Resource) && c.Verb == "list" {
				return code
			}
			return 0
		})
	}
	refuse(http.StatusForbidden, "nodes", "pods", "namespaces", "runtimeclasspolicies")
	r := command(t, "", "classes", "list", "--kubeconfig", config)
	if r.code != 0 || !strings.Contains(strings.Join(strings.Fields(r.out), " "), "gvisor runsc none - ? ? ") || strings.Count(r.err, "fairlead: list ") != 4 {
		t.Errorf("list: %+v", r)
	}
	r = command(t, "", "classes", "list", "--kubeconfig", config, "-o", "json")
	if r.code != 0 || !strings.Contains(strings.Join(strings.Fields(r.out), ""), `"unknown":["nodes","pods"]`) {
		t.Errorf("list as JSON: %+v", r)
	}
	r = command(t, "", "classes", "explain", "--kubeconfig", config, "-n", "ci", "pod/build")
	if r.code != 1 || !strings.Contains(r.out, "Pod ci/build: nodes cannot be read") || !strings.Contains(r.out, "warning: pods cannot be read") {
		t.Errorf("explain a pod that may be got alone: %+v", r)
	}
	r = command(t, "", "classes", "explain", "--kubeconfig", config, "class/gvisor")
	if r.code != 1 || !strings.Contains(r.out, "RuntimeClass gvisor: nodes cannot be read") || !strings.Contains(r.out, "pods unknown") {
		t.Errorf("explain a class: %+v", r)
	}
	refuse(http.StatusForbidden, "runtimeclasses")
	if r = command(t, "", "classes", "list", "--kubeconfig", config); r.code != 1 || r.out != "" || !strings.Contains(r.err, "list runtimeclasses: ") {
		t.Errorf("list without classes: %+v", r)
	}
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {runtimeClassName: gvisor, containers: [{name: c, image: i}]}\n"
	if r = command(t, pod, "classes", "lint", "--kubeconfig", config, "-f", "-"); r.code != 0 || !strings.Contains(r.out, "warning: Pod default/a: spec.runtimeClassName") {
		t.Errorf("lint without classes: %+v", r)
	}
	refuse(http.StatusUnauthorized, "runtimeclasses")
	if r = command(t, "", "classes", "list", "--kubeconfig", config); r.code != 1 || !strings.Contains(r.err, "does not take the credentials of the kubeconfig; renew them") {
		t.Errorf("wrong credentials: %+v", r)
	}
}

// Names are strangers': they neither drive a terminal nor forge lines.
func TestClassesWriteNamesVisibly(t *testing.T) {
	const evil = "a\u001b[2J\u009b1m\nx.yaml:1: error: forged\u202e"
	text := `{"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass","metadata":{"name":"` + strings.NewReplacer("\n", `\n`, "\u001b", `\u001b`).Replace(evil) + `"},"handler":"x\ty"}` + "\n" +
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"a\nb"},"spec":{"runtimeClassName":"\u001b]0;x","containers":[]}}`
	for _, args := range [][]string{{"list", "-f", "-"}, {"lint", "-f", "-"}, {"explain", "-f", "-", "class/" + evil}, {"explain", "-f", "-", "-n", "a\nb", "p"}, {"explain", "-f", "-", evil + "?"}} {
		r := command(t, text, append([]string{"classes"}, args...)...)
		for _, bad := range []string{"\u001b", "\u009b", "\u202e", "\nx.yaml"} {
			if strings.Contains(r.out+r.err, bad) {
				t.Errorf("%q: %q is in %q", args, bad, r.out+r.err)
			}
		}
		if r.out == "" && args[0] != "explain" {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// brokenPipe is standard output that nobody reads any more.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestClassesIntoABrokenPipe(t *testing.T) {
	const text = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: Wrong_}\nhandler: x\n"
	for _, args := range [][]string{{"list"}, {"lint"}, {"explain", "Wrong_"}, {"list", "-o", "json"}, {"lint", "-o", "yaml"}} {
		var errs bytes.Buffer
		a := &app{version: "test", in: strings.NewReader(text), out: brokenPipe{}, err: &errs}
		if code := a.run(t.Context(), append([]string{"classes"}, append(args, "-f", "-")...)); code != 1 || !strings.Contains(errs.String(), "broken pipe") {
			t.Errorf("%q: code %d, %s", args, code, errs.String())
		}
	}
}

// A name alone is a pod's; that a class has it, too, is said. Kinds are written as
// kubectl has them.
func TestClassesExplainNames(t *testing.T) {
	const both = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: a}\nhandler: x\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: web}\nspec: {nodeName: n1, runtimeClassName: a}\n"
	for arg, want := range map[string]ran{
		"a":                           {0, "Pod web/a: it has node n1", "there is a RuntimeClass of that name, too: class/a"},
		"pods/a":                      {0, "Pod web/a: ", ""},
		"runtimeclass.node.k8s.io/a":  {1, "RuntimeClass a: 0/0 nodes", ""},
		"pod/b":                       {1, "", "there is no pod web/b"},
		"pod/":                        {2, "", "write pod/NAME or class/NAME"},
		"pod/web/a":                   {2, "", "and the namespace with -n"},
		"deployment/a":                {2, "", "write pod/NAME or class/NAME"},
		"b":                           {1, "", `there is no pod web/b; there is no RuntimeClass "b"; there is only a; did you mean a?`},
		"runtimeclasses/a-b-c-d-efgh": {1, "", `there is no RuntimeClass "a-b-c-d-efgh"; there is only a`},
	} {
		r := command(t, both, "classes", "explain", "-n", "web", "-f", "-", arg)
		if r.code != want.code || !strings.Contains(r.out, want.out) || !strings.Contains(r.err, want.err) || (want.err == "") != (r.err == "") {
			t.Errorf("%s: %+v, want %+v", arg, r, want)
		}
	}
}

// A command that waits for standard input ends with its context, as by Ctrl-C.
func TestClassesAreInterrupted(t *testing.T) {
	in, hold := io.Pipe()
	defer hold.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	a := &app{version: "test", in: in, out: &out, err: &errs}
	if code := a.run(ctx, []string{"classes", "lint", "-f", "-"}); code != exitInterrupt || out.Len() > 0 {
		t.Errorf("code %d, %s %s", code, &out, &errs)
	}
}

// What of a folder cannot be read is told beside the answer, and not all of it.
func TestClassesTellFaults(t *testing.T) {
	text := "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: a}\nhandler: x\n" + strings.Repeat("---\na: [\n", 15)
	r := command(t, text, "classes", "list", "-f", "-")
	if r.code != 0 || !strings.Contains(r.out, "a       x") || strings.Count(r.err, "standard input:") != mostFaults || !strings.Contains(r.err, "5 more cannot be read") {
		t.Errorf("%+v", r)
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
		"a name that is none":   {[]string{"explain", "-f", dir, "x"}, 1, "", `there is no pod default/x; there is no RuntimeClass "x"; there is only native`},
		"an output that is not": {[]string{"list", "-f", dir, "-o", "xml"}, 2, "", "-o xml is not one of table, json, yaml"},
		"nothing as JSON":       {[]string{"list", "-f", t.TempDir(), "-o", "json"}, 0, "[]\n", ""},
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
