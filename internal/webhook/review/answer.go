package review

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.run/pkg/runtimeclass"
)

// Bounds of what an API server passes on: it cuts warnings of one request at
// 4096 bytes in all, and takes no longer names of annotations.
const (
	mostWarnings    = 16
	longestWarning  = 1024
	longestAudit    = 4096
	longestAuditKey = 63
)

// Answer is what becomes of a request.
type Answer struct {
	// Refused is why not; nil admits it.
	Refused  error
	Warnings []string
	Audit    map[string]string // for the audit log, by a name of any length
	Patch    []byte            // a JSON patch; nil changes nothing
}

// Encode writes the answer to a request.
func (a Answer) Encode(to *Request) ([]byte, error) {
	if out := a.short(to.UID); out != nil {
		return out, nil
	}
	response := &admissionv1.AdmissionResponse{UID: to.UID, Allowed: a.Refused == nil, Warnings: warnings(a.Warnings), AuditAnnotations: audit(a.Audit)}
	if a.Refused != nil {
		response.Result = status(a.Refused)
	}
	if len(a.Patch) > 0 && a.Refused == nil {
		jsonPatch := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = a.Patch, &jsonPatch
	}
	out, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}, Response: response,
	})
	if err != nil {
		return nil, fmt.Errorf("write AdmissionReview: %w", err)
	}
	return out, nil
}

// short is what nearly all answers are, written as the encoder writes it; nil if this
// is another, or the UID is none that needs no quoting.
func (a Answer) short(uid types.UID) []byte {
	if a.Refused != nil || len(a.Warnings)+len(a.Audit) > 0 || strings.Trim(string(uid), plainUID) != "" {
		return nil
	}
	const (
		head  = `{"kind":"` + kind + `","apiVersion":"` + apiVersion + `","response":{"uid":"`
		patch = `,"patch":"`
		tail  = `","patchType":"` + string(admissionv1.PatchTypeJSONPatch) + `"`
	)
	out := make([]byte, 0, len(head)+len(uid)+len(patch)+base64.StdEncoding.EncodedLen(len(a.Patch))+len(tail)+len(`","allowed":true}}`))
	out = append(append(append(out, head...), uid...), `","allowed":true`...)
	if len(a.Patch) > 0 {
		out = append(base64.StdEncoding.AppendEncode(append(out, patch...), a.Patch), tail...)
	}
	return append(out, "}}"...)
}

// plainUID are the characters of UUIDs, among others.
const plainUID = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"

// status is a refusal as clients of the API server get it: faults of an object
// are invalid, and what a class or a policy forbids is forbidden.
func status(why error) *metav1.Status {
	s := &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: why.Error()}
	var rejection *runtimeclass.Rejection
	var faults Faults
	switch {
	case errors.As(why, &rejection):
		s.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{
			Type: metav1.CauseType(rejection.Reason), Field: rejection.Field, Message: rejection.Detail,
		}}}
	case errors.As(why, &faults):
		s.Code, s.Reason, s.Details = http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, &metav1.StatusDetails{}
		for _, f := range faults {
			s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Type: metav1.CauseType(f.Type), Field: f.Field, Message: f.ErrorBody()})
		}
	}
	return s
}

// Faults are what is wrong with an object, as an error.
type Faults field.ErrorList

// Error is all of them in one line.
func (f Faults) Error() string {
	var out []string
	for _, fault := range f {
		out = append(out, fault.Error())
	}
	return strings.Join(out, "; ")
}

func warnings(all []string) []string {
	var out []string
	for _, w := range all {
		if !slices.Contains(out, w) {
			out = append(out, cut(w, longestWarning))
		}
	}
	if more := len(out) - mostWarnings; more > 0 {
		out = append(out[:mostWarnings-1], fmt.Sprintf("and %d more warnings", more+1))
	}
	return out
}

// audit has names that an API server takes: it drops others.
func audit(notes map[string]string) map[string]string {
	if len(notes) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(notes)) {
		out[auditKey(name)] = cut(notes[name], longestAudit)
	}
	return out
}

// auditKey is the name itself, or its beginning and a hash of it.
func auditKey(name string) string {
	if len(name) <= longestAuditKey {
		return name
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(name))
	end := fmt.Sprintf("-%08x", hash.Sum32())
	return name[:longestAuditKey-len(end)] + end
}

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
