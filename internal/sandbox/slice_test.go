package sandbox

import (
	"slices"
	"testing"
)

func TestSlices(t *testing.T) {
	for name, want := range map[string]struct {
		above []string
		path  string
	}{
		"a.slice":                    {nil, "a.slice"},
		"fairlead-pod1.slice":        {[]string{"fairlead.slice"}, "fairlead.slice/fairlead-pod1.slice"},
		"fairlead-5f2c-pod1ab.slice": {[]string{"fairlead.slice", "fairlead-5f2c.slice"}, "fairlead.slice/fairlead-5f2c.slice/fairlead-5f2c-pod1ab.slice"},
	} {
		if got := slicesAbove(name); !slices.Equal(got, want.above) {
			t.Errorf("above %s: %v", name, got)
		}
		if got := slicePath(name); got != want.path {
			t.Errorf("path of %s: %s", name, got)
		}
	}
}
