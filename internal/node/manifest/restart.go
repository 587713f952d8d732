package manifest

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// restartedAt is where a workload has the time at which people wanted its pods made
// anew, by the annotation that kubectl rollout restart sets.
var restartedAt = []string{"spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt"}

// Restarted is a manifest of one workload with the time at which its pods are to be made
// anew, in RFC 3339. The text is written anew, without its comments.
func Restarted(text []byte, at string) ([]byte, error) {
	tree, err := treeOf(text)
	if err != nil {
		return nil, err
	}
	// An empty field is null, which has no place for others.
	for i := 1; i < len(restartedAt); i++ {
		if v, found, _ := unstructured.NestedFieldNoCopy(tree, restartedAt[:i]...); found && v == nil {
			unstructured.RemoveNestedField(tree, restartedAt[:i]...)
		}
	}
	if err := unstructured.SetNestedField(tree, at, restartedAt...); err != nil {
		return nil, fmt.Errorf("annotate the template: %w", err)
	}
	return yaml.Marshal(tree)
}

// RestartedAt is the time that a manifest has from Restarted; empty for none.
func RestartedAt(text []byte) string {
	tree, err := treeOf(text)
	if err != nil {
		return ""
	}
	at, _, _ := unstructured.NestedString(tree, restartedAt...)
	return at
}

func treeOf(text []byte) (tree map[string]any, err error) {
	if text, err = yaml.YAMLToJSON(text); err != nil {
		return nil, err
	}
	return tree, json.Unmarshal(text, &tree)
}
