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
	for object, costly := range map[string]bool{
		`{"spec":{"overhead":{"cpu":"1e-1000000000"}}}`:                                          true,
		`{"spec":{"overhead":{"cpu":" 1E+99999"}}}`:                                              true,
		`{"spec":{"overhead":{"cpu":1e-1000000000}}}`:                                            true,
		`{"spec":{"containers":[{"resources":{"limits":{"a":"0.` + digits + `"}}}]}}`:            true,
		`{"spec":{"volumes":[{"emptyDir":{"sizeLimit":"1e10000"}}]}}`:                            true,
		`{"overhead":{"podFixed":{"cpu":"-1e-10000"}}}`:                                          true,
		`{"spec":{"overhead":{"cpu":"1e3","memory":"64Mi"}}}`:                                    false,
		`{"metadata":{"labels":{"commit":"12e45678","n":"` + digits + `"}}}`:                     false,
		`{"spec":{"containers":[{"resources":{"limits":{"a":"1"}},"image":"i:7e99999"}]}}`:       false,
		`{"spec":{"containers":[{"resources":{"limits":{"a":"1"}},"args":["` + digits + `"]}]}}`: false,
	} {
		var into map[string]any
		err := review.Into(json.RawMessage(object), "object", &into)
		if (err != nil) != costly || err != nil && !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %v", object, err)
		}
	}
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
