package cli

import (
	"errors"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/podspec"
)

// TestShareSwap shares swap where that is asked for and can be had, and says why not.
func TestShareSwap(t *testing.T) {
	for _, tt := range []struct {
		behavior string
		counted  bool
		limited  bool
		err      string
	}{
		{"NoSwap", true, false, ""},
		{"NoSwap", false, false, ""},
		{"LimitedSwap", true, true, ""},
		{"LimitedSwap", false, false, "needs cgroups v2"},
		{"UnlimitedSwap", true, false, "is not one of NoSwap, LimitedSwap"},
		{"", true, false, "is not one of NoSwap, LimitedSwap"},
	} {
		node := podspec.Node{Swap: podspec.Swap{Counted: tt.counted, Bytes: 1 << 30}}
		err := (&roomFlags{swapBehavior: tt.behavior}).shareSwap(&node)
		if node.Swap.Limited != tt.limited || (tt.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q, counted %t: %+v, %v", tt.behavior, tt.counted, node.Swap, err)
		}
		if tt.behavior == "LimitedSwap" && err != nil && !errors.Is(err, errdefs.ErrPrecondition) {
			t.Errorf("%v is no precondition", err)
		}
	}
}
