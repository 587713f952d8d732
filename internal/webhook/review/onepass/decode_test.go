package onepass_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"fairlead.run/internal/webhook/review/onepass"
)

// costly is what package review has for it, more or less.
func costly(quantity []byte) bool { return tooMuch.Match(quantity) }

var tooMuch = regexp.MustCompile(`[eE][-+]?[0-9]{4}|[0-9.]{65}`)

// odd has all that types of Kubernetes do not have, or nearly all.
type odd struct {
	Named  string `json:"named"`
	Bare   int8
	Hidden string `json:"-"`
	inner
	Inline `json:",inline"`
	Any    any               `json:"any"`
	Half   float64           `json:"half"`
	Bytes  []byte            `json:"bytes"`
	Many   map[string][]bool `json:"many"`
	By     map[int]string    `json:"by"`
	Next   *odd              `json:"next"`
	Deep   **string          `json:"deep"`
	Raw    json.RawMessage   `json:"raw"`
	Ptr    *json.RawMessage  `json:"ptr"`
	Quoted string            `json:"quoted"`
	Pair   [2]int32          `json:"pair"`
}

type inner struct {
	Within uint16 `json:"within"`
}

// Inline is embedded.
type Inline struct {
	A *int64 `json:"a"`
	B []*Inline
}

// targets are what texts are read into.
func targets() []any {
	return []any{&corev1.Pod{}, &nodev1.RuntimeClass{}, &odd{}, &Inline{}, &metav1.ObjectMeta{}, &struct {
		Request *struct {
			Object json.RawMessage `json:"object"`
			DryRun *bool           `json:"dryRun"`
		} `json:"request"`
	}{}}
}

// leftOut is not read on purpose.
var leftOut = cmpopts.IgnoreTypes(metav1.FieldsV1{})

// check holds what was read in one pass against what the library reads, and says
// whether anything was.
func check(t *testing.T, text []byte, into any) bool {
	t.Helper()
	want := reflect.New(reflect.TypeOf(into).Elem())
	read := onepass.Decode(text, into, costly)
	if !read {
		if !reflect.ValueOf(into).Elem().IsZero() {
			t.Fatalf("%s was not read, and there is %+v", text, into)
		}
		return false
	}
	doubles, err := kjson.UnmarshalStrict(text, want.Interface(), kjson.DisallowDuplicateFields)
	if err != nil || len(doubles) > 0 {
		t.Fatalf("%s was read as %T, which is wrong: %v %v", text, into, err, doubles)
	}
	if diff := cmp.Diff(want.Interface(), into, cmp.AllowUnexported(odd{}, inner{}), leftOut); diff != "" {
		t.Fatalf("%s was read as\n%s", text, diff)
	}
	return true
}

const podText = `{
	"kind": "Pod", "apiVersion": "v1",
	"metadata": {"name": "a", "creationTimestamp": null, "labels": {"a": "b", "ä": "\u003c\ud83d\ude00\n"}, "annotations": {},
		"ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u", "controller": true}],
		"managedFields": [{"manager": "m", "time": "2026-01-02T03:04:05Z", "fieldsV1": {"f:a": {"k:{\"b\":1}": {}, ".": {}}}}]},
	"spec": {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "w", "projected": {"sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}], "defaultMode": 420}}],
		"containers": [{"name": "c", "resources": {"limits": {"cpu": "250m", "memory": 1e9}}, "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": -1}, "env": [], "newer": [{"a": [1.5e-3, {}]}]}],
		"tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 300}], "nodeSelector": null, "enableServiceLinks": false, "overhead": {"cpu": "1"}},
	"status": {"startTime": "2026-01-02T03:04:05Z", "containerStatuses": [{"started": true}]}
}`

// What an API server writes is read, and not left to others.
func TestRead(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		into any
	}{
		"pod":     {podText, &corev1.Pod{}},
		"class":   {`{"metadata":{"name":"a"},"handler":"h","overhead":{"podFixed":{"cpu":"1"}},"scheduling":{"tolerations":[{}]}}`, &nodev1.RuntimeClass{}},
		"inlined": {`{"a":-9223372036854775808,"B":[null,{"B":[]}]}`, &Inline{}},
		"object": {`{"request":{"uid":"u","object":{"a":[1,"\u00e4"]},"dryRun":true}}`, &struct {
			Request struct {
				Object json.RawMessage `json:"object"`
				DryRun *bool           `json:"dryRun"`
			} `json:"request"`
		}{}},
	} {
		t.Run(name, func(t *testing.T) {
			if !check(t, []byte(test.text), test.into) {
				t.Errorf("left to others")
			}
		})
	}
}

// What is wrong, what would be costly, and what is not known here is left.
func TestLeft(t *testing.T) {
	meta := func(members string) string { return `{"metadata":{` + members + `}}` }
	for _, text := range []string{
		``, ` `, `{`, `{}x`, "{}\x00", `[]`, `7`, `"a"`, `{"a"}`, `{"a":1,}`, `{,}`, `{"a":01}`, `{"a":1.}`, `{"a":-}`, `{"a":+1}`, `{"a":1e}`, `{"a":nul}`, `{"a":[1,]}`, `{"a":[}`,
		`{"metadata":{},"metadata":{}}`, `{"m\u0065tadata":{},"metadata":{}}`, meta(`"labels":{"a":"b","a":"b"}`), meta(`"labels":{"a":"b","\u0061":"c"}`), `{"spec":{"overhead":{"cpu":"1","cpu":"1"}}}`,
		`{"spec":{"volumes":[{"name":"a","emptyDir":{},"emptyDir":{}}]}}`,
		meta(`"name":7`), meta(`"name":{}`), meta(`"labels":[]`), meta(`"labels":{"a":1}`), meta(`"finalizers":{}`), meta(`"generation":1.5`), meta(`"generation":9223372036854775808`),
		meta(`"creationTimestamp":"now"`), meta("\"name\":\"a\nb\""), meta(`"name":"\x"`), meta(`"name":"\u12"`), meta(`"name":"\ud800"`), meta("\"name\":\"\xff\""), meta(`"name":"a`),
		`{"spec":{"priority":2147483648}}`, `{"spec":{"overhead":{"cpu":"1e-1000000000"}}}`, `{"spec":{"overhead":{"cpu":1e10000}}}`, `{"spec":{"overhead":{"cpu":"x"}}}`, `{"spec":{"overhead":{"cpu":"` + strings.Repeat("9", 100) + `"}}}`,
		`{"spec":{"containers":[{"ports":[{"containerPort":"http"}],"livenessProbe":{"httpGet":{"port":2147483648}}}]}}`,
		`{"unknown":` + strings.Repeat(`[`, 300) + strings.Repeat(`]`, 300) + `}`, `{"unknown":"\q"}`, `{"unknown":{"a":tru}}`,
	} {
		if check(t, []byte(text), &corev1.Pod{}) {
			t.Errorf("read: %s", text)
		}
	}
	for _, text := range []string{`{"any":1}`, `{"half":1}`, `{"bytes":"YQ=="}`, `{"by":{"1":"a"}}`, `{"pair":[1,2]}`} {
		if check(t, []byte(text), &odd{}) {
			t.Errorf("read: %s", text)
		}
	}
}

// Wherever a text ends, or has another byte or one more: nothing is read that the
// library would not read.
func TestBroken(t *testing.T) {
	for i := range len(podText) {
		check(t, []byte(podText[:i]), &corev1.Pod{})
		for _, c := range `",}0\` {
			check(t, []byte(podText[:i]+string(c)+podText[i+1:]), &corev1.Pod{})
		}
		check(t, []byte(podText[:i]+`"`+podText[i:]), &corev1.Pod{})
	}
}

// FuzzDecode: what is read in one pass the library reads as well, and the same.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		podText, `{}`, `null`, `{"named":"\u0000","Bare":-128,"within":1,"a":1,"B":[{}],"any":null,"half":null,"many":{"x":[true,null]},"next":{"next":{}},"deep":"s","raw":{"a":1},"ptr":null}`,
		`{"metadata":{"name":"a"},"handler":"x","overhead":{"podFixed":{"cpu":1}},"scheduling":{"nodeSelector":{"a":""},"tolerations":[{"operator":"Exists","tolerationSeconds":0}]}}`,
		`{"request":{"object":null,"dryRun":null}}`, `{"spec":{"containers":[{"ports":null,"livenessProbe":{"httpGet":{"port":"\u0068"}}},null]}}`,
		`{"metadata":{"managedFields":[{"fieldsV1":null},{"fieldsV1":7,"time":null}],"deletionTimestamp":"2026-01-02T03:04:05.123456789+01:00"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if tooMuch.Match(text) {
			return // the library would read it for minutes
		}
		for _, into := range targets() {
			check(t, text, into)
		}
	})
}

// fill sets all fields of a value, in as many levels as there are before a type comes
// again.
func fill(v reflect.Value, above []reflect.Type) {
	switch f := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*f = resource.MustParse("250m")
		return
	case *metav1.Time:
		*f = metav1.Unix(1_700_000_000, 0)
		return
	case *metav1.FieldsV1:
		*f = *metav1.NewFieldsV1(`{"f:a":{}}`)
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), above)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), above)
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value, above)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), value)
	case reflect.Struct:
		if slices.Contains(above, v.Type()) {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), append(above, v.Type()))
			}
		}
	}
}

// Whatever fields a pod or a class has, it is read: what is left takes three times as
// long.
func TestAllFieldsAreKnown(t *testing.T) {
	for _, o := range []any{&corev1.Pod{}, &nodev1.RuntimeClass{}} {
		v := reflect.ValueOf(o).Elem()
		fill(v, nil)
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		into := reflect.New(v.Type()).Interface()
		if !check(t, text, into) {
			t.Errorf("left to others: %s", text)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for name, read := range map[string]func(into any) bool{
		"onepass": func(into any) bool { return onepass.Decode([]byte(podText), into, costly) },
		"library": func(into any) bool {
			_, err := kjson.UnmarshalStrict([]byte(podText), into, kjson.DisallowDuplicateFields)
			return err == nil
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if !read(&corev1.Pod{}) {
					b.Fatal("not read")
				}
			}
		})
	}
}
