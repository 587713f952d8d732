package cli

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/shutdown"
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

// TestLevels reads the periods of a shutdown by priority.
func TestLevels(t *testing.T) {
	got, err := levels(map[string]string{"0": "30s", "-5": "2m"})
	slices.SortFunc(got, func(a, b shutdown.Level) int { return cmp.Compare(a.Priority, b.Priority) })
	if want := []shutdown.Level{{Priority: -5, Period: 2 * time.Minute}, {Period: 30 * time.Second}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for priority, period := range map[string]string{"high": "30s", "3000000000": "30s", "0": "soon"} {
		if got, err := levels(map[string]string{priority: period}); err == nil || !strings.Contains(err.Error(), priority+"="+period+": ") {
			t.Errorf("%s=%s: %v, %v", priority, period, got, err)
		}
	}
}
