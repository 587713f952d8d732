package review_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/webhook/review"
	"fairlead.run/pkg/runtimeclass"
)

const head = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE",`

func TestDecode(t *testing.T) {
	got, err := review.Decode([]byte(head + `"kind":{"group":"","version":"v1","kind":"Pod"},"namespace":"ns","subResource":"resize","dryRun":true,"userInfo":{"groups":["a","system:nodes"]},"object":{"a":1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got.UID != "u" || got.Kind.Kind != "Pod" || got.Namespace != "ns" || got.SubResource != "resize" || !got.IsDryRun() || !got.ByNode() || string(got.Object) != `{"a":1}` {
		t.Errorf("%+v", got)
	}
}

func TestQuantitiesAreBounded(t *testing.T) {
	digits := strings.Repeat("9", 100)
	pod, class, workload := func() any { return &corev1.Pod{} }, func() any { return &nodev1.RuntimeClass{} }, func() any {
		return &struct {
			Spec struct{ Template *corev1.PodTemplateSpec }
		}{}
	}
	for _, test := range []struct {
		object string
		into   func() any
		field  string // that is named; empty if the object is read
	}{
		{`{"spec":{"overhead":{"cpu":"1e-1000000000"}}}`, pod, "spec.overhead[cpu]"},
		{`{"spec":{"overhead":{"cpu":" 1E+99999"}}}`, pod, "spec.overhead[cpu]"},
		{"{\"spec\":{\"overhead\":{\"cpu\":\"\u00a0\u20031e-1000000000\"}}}", pod, "spec.overhead[cpu]"},
		{`{"spec":{"overhead":{"cpu":1e-1000000000}}}`, pod, "spec.overhead[cpu]"},
		{`{"spec":{"containers":[{},{"resources":{"limits":{"a":"0.` + digits + `"}}}]}}`, pod, "spec.containers[1].resources.limits[a]"},
		{`{"spec":{"containers":[{"env":[{"valueFrom":{"resourceFieldRef":{"divisor":"1e10000"}}}]}]}}`, pod, "divisor"},
		{`{"spec":{"volumes":[{"emptyDir":{"sizeLimit":"1e10000"}}]}}`, pod, "sizeLimit"},
		{`{"spec":{"volumes":[{"ephemeral":{"volumeClaimTemplate":{"spec":{"resources":{"requests":{"storage":"1e10000"}}}}}}]}}`, pod, "requests[storage]"},
		{`{"spec":{"resources":{"requests":{"cpu":"1e10000"}}}}`, pod, "spec.resources.requests[cpu]"},
		{`{"status":{"containerStatuses":[{"allocatedResources":{"cpu":"1e10000"}}]}}`, pod, "allocatedResources[cpu]"},
		{`{"overhead":{"podFixed":{"cpu":"-1e-10000"}}}`, class, "overhead.podFixed[cpu]"},
		{`{"Spec":{"Template":{"spec":{"overhead":{"cpu":"1e-1000000000"}}}}}`, workload, "Spec.Template.spec.overhead[cpu]"},
		{`{"spec":{"overhead":{"cpu":"1e3","memory":"64Mi"}}}`, pod, ""},
		{`{"metadata":{"labels":{"commit":"12e45678","limits":"` + digits + `"}}}`, pod, ""},
		{`{"metadata":{"annotations":{"overhead":"1e-1000000000"}}}`, pod, ""},
		{`{"spec":{"containers":[{"resources":{"limits":{"a":"1"}},"image":"i:7e99999"}]}}`, pod, ""},
		{`{"spec":{"containers":[{"resources":{"limits":{"a":"1"}},"args":["` + digits + `"]}]}}`, pod, ""},
		{`{"spec":{"unknown":{"limits":{"a":"1e-1000000000"}}}}`, pod, ""},
	} {
		err := review.Into(json.RawMessage(test.object), "object", test.into())
		switch {
		case test.field == "" && err != nil:
			t.Errorf("%s: %v", test.object, err)
		case test.field != "" && (!errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), test.field)):
			t.Errorf("%s: %v, which does not name %s", test.object, err, test.field)
		}
	}
}

// FuzzQuantities reads whatever there is in little time: a fuzzer reports a run
// that does not end.
func FuzzQuantities(f *testing.F) {
	f.Add("1e-1000000000", "cpu")
	f.Add("\u2003-.5E+0099999", "memory")
	f.Fuzz(func(_ *testing.T, quantity, name string) {
		text, _ := json.Marshal(map[string]any{"spec": map[string]any{"overhead": map[string]string{name: quantity}}})
		_ = review.Into(text, "object", &corev1.Pod{})
	})
}

func TestAnswer(t *testing.T) {
	many := review.Answer{Audit: map[string]string{strings.Repeat("p", 200): strings.Repeat("é", 5000)}}
	for i := range 40 {
		many.Warnings = append(many.Warnings, fmt.Sprint(i/2, strings.Repeat("é", 2000)))
	}
	for name, test := range map[string]struct {
		answer review.Answer
		code   int32
		causes int
	}{
		"allowed":  {answer: review.Answer{Patch: []byte(`[]`)}},
		"rejected": {answer: review.Answer{Refused: &runtimeclass.Rejection{Field: "f", Detail: "d"}, Patch: []byte(`[]`)}, code: 403, causes: 1},
		"invalid":  {answer: review.Answer{Refused: review.Faults(field.ErrorList{field.Required(field.NewPath("a"), "b"), field.Required(field.NewPath("c"), "d")})}, code: 422, causes: 2},
		"other":    {answer: review.Answer{Refused: errors.New("x")}, code: 403},
		"much":     {answer: many},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := test.answer.Encode(&review.Request{UID: "u"})
			if err != nil {
				t.Fatal(err)
			}
			var got admissionv1.AdmissionReview
			if err := json.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			r := got.Response
			if r.UID != "u" || r.Allowed != (test.code == 0) || (r.Patch != nil) != (len(test.answer.Patch) > 0 && r.Allowed) || (r.PatchType != nil) != (r.Patch != nil) {
				t.Fatalf("%+v", r)
			}
			if !r.Allowed && (r.Result.Code != test.code || r.Result.Details != nil && len(r.Result.Details.Causes) != test.causes) {
				t.Errorf("%+v", r.Result)
			}
			if len(text) > 64<<10 || len(r.Warnings) > 16 {
				t.Errorf("%d bytes, %d warnings", len(text), len(r.Warnings))
			}
			for key := range r.AuditAnnotations {
				if len(key) > 63 {
					t.Errorf("audit: %s", key)
				}
			}
		})
	}
}

// Whatever comes, there is a request or a sentence, and never a panic.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `null`, `[]`, head + `"object":{}}}`, head + `"object":null,"oldObject":7}}`, head + `"uid":"v"}}`,
		head + `"object":{"metadata":{"name":"a","annotations":{"a":"b"}},"spec":{"runtimeClassName":"x","overhead":{"cpu":"1"},"containers":[{"name":"c","resources":{"limits":{"cpu":"1e-10"}}}]}}}}`,
		head + `"object":{"handler":"x","overhead":{"podFixed":{"cpu":1}},"scheduling":{"tolerations":[{"operator":"Exists"}]}}}}`,
		strings.Replace(head, "v1", "v1beta1", 1) + `"object":{}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := review.Decode(body)
		if err != nil {
			if !errors.Is(err, errdefs.ErrInvalidArgument) || r != nil {
				t.Fatalf("%+v %v", r, err)
			}
			return
		}
		for _, into := range []any{&corev1.Pod{}, &nodev1.RuntimeClass{}} {
			if err := review.Into(r.Object, "object", into); err != nil && !errors.Is(err, errdefs.ErrInvalidArgument) {
				t.Fatal(err)
			}
		}
		if _, err := (review.Answer{}).Encode(r); err != nil {
			t.Fatal(err)
		}
	})
}

// The answer that is written by hand is the one that the encoder writes.
func TestShortAnswer(t *testing.T) {
	for _, uid := range []types.UID{"705ab4f5-6393-11e8-b7cc-42010a800002", "", `a"b`, "<a>", "ä"} {
		for _, patch := range []string{"", "[]", `[{"op":"add","path":"/spec/overhead","value":{"cpu":"1"}}]`} {
			got, err := review.Answer{Patch: []byte(patch)}.Encode(&review.Request{UID: uid})
			if err != nil {
				t.Fatal(err)
			}
			response := &admissionv1.AdmissionResponse{UID: uid, Allowed: true}
			if patch != "" {
				response.Patch, response.PatchType = []byte(patch), new(admissionv1.PatchTypeJSONPatch)
			}
			want, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Response: response})
			if err != nil || string(got) != string(want) {
				t.Errorf("%s\nwanted %s\n%v", got, want, err)
			}
		}
	}
}
