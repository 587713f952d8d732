package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	nodev1alpha1 "k8s.io/api/node/v1alpha1"
	nodev1beta1 "k8s.io/api/node/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"fairlead.run/internal/node/manifest/check"
	"fairlead.run/internal/node/manifest/fields"
	"fairlead.run/internal/node/manifest/honoured"
	"fairlead.run/internal/node/manifest/leftout"
	"fairlead.run/pkg/runtimeclass"
)

// maxFaults bounds the errors reported for one set of manifests.
const maxFaults = 20

// errTooMany ends the decoding of manifests that are wrong all over.
var errTooMany = invalid("more faults follow; the first %d are shown", maxFaults)

type decoder struct {
	objects *Objects
	faults  []error
	static  bool            // see DecodeStatic
	defined map[string]bool // see definitions
}

// target is one object while it is decoded.
type target struct {
	doc  *document
	kind string // "Pod"
	meta *metav1.ObjectMeta
}

// readName gives the object a name for messages as long as it is not decoded,
// and later the default namespace.
func (t *target) readName() {
	meta, _ := t.doc.tree["metadata"].(map[string]any)
	if name, ok := meta["name"].(string); ok && t.meta.Name == "" {
		t.meta.Name = name
	}
	if space, ok := meta["namespace"].(string); ok && t.meta.Namespace == "" {
		t.meta.Namespace = space
	}
	version, _ := t.doc.tree["apiVersion"].(string)
	switch {
	case unspaced(version, t.kind):
		t.meta.Namespace = "" // as an API server has it
	case t.meta.Namespace == "":
		t.meta.Namespace = metav1.NamespaceDefault
	}
}

func (t *target) origin(line int) string {
	name := Key{t.meta.Namespace, t.meta.Name}.String()
	if t.meta.Name == "" {
		name = "without a name"
	}
	return fmt.Sprintf("%s: %s %s", t.doc.where(line), t.kind, name)
}

// fault reports a fault of the field that message starts with.
func (d *decoder) fault(t *target, message string) {
	path, _, _ := strings.Cut(message, ": ")
	d.faults = append(d.faults, invalid("%s: %s", t.origin(t.doc.lineOf(path)), message))
}

// document decodes one document, and adds its objects if all is well.
func (d *decoder) document(doc *document) {
	if err := doc.parse(); err != nil {
		d.faults = append(d.faults, err)
		return
	}
	if !doc.isList() {
		d.object(doc)
		return
	}
	items, err := doc.items()
	if err != nil {
		d.faults = append(d.faults, err)
	}
	for _, item := range items {
		if len(d.faults) >= maxFaults {
			return
		}
		d.object(item)
	}
}

// object decodes a document, or an item of one, that holds a single object.
func (d *decoder) object(doc *document) {
	version, _ := doc.tree["apiVersion"].(string)
	kind, _ := doc.tree["kind"].(string)
	if version == "" || kind == "" {
		d.faults = append(d.faults, doc.fault(doc.first(), "apiVersion and kind are required"))
		return
	}
	table, known := honoured.Of(version, kind)
	beside, is := leftout.Find(version, kind)
	switch {
	case known:
	case is:
		d.beside(doc, beside)
		return
	case d.defined[leftout.Group(version)+" "+kind]:
		d.custom(doc, kind)
		return
	default:
		kinds := strings.Join(slices.Sorted(maps.Keys(honoured.Tables())), ", ")
		d.faults = append(d.faults, doc.fault(doc.lineOf("kind"), "%s of %s is not something Fairlead knows; it knows %s, and v1 List of these, and leaves out others that pods do without%s", kind, version, kinds, leftout.Refused(kind)))
		return
	}
	decode, ok := kinds[kind]
	if !ok {
		decode = (*decoder).ignored
	}
	decode(d, doc, table, version)
}

// kinds are those that mean something. Others that there is a table for are accepted
// with a note.
var kinds = map[string]func(d *decoder, doc *document, table []honoured.Field, version string){
	"Pod":                   (*decoder).pod,
	"Deployment":            (*decoder).deployment,
	"ReplicaSet":            (*decoder).replicaSet,
	"DaemonSet":             (*decoder).daemonSet,
	"StatefulSet":           (*decoder).statefulSet,
	"Job":                   (*decoder).job,
	"CronJob":               (*decoder).cronJob,
	"ConfigMap":             (*decoder).configMap,
	"Secret":                (*decoder).secret,
	"PersistentVolumeClaim": (*decoder).persistentVolumeClaim,
	"RuntimeClass":          (*decoder).class,
	"PriorityClass":         (*decoder).priorityClass,
}

// into decodes the document strictly into out, whose metadata is t.meta, and
// reports every field that is unknown, doubled or not honoured.
func (d *decoder) into(t *target, table []honoured.Field, out any) bool {
	before := len(d.faults)
	t.readName()
	for _, why := range fields.Check(t.doc.tree, out) {
		d.fault(t, why)
	}
	if len(d.faults) > before {
		return false // the decoder would stumble over it, and not say where
	}
	strict, err := kjson.UnmarshalStrict(t.doc.json, out)
	t.readName()
	if err != nil {
		d.mismatch(t, err)
		return false
	}
	unknown := map[string]bool{}
	for _, s := range strict {
		path := quoted(s.Error())
		unknown[path] = true
		message := s.Error()
		if strings.HasPrefix(message, "unknown field") {
			message = "is not a field of " + t.kind + fields.Hint(out, path)
		}
		d.fault(t, path+": "+message)
	}
	if left := t.doc.withoutCluster(out); len(left) > 0 {
		t.readName()
		d.objects.Notes = append(d.objects.Notes, t.origin(t.doc.first())+
			": was stored in a cluster; what that added is left out: "+strings.Join(left, ", "))
	}
	if t.kind != "ConfigMap" && t.kind != "Secret" { // whose values may be any bytes
		for _, why := range fields.CheckNUL(t.doc.tree, "") {
			d.fault(t, why)
		}
	}
	wrong, idle := honoured.Unhonoured(table, t.doc.tree)
	for _, c := range wrong {
		if !unknown[c.Path] {
			d.fault(t, c.Path+": "+c.Why)
		}
	}
	d.leftOut(t, idle)
	for _, why := range check.Meta(t.meta) {
		d.fault(t, why)
	}
	return len(d.faults) == before
}

// leftOut notes which fields mean nothing here, so that manifests for a cluster can be used
// as they are.
func (d *decoder) leftOut(t *target, idle []honoured.Complaint) {
	var list []string
	for _, c := range idle {
		list = append(list, c.Path+" ("+c.Why+")")
	}
	if len(list) > 0 {
		d.objects.Notes = append(d.objects.Notes, t.origin(t.doc.first())+": means nothing here and is left out: "+strings.Join(list, ", "))
	}
}

// quoted is what stands within the quotes of a message.
func quoted(s string) string {
	_, s, _ = strings.Cut(s, `"`)
	s, _, _ = strings.Cut(s, `"`)
	return s
}

// mismatch reports a value of the wrong type.
func (d *decoder) mismatch(t *target, err error) {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		d.faults = append(d.faults, invalid("%s: %s", t.origin(0), strings.TrimPrefix(err.Error(), "json: ")))
		return
	}
	path := fields.At(t.doc.json, wrong.Offset)
	if path == "" {
		path = wrong.Field // as Go knows it, without the places in lists
	}
	d.fault(t, fmt.Sprintf("%s: %s does not fit here, %s does", path, found(wrong.Value), wanted(wrong.Type)))
}

// found names what the decoder saw in the words of manifests.
func found(value string) string {
	switch value {
	case "array":
		return "a list"
	case "object":
		return "an object"
	}
	return "a " + value
}

// wanted names a type in the words of manifests.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	}
	return "a number (" + t.String() + ")"
}

// add takes the object's name in its kind.
func (d *decoder) add(t *target) bool {
	return d.claim(t, t.kind, t.meta, "")
}

// claim takes the name of an object, or of a pod that it makes.
func (d *decoder) claim(t *target, kind string, meta *metav1.ObjectMeta, what string) bool {
	c := claim{where: t.doc.where(t.doc.first()), what: t.origin(t.doc.lineOf("metadata.name")) + ": " + what}
	if err := d.objects.claim(id(kind, Key{meta.Namespace, meta.Name}), c); err != nil {
		d.faults = append(d.faults, err)
		return false
	}
	return true
}

func (d *decoder) pod(doc *document, table []honoured.Field, _ string) {
	pod := &corev1.Pod{}
	t := &target{doc, "Pod", &pod.ObjectMeta}
	if d.static {
		table = honoured.Static()
	}
	if !d.into(t, table, pod) {
		return
	}
	before := len(d.faults)
	wrong := check.Pod("", pod)
	if d.static {
		wrong = append(check.Static(pod), onlyServed(pod)...)
		*pod = asWritten(pod)
	}
	for _, why := range wrong {
		d.fault(t, why)
	}
	if len(d.faults) == before && d.add(t) {
		d.objects.Pods = append(d.objects.Pods, &Pod{Pod: pod, Origin: t.origin(t.doc.first()), Source: doc.source})
	}
}

func (d *decoder) configMap(doc *document, table []honoured.Field, _ string) {
	cm := &corev1.ConfigMap{}
	t := &target{doc, "ConfigMap", &cm.ObjectMeta}
	if !d.into(t, table, cm) {
		return
	}
	if why := check.Keys(cm.Data, cm.BinaryData); why != "" {
		d.fault(t, why)
		return
	}
	if d.add(t) {
		d.objects.ConfigMaps[Key{cm.Namespace, cm.Name}] = cm
	}
}

func (d *decoder) secret(doc *document, table []honoured.Field, _ string) {
	s := &corev1.Secret{}
	t := &target{doc, "Secret", &s.ObjectMeta}
	if !d.into(t, table, s) {
		return
	}
	if why := check.Keys(s.StringData, s.Data); why != "" && !strings.Contains(why, "both") {
		d.fault(t, why)
		return
	}
	if !d.add(t) {
		return
	}
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	for k, v := range s.StringData { // wins over data, as the API says
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
	d.objects.Secrets[Key{s.Namespace, s.Name}] = s
}

func (d *decoder) class(doc *document, table []honoured.Field, version string) {
	class := &nodev1.RuntimeClass{}
	t := &target{doc, "RuntimeClass", &class.ObjectMeta}
	ok, prefix := false, ""
	var wrong field.ErrorList
	switch version {
	case "node.k8s.io/v1alpha1":
		prefix = "spec."
		old := &nodev1alpha1.RuntimeClass{}
		t.meta = &old.ObjectMeta
		ok = d.into(t, table, old)
		class, wrong = runtimeclass.FromV1alpha1(old), runtimeclass.ValidateV1alpha1(old)
	case "node.k8s.io/v1beta1":
		old := &nodev1beta1.RuntimeClass{}
		t.meta = &old.ObjectMeta
		ok = d.into(t, table, old)
		class = runtimeclass.FromV1beta1(old)
		wrong = runtimeclass.Validate(class)
	default:
		ok = d.into(t, table, class)
		wrong = runtimeclass.Validate(class)
	}
	if !ok {
		return
	}
	before := len(d.faults)
	for _, why := range wrong {
		d.fault(t, classFault(why))
	}
	if len(wrong) == 0 && class.Overhead != nil {
		for _, why := range check.Quantities(prefix+"overhead.podFixed", class.Overhead.PodFixed) {
			d.fault(t, why)
		}
	}
	if len(d.faults) > before || !d.add(t) {
		return
	}
	d.objects.Classes[class.Name] = class
	if s := class.Scheduling; s != nil && len(s.NodeSelector)+len(s.Tolerations) > 0 {
		d.objects.Notes = append(d.objects.Notes, t.origin(doc.lineOf(prefix+"scheduling"))+
			": scheduling has no meaning on one machine and is left out")
	}
}

// classFault writes what is wrong with a class as all faults here are written.
func classFault(e *field.Error) string {
	switch e.Type {
	case field.ErrorTypeRequired:
		return e.Field + ": is required"
	case field.ErrorTypeInvalid:
		return fmt.Sprintf("%s: %q: %s", e.Field, fmt.Sprint(e.BadValue), e.Detail)
	}
	return e.Field + ": " + e.ErrorBody()
}
