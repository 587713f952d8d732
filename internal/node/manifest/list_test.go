package manifest

import (
	"strings"
	"testing"
)

func list(items ...string) string {
	text := "# by kubectl\napiVersion: v1\nkind: List\nmetadata: {resourceVersion: \"\"}\nitems:\n"
	for _, item := range items {
		text += "- " + strings.ReplaceAll(strings.TrimSuffix(item, "\n"), "\n", "\n  ") + "\n"
	}
	return text
}

func TestList(t *testing.T) {
	o, err := decode(list(onePod, deployment("apps/v1", 2), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Pods) != 3 || len(o.ConfigMaps) != 1 {
		t.Errorf("%d pods, %d config maps", len(o.Pods), len(o.ConfigMaps))
	}
	if got := o.Pods[1].Origin; got != "web.yaml:14: document 1, item 2: Deployment default/d" {
		t.Errorf("the second item is at %q", got)
	}
	if o, err := decode(list()); err != nil || len(o.Pods) != 0 {
		t.Errorf("an empty list: %v", err)
	}
}

// TestPodList takes what a kubelet takes from an address: pods that need not say that
// they are pods.
func TestPodList(t *testing.T) {
	text := strings.Replace(list("metadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n", onePod), "kind: List", "kind: PodList", 1)
	o, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Pods) != 2 || o.Pods[0].Name != "a" || o.Pods[1].Origin != "web.yaml:8: document 1, item 2: Pod default/web" {
		t.Errorf("%+v", o.Pods)
	}
	if o, err := decode(`{"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}`); err != nil || len(o.Pods) != 0 {
		t.Errorf("an empty list: %v", err)
	}
	singles, err := Singles(Source{"web.yaml", []byte(text)})
	if err != nil || len(singles) != 2 || singles[0].Kind != "Pod" || !strings.Contains(string(singles[0].Text), "kind: Pod\n") {
		t.Errorf("one by one: %q, %v", singles, err)
	}
}

func TestListRefusals(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{list(onePod, strings.Replace(onePod, "image:", "imagee:", 1)), "web.yaml:21: document 1, item 2: Pod default/web: spec.containers[0].imagee: is not a field"},
		{list(onePod, onePod), "web.yaml:17: document 1, item 2: Pod default/web: is defined twice; the first is at web.yaml:6: document 1, item 1"},
		{list(onePod, list(onePod)), "document 1, item 2: List of v1 is not something Fairlead knows"},
		{list("3"), "web.yaml:6: document 1, item 1: is not an object"},
		{list("apiVersion: v1\nkind: Podd\n"), "web.yaml:7: document 1, item 1: Podd of v1 is not something"},
		{strings.Replace(list("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n"), "kind: List", "kind: PodList", 1), "web.yaml:7: document 1, item 1: is not a Pod of v1; a PodList holds only these"},
		{"apiVersion: v1\nkind: List\nitems: 3\n", "web.yaml:3: document 1: items: is not a list of objects"},
		{"apiVersion: v1\nkind: List\nitem: []\n", `web.yaml:3: document 1: List: unknown field "item"`},
		{`{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Pod", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}]}`, "item 1: Pod default/a: kind: duplicate field"},
	} {
		_, err := decode(tt.text)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v\nwant %q\nof\n%s", err, tt.want, tt.text)
		}
	}
}
