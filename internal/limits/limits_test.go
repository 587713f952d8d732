package limits

import (
	"errors"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func TestHugepages(t *testing.T) {
	sizes := PageSizes()
	if len(sizes) == 0 {
		t.Skip("this kernel has no huge pages")
	}
	r := &pod.Resources{HugepageLimits: []pod.HugepageLimit{{PageSize: sizes[0], Limit: 4 << 20}, {PageSize: "7GB"}}}
	for _, there := range []bool{true, false} {
		c := conversion{at: "resources.", r: r}
		c.out, _, _ = Convert("", nil, Host{})
		if err := c.hugepages(func() bool { return there }); err != nil {
			t.Fatal(err)
		}
		limits, warnings := 1, 0
		if !there {
			limits, warnings = 0, 1
		}
		if len(c.out.HugepageLimits) != limits || len(c.warnings) != warnings {
			t.Errorf("with the controller: %t: %v, warnings %v", there, c.out.HugepageLimits, c.warnings)
		}
		if !there && !strings.HasPrefix(c.warnings[0], "resources.hugepage_limits: there is no hugetlb controller") {
			t.Errorf("warned with %q", c.warnings[0])
		}
	}
}

// What the caller has called the field is in the error.
func TestFieldsAreNamed(t *testing.T) {
	_, _, err := Convert("overhead.", &pod.Resources{CpusetCPUs: "4096"}, Host{})
	if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.HasPrefix(err.Error(), "overhead.cpuset_cpus is \"4096\"; this node has the processors 0") {
		t.Errorf("%v", err)
	}
	_, _, err = Convert("resources.", &pod.Resources{Unified: map[string]string{"memory.high": "1"}}, Host{})
	if !errors.Is(err, errdefs.ErrUnimplemented) || !strings.HasPrefix(err.Error(), `resources.unified["memory.high"] needs cgroup v2`) {
		t.Errorf("%v", err)
	}
}

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		all, some string
		want, bad bool
	}{
		{"0-3,7", "0", true, false},
		{"0-3,7", "1-3,7", true, false},
		{"0-3,7", "4", false, false},
		{"0-3,7", "0-2000000000", false, false},
		{"0-3", "2-1", false, true},
		{"0-3", "99999999999999999999", false, true},
	} {
		got, err := covers(tt.all, tt.some)
		if got != tt.want || (err != nil) != tt.bad {
			t.Errorf("%s covers %s: %t, %v", tt.all, tt.some, got, err)
		}
	}
}
