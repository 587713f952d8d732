package nri

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"fairlead.run/internal/errdefs"
)

// needs refuses what the handler's runtime would leave out without a word: JSON
// that is newer than it. since has the first version of each that honours it.
func (a *adjustment) needs(since map[string]string) error {
	h := a.handler
	if first, known := since[h.Runtime]; known && !older(h.Version, first) {
		return nil
	}
	return fmt.Errorf("handler %s is %s %s, which does not honour it; runc %s and crun %s do: %w",
		h.Name, h.Runtime, h.Version, since["runc"], since["crun"], errdefs.ErrUnimplemented)
}

// older compares versions like "1.1.5+ds1" number by number.
func older(v, than string) bool {
	return slices.Compare(numbers(v), numbers(than)) < 0
}

func numbers(v string) []int {
	v, _, _ = strings.Cut(v, "+")
	v, _, _ = strings.Cut(v, "-")
	var out []int
	for part := range strings.SplitSeq(v, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return out
		}
		out = append(out, n)
	}
	return out
}
