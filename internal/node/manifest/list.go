package manifest

import (
	"encoding/json"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"fairlead.run/internal/node/manifest/fields"
)

// isList says whether the document is what kubectl get writes for several
// objects.
func (d *document) isList() bool {
	return d.tree["apiVersion"] == "v1" && (d.tree["kind"] == "List" || d.tree["kind"] == podList)
}

// podList is a list of pods alone, which need not say that they are pods. It is what a
// kubelet takes from an address.
const podList = "PodList"

// asPod has an item of a PodList say what it is.
func (d *document) asPod() error {
	for name, value := range map[string]any{"apiVersion": "v1", "kind": "Pod"} {
		if fields.IsZero(d.tree[name]) {
			d.tree[name] = value
		}
	}
	if d.tree["apiVersion"] != "v1" || d.tree["kind"] != "Pod" {
		return d.fault(d.lineOf("kind"), "is not a Pod of v1; a %s holds only these: write kind: List for objects of several kinds", podList)
	}
	text, err := json.Marshal(d.tree)
	if err != nil {
		return d.fault(d.first(), "cannot be written as JSON: %v", err)
	}
	d.json = text
	return nil
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
		if d.tree["kind"] == podList {
			if err := item.asPod(); err != nil {
				return nil, err
			}
		}
		out[i] = item
	}
	return out, nil
}
