package manifest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"fairlead.run/internal/node/manifest/check"
	"fairlead.run/internal/node/manifest/fields"
	"fairlead.run/internal/node/manifest/honoured"
	"fairlead.run/internal/node/manifest/leftout"
)

// without says what is missing for lack of a kind.
var without = map[string]string{
	"Namespace":      "namespaces need no object here",
	"Service":        "names of Services are not resolved here, and nothing is forwarded to its pods; use their addresses or a hostPort",
	"ServiceAccount": "there is no API server here that its token would be good for",
}

// ignored takes a kind that means nothing on one machine, so that manifests for a
// cluster can be used as they are.
func (d *decoder) ignored(doc *document, table []honoured.Field, _ string) {
	kind, _ := doc.tree["kind"].(string)
	t := &target{doc: doc, kind: kind}
	var out metav1.Object
	switch kind {
	case "Namespace":
		o := &corev1.Namespace{}
		t.meta, out = &o.ObjectMeta, o
	case "Service":
		o := &corev1.Service{}
		t.meta, out = &o.ObjectMeta, o
	default:
		o := &corev1.ServiceAccount{}
		t.meta, out = &o.ObjectMeta, o
	}
	if d.into(t, table, out) && d.add(t) {
		d.objects.Shown = append(d.objects.Shown, Shown{Kind: kind, Object: out, LeftOut: without[kind]})
		d.objects.Notes = append(d.objects.Notes, fmt.Sprintf("%s: is left out: %s", t.origin(doc.first()), without[kind]))
	}
}

// unspaced says whether objects of a kind are in no namespace.
func unspaced(version, kind string) bool {
	k, _ := leftout.Find(version, kind)
	return k.Unspaced || slices.Contains([]string{"Namespace", "PriorityClass", "RuntimeClass"}, kind)
}

// beside takes an object that pods do not need, so that manifests for a cluster can be used
// as they are. Nobody looks at what is in it.
func (d *decoder) beside(doc *document, kind leftout.Kind) {
	o := &unstructured.Unstructured{}
	t, ok := d.named(doc, kind.Name)
	if !ok {
		return
	}
	if err := o.UnmarshalJSON(doc.json); err != nil {
		d.faults = append(d.faults, doc.fault(doc.first(), "%v", err))
		return
	}
	o.SetNamespace(t.meta.Namespace)
	if d.add(t) {
		d.objects.Shown = append(d.objects.Shown, Shown{Kind: kind.Name, Object: o, LeftOut: kind.Why, Guards: kind.Guards})
		d.objects.Notes = append(d.objects.Notes, fmt.Sprintf("%s: is left out: %s", t.origin(doc.first()), kind.Why))
	}
}

// custom takes an object of a kind that the manifests define themselves.
func (d *decoder) custom(doc *document, kind string) {
	if t, ok := d.named(doc, kind); ok {
		d.objects.Notes = append(d.objects.Notes, fmt.Sprintf("%s: is left out: nobody here acts on objects of its kind", t.origin(doc.first())))
	}
}

// named reads the metadata of an object and nothing else of it.
func (d *decoder) named(doc *document, kind string) (*target, bool) {
	o := &metav1.PartialObjectMetadata{}
	t, before := &target{doc, kind, &o.ObjectMeta}, len(d.faults)
	t.readName()
	for _, why := range fields.Check(doc.tree, o) {
		d.fault(t, why)
	}
	if len(d.faults) == before {
		if err := kjson.UnmarshalCaseSensitivePreserveInts(doc.json, o); err != nil {
			d.mismatch(t, err)
		}
	}
	t.readName()
	for _, why := range check.Named(t.meta) {
		d.fault(t, why)
	}
	return t, len(d.faults) == before
}

// definition is of a kind that manifests define themselves.
type definition struct {
	Spec struct {
		Group string `json:"group"`
		Names struct {
			Kind string `json:"kind"`
		} `json:"names"`
	} `json:"spec"`
}

// definitions are the kinds that sources define, as group and kind. What is wrong with a
// source is told when it is decoded.
func definitions(sources ...Source) map[string]bool {
	out := map[string]bool{}
	for _, s := range sources {
		if !bytes.Contains(s.Data, []byte("CustomResourceDefinition")) {
			continue
		}
		for _, doc := range objectsIn(s) {
			var d definition
			if doc.tree["kind"] == "CustomResourceDefinition" && kjson.UnmarshalCaseSensitivePreserveInts(doc.json, &d) == nil && !served(d.Spec.Group) {
				out[d.Spec.Group+" "+d.Spec.Names.Kind] = true
			}
		}
	}
	return out
}

// served says whether a group is one of Kubernetes' own, of which nobody defines kinds: a
// kind of it that is not known is a slip of the finger.
func served(group string) bool { return !strings.Contains(group, ".") }

// objectsIn are the objects of a source that can be read.
func objectsIn(s Source) (out []*document) {
	docs, err := split(s)
	if err != nil {
		return nil
	}
	for _, doc := range docs {
		switch {
		case doc.parse() != nil:
		case doc.isList():
			items, _ := doc.items()
			out = append(out, items...)
		default:
			out = append(out, doc)
		}
	}
	return out
}
