package validate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Result is what is wrong, and what somebody should look at.
type Result struct {
	Faults   field.ErrorList
	Warnings []string
}

func (r *Result) add(faults ...*field.Error) {
	for _, f := range faults {
		if f != nil {
			r.Faults = append(r.Faults, f)
		}
	}
}

func (r *Result) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

// Err is all faults; nil if there are none.
func (r *Result) Err() error {
	if len(r.Faults) == 0 {
		return nil
	}
	return r.Faults.ToAggregate()
}
