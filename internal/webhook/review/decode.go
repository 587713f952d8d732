package review

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/webhook/review/onepass"
)

// The version of reviews that is spoken here.
const (
	group      = "admission.k8s.io"
	apiVersion = group + "/v1"
	kind       = "AdmissionReview"
)

// Operation is what is done to an object.
type Operation string

// The operations that are asked about.
const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// nodesGroup is the group that kubelets are in.
const nodesGroup = "system:nodes"

// Request is what an API server asks. Its objects may point into the body that it was
// read from; all else is its own.
type Request struct {
	UID         types.UID
	Kind        metav1.GroupVersionKind
	SubResource string
	Name        string // empty for what is to be named by the API server
	Namespace   string
	Operation   Operation
	UserInfo    struct{ Groups []string }
	Object      json.RawMessage
	OldObject   json.RawMessage
	DryRun      *bool
}

// IsDryRun says that nothing may come of the request.
func (r *Request) IsDryRun() bool { return r.DryRun != nil && *r.DryRun }

// ByNode says that a kubelet makes the request.
func (r *Request) ByNode() bool {
	for _, g := range r.UserInfo.Groups {
		if g == nodesGroup {
			return true
		}
	}
	return false
}

// Decode reads a review. Its errors are all errdefs.ErrInvalidArgument.
func Decode(body []byte) (*Request, error) {
	var review struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Request    *request `json:"request"`
	}
	if !onepass.Decode(body, &review, costly) {
		if err := decodeStrictly(body, &review); err != nil {
			return nil, fmt.Errorf("read AdmissionReview: %w", err)
		}
	}
	switch {
	case review.Kind != kind || !strings.HasPrefix(review.APIVersion, group+"/"):
		return nil, fmt.Errorf("read AdmissionReview: the body is %s %s, and not %s %s: %w", quoted(review.APIVersion), quoted(review.Kind), apiVersion, kind, errdefs.ErrInvalidArgument)
	case review.APIVersion != apiVersion:
		return nil, fmt.Errorf("read AdmissionReview: its version is %s, and only %s is spoken here; set admissionReviewVersions: [v1] in the webhook configuration: %w", quoted(review.APIVersion), apiVersion, errdefs.ErrInvalidArgument)
	case review.Request == nil:
		return nil, fmt.Errorf("read AdmissionReview: it has no request: %w", errdefs.ErrInvalidArgument)
	case review.Request.UID == "":
		return nil, fmt.Errorf("read AdmissionReview: request.uid is missing, so no answer could be told to be to it: %w", errdefs.ErrInvalidArgument)
	}
	return review.Request.convert()
}

// request is the wire form, with what is read of it.
type request struct {
	UID         types.UID               `json:"uid"`
	Kind        metav1.GroupVersionKind `json:"kind"`
	SubResource string                  `json:"subResource"`
	Name        string                  `json:"name"`
	Namespace   string                  `json:"namespace"`
	Operation   Operation               `json:"operation"`
	UserInfo    struct {
		Groups []string `json:"groups"`
	} `json:"userInfo"`
	Object    json.RawMessage `json:"object"`
	OldObject json.RawMessage `json:"oldObject"`
	DryRun    *bool           `json:"dryRun"`
}

func (r *request) convert() (*Request, error) {
	switch r.Operation {
	case Create, Update, Delete, Connect:
	default:
		return nil, fmt.Errorf("read AdmissionReview: request.operation is %s, and not one of %s, %s, %s, %s: %w", quoted(string(r.Operation)), Create, Update, Delete, Connect, errdefs.ErrInvalidArgument)
	}
	out := &Request{
		UID: r.UID, Kind: r.Kind, SubResource: r.SubResource, Name: r.Name, Namespace: r.Namespace,
		Operation: r.Operation, Object: r.Object, OldObject: r.OldObject, DryRun: r.DryRun,
	}
	out.UserInfo.Groups = r.UserInfo.Groups
	return out, nil
}

// Into reads an object of the request; field is where it stands in the review, and into
// points to a zero value. Of metadata.managedFields the sets of fields may be left out.
func Into(object json.RawMessage, field string, into any) error {
	if len(object) == 0 || string(object) == "null" {
		return fmt.Errorf("read AdmissionReview: request.%s is missing: %w", field, errdefs.ErrInvalidArgument)
	}
	if onepass.Decode(object, into, costly) {
		return nil
	}
	if err := boundQuantities(object, reflect.TypeOf(into)); err != nil {
		return fmt.Errorf("read AdmissionReview: request.%s: %w: %w", field, err, errdefs.ErrInvalidArgument)
	}
	if err := decodeStrictly(object, into); err != nil {
		return fmt.Errorf("read AdmissionReview: request.%s: %w", field, err)
	}
	return nil
}

// decodeStrictly reads what onepass has not, or says what is wrong with it. It refuses
// keys that are there twice: one of them would be what others have read, and another
// what is acted on here.
func decodeStrictly(text []byte, into any) error {
	doubles, err := kjson.UnmarshalStrict(text, into, kjson.DisallowDuplicateFields)
	if err != nil {
		return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	if len(doubles) > 0 {
		return fmt.Errorf("%w: %w", errors.Join(doubles[:min(len(doubles), mostDoubles)]...), errdefs.ErrInvalidArgument)
	}
	return nil
}

// mostDoubles bounds an error.
const mostDoubles = 3

// quoted is text of others, cut to what one can read.
func quoted(s string) string { return fmt.Sprintf("%q", cut(s, mostQuoted)) }

// mostQuoted bounds what of a request goes into an error, in bytes.
const mostQuoted = 64
