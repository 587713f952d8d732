package manifest

import (
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// isList says whether the document is what kubectl get writes for several
// objects.
func (d *document) isList() bool {
	return d.tree["apiVersion"] == "v1" && d.tree["kind"] == "List"
}

// items are the objects of a List, each with the lines that it stands at. The
// error is about the first thing that is wrong with the List itself.
func (d *document) items() ([]*document, error) {
	var list metav1.List
	strict, err := kjson.UnmarshalStrict(d.json, &list)
	if err != nil {
		return nil, d.fault(d.lineOf("items"), "items: is not a list of objects: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if len(strict) > 0 {
		return nil, d.fault(d.lineOf(quoted(strict[0].Error())), "List: %v", strict[0])
	}
	trees, _ := d.tree["items"].([]any)
	nodes, _, _ := d.find("items")
	out := make([]*document, len(trees))
	for i, tree := range trees {
		item := &document{source: d.source, number: d.number, item: i + 1, line: d.line, text: d.text, json: list.Items[i].Raw}
		if nodes != nil && i < len(nodes.Content) {
			item.root = &yamlv3.Node{Kind: yamlv3.DocumentNode, Content: nodes.Content[i : i+1 : i+1]}
		}
		var ok bool
		if item.tree, ok = tree.(map[string]any); !ok {
			return nil, item.fault(item.first(), "is not an object: it must start with apiVersion, kind and metadata")
		}
		out[i] = item
	}
	return out, nil
}
