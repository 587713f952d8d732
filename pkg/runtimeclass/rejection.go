package runtimeclass

import "fmt"

// Reason says in a word why a pod was rejected, for metrics and for programs.
type Reason string

// The reasons why pods are rejected.
const (
	// ReasonMissing is that the pod's class does not exist. Cached classes may
	// lag: look again before answering.
	ReasonMissing Reason = "ClassMissing"
	// ReasonOverhead is that the pod brings an overhead that is not its class's.
	ReasonOverhead Reason = "OverheadDiffers"
	// ReasonSelector is that pod and class want different values of one label.
	ReasonSelector Reason = "SelectorConflict"
	// ReasonTolerations is that the pod has more tolerations than are merged.
	ReasonTolerations Reason = "TooManyTolerations"
	// ReasonLegacy is that old annotations ask for two different classes.
	ReasonLegacy Reason = "LegacyConflict"
	// ReasonImmutable is that an update changes what cannot change.
	ReasonImmutable Reason = "Immutable"
)

// Rejection is why a pod is not admitted.
type Rejection struct {
	Reason Reason
	Class  string // that the pod asks for; may be empty
	Field  string // of the pod: "spec.overhead"
	Detail string
	cause  error
}

// Error is the field and the detail.
func (r *Rejection) Error() string { return r.Field + ": " + r.Detail }

// Unwrap is the *MissingError of a missing class, else nil.
func (r *Rejection) Unwrap() error { return r.cause }

// saying is the rejection with its detail.
func (r Rejection) saying(format string, args ...any) error {
	r.Detail = fmt.Sprintf(format, args...)
	return &r
}
