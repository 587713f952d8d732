package criserver

import (
	"encoding/json"
	"fmt"

	"fairlead.run/internal/errdefs"
)

// encodeInfo is the verbose part of an answer: each value as JSON. What is nil
// is left out.
func encodeInfo(values map[string]any) (map[string]string, error) {
	out := make(map[string]string, len(values))
	for name, v := range values {
		if v == nil {
			continue
		}
		b, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("encode %s for the verbose answer: %w: %w", name, err, errdefs.ErrInternal)
		}
		out[name] = string(b)
	}
	return out, nil
}
