package v1alpha1

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Duration is a length of time, written as in "90s" or "1h30m". It is a struct
// so that a bare number, whose unit nobody can know, is refused.
type Duration struct{ time.Duration }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is no duration: write a number and a unit, as in \"90s\" or \"1h30m\"", text)
	}
	d.Duration = v
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// String is the shortest form: "4h" and not "4h0m0s".
func (d Duration) String() string {
	v := d.Duration
	switch {
	case v == 0:
		return "0s"
	case v%time.Hour == 0:
		return strconv.FormatInt(int64(v/time.Hour), 10) + "h"
	case v%time.Minute == 0:
		return strconv.FormatInt(int64(v/time.Minute), 10) + "m"
	}
	return v.String()
}

// Limit is the value of a resource limit. In a file it is a number or the
// string "unlimited".
type Limit uint64

// Unlimited is RLIM_INFINITY.
const Unlimited Limit = math.MaxUint64

// UnmarshalText implements encoding.TextUnmarshaler. The decoder calls it for
// strings; numbers it stores by itself.
func (l *Limit) UnmarshalText(text []byte) error {
	if string(text) == "unlimited" {
		*l = Unlimited
		return nil
	}
	v, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return fmt.Errorf("%q is no limit: write a number or \"unlimited\"", text)
	}
	*l = Limit(v)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// String is the number, or "unlimited".
func (l Limit) String() string {
	if l == Unlimited {
		return "unlimited"
	}
	return strconv.FormatUint(uint64(l), 10)
}
