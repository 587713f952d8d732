package network

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"

	"fairlead.run/internal/errdefs"
)

// The pod annotations that limit a pod's bandwidth, in bits per second as a
// Kubernetes quantity.
const (
	IngressBandwidth = "kubernetes.io/ingress-bandwidth"
	EgressBandwidth  = "kubernetes.io/egress-bandwidth"
)

// Bandwidth is what may flow into and out of a pod, in bits per second. Zero
// means no limit.
type Bandwidth struct {
	Ingress uint64 `json:"ingress,omitempty"`
	Egress  uint64 `json:"egress,omitempty"`
}

// Kubernetes takes bandwidths from 1k to 1P.
var minBandwidth, maxBandwidth = resource.MustParse("1k"), resource.MustParse("1P")

// A number beyond these is no bandwidth, and one of a billion digits would keep
// a processor busy for hours.
const maxText = 64

var hugeExponent = regexp.MustCompile(`[eE][-+]?[0-9]{3,}$`)

// BandwidthOf reads the limits from a pod's annotations.
func BandwidthOf(annotations map[string]string) (Bandwidth, error) {
	in, err := bandwidth(annotations, IngressBandwidth)
	if err != nil {
		return Bandwidth{}, err
	}
	out, err := bandwidth(annotations, EgressBandwidth)
	if err != nil {
		return Bandwidth{}, err
	}
	return Bandwidth{Ingress: in, Egress: out}, nil
}

func bandwidth(annotations map[string]string, key string) (uint64, error) {
	text, ok := annotations[key]
	if !ok {
		return 0, nil
	}
	if len(text) > maxText || hugeExponent.MatchString(text) {
		return 0, fmt.Errorf("annotation %s: %.64q is not a quantity such as 10M: %w", key, text, errdefs.ErrInvalidArgument)
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("annotation %s: %q is not a quantity such as 10M: %w", key, text, errdefs.ErrInvalidArgument)
	}
	if q.Cmp(minBandwidth) < 0 || q.Cmp(maxBandwidth) > 0 {
		return 0, fmt.Errorf("annotation %s: %q is not between 1k and 1P bits per second: %w", key, text, errdefs.ErrInvalidArgument)
	}
	return uint64(q.Value()), nil
}
