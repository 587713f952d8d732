package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/test/apiserver"
	"fairlead.run/test/node"
)

// TestHandlersArePublished wants a Node to say what the daemon says, and no more
// to be written than changes.
func TestHandlersArePublished(t *testing.T) {
	nodes := apiserver.Resource{Path: "api/v1/nodes", Kind: "Node"}
	server := apiserver.New(t, nodes)
	server.Put(nodes, corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "here", Labels: map[string]string{"zone": "a", "handler.fairlead.run/gone": "true"}},
	})
	kubeconfig := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n", server.Config().Host)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n := node.Start(t, "")
	for _, h := range node.Handlers {
		if out, err := n.CLI("handlers", "verify", h); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	publish := func(name string) (string, error) {
		return n.CLI("handlers", "publish", "--once", "--kubeconfig", kubeconfig, "--node", name)
	}
	out, err := publish("HERE")
	if err != nil || !strings.Contains(out, "node here: crun (") {
		t.Fatalf("%v: %s", err, out)
	}
	meta := server.Get(nodes, "here")["metadata"].(map[string]any)
	labels, annotations := meta["labels"].(map[string]any), meta["annotations"].(map[string]any)
	for _, h := range node.Handlers {
		features, _ := annotations["features.fairlead.run/"+h].(string)
		if labels["handler.fairlead.run/"+h] != "true" || !strings.Contains(features, "seccomp") {
			t.Errorf("handler %s: labels %v, annotations %v", h, labels, annotations)
		}
	}
	if _, ok := labels["handler.fairlead.run/gone"]; ok || labels["zone"] != "a" {
		t.Errorf("labels %v", labels)
	}
	patches := func() int { return server.Count(func(c apiserver.Call) bool { return c.Verb == "patch" }) }
	before := patches()
	if out, err := publish("here"); err != nil || out != "" || patches() != before {
		t.Errorf("wrote again, though nothing had changed: %q, %v", out, err)
	}
	if _, err := publish("elsewhere"); err == nil || !strings.Contains(err.Error(), "get node elsewhere") {
		t.Errorf("a node that does not exist: %v", err)
	}
}
