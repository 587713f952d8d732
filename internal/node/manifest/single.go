package manifest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"fairlead.run/internal/node/manifest/honoured"
	"fairlead.run/internal/node/manifest/leftout"
)

// Single is one object as it is written.
type Single struct {
	Kind string
	Key
	Text []byte // YAML
	// Custom says that it is of a kind that nobody here knows, so that manifests define it
	// themselves, and that there is nothing to do for it.
	Custom bool
}

// Singles takes a source apart into its objects. What is wrong with them is for
// DecodeFile to say, but for what keeps them from being told apart.
func Singles(s Source) ([]Single, error) {
	docs, err := split(s)
	if err != nil {
		return nil, err
	}
	var out []Single
	for _, doc := range docs {
		if err := doc.parse(); err != nil {
			return nil, err
		}
		items := []*document{doc}
		if doc.isList() {
			if items, err = doc.items(); err != nil {
				return nil, err
			}
		}
		for _, item := range items {
			one, err := item.single()
			if err != nil {
				return nil, err
			}
			out = append(out, one)
		}
	}
	return out, nil
}

// single is a document that holds one object.
func (d *document) single() (Single, error) {
	t := target{doc: d, meta: &metav1.ObjectMeta{}}
	t.kind, _ = d.tree["kind"].(string)
	t.readName()
	text := d.text
	if d.item > 0 {
		var err error
		if text, err = yaml.JSONToYAML(d.json); err != nil {
			return Single{}, d.fault(0, "cannot be written as a document of its own: %v", err)
		}
	}
	one := Single{Kind: t.kind, Key: Key{t.meta.Namespace, t.meta.Name}, Text: text}
	version, _ := d.tree["apiVersion"].(string)
	_, known := honoured.Of(version, t.kind)
	_, beside := leftout.Find(version, t.kind)
	one.Custom = !known && !beside
	if one.Kind == "" || one.Name == "" {
		return one, d.fault(d.first(), "has no kind, or no metadata.name")
	}
	return one, nil
}

// Where says where an object is written: the file, line and document; empty if it is
// nowhere.
func (o *Objects) Where(kind string, k Key) string { return o.claims[id(kind, k)].where }
