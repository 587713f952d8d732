package release

import (
	"slices"
	"strings"
	"testing"
)

func TestOlder(t *testing.T) {
	inOrder := []string{"0.9", "0.10", "0.10.5", "1.0-rc", "1.0.0-rc7", "1.0.0~rc93+ds1", "1.0.0-rc.95", "1", "1.1.5+ds1", "1.1.12-0ubuntu3", "1.2.0-rc.3", "v1.2", "1.10.0", "release-20260905.0", "20260905.1"}
	for i, a := range inOrder {
		for j, b := range inOrder {
			if got := Older(a, b); got != (i < j) {
				t.Errorf("%s before %s: %v", a, b, got)
			}
		}
	}
	for _, same := range [][2]string{{"1.1.5", "1.1.5+ds1"}, {"1.1", "1.1.0"}, {"v1.4.0", "1.4.0-dev"}} {
		if Older(same[0], same[1]) || Older(same[1], same[0]) {
			t.Errorf("one of %q is older", same)
		}
	}
	if !Older("VERSION_MISSING", "0.1") || Older("0.1", "unknown") || Older("", "unknown") {
		t.Error("what is no version comes before all others")
	}
}

func TestFlaws(t *testing.T) {
	for _, tc := range []struct {
		runtime, number string
		first           string // of what it has
		n               int
	}{
		{"runc", "1.0.0-rc6", "CVE-2019-5736", 8},
		{"runc", "1.0.0-rc93", "CVE-2021-30465", 6},
		{"runc", "1.0.0", "CVE-2023-27561", 6},
		{"runc", "1.1.5+ds1", "CVE-2024-21626", 5},
		{"runc", "1.1.11", "CVE-2024-21626", 5},
		{"runc", "1.1.12", "CVE-2024-45310", 4},
		{"runc", "1.1.15", "CVE-2025-31133", 3},
		{"runc", "1.2.0-rc.2", "CVE-2024-45310", 4},
		{"runc", "1.2.7", "CVE-2025-31133", 3},
		{"runc", "1.2.8", "", 0},
		{"runc", "1.3.2", "CVE-2025-31133", 3},
		{"runc", "1.3.3", "", 0},
		{"runc", "1.4.0-rc.2", "CVE-2025-31133", 3},
		{"runc", "1.4.0-rc.3", "", 0},
		{"runc", "1.5.2", "", 0},
		{"crun", "0.10.4", "CVE-2019-18837", 1},
		{"crun", "1.8.1", "", 0},
		{"runsc", "release-20260905.0", "", 0},
		{"runc", "unknown", "", 0},
	} {
		got := Flaws(tc.runtime, tc.number)
		if len(got) != tc.n || tc.n > 0 && got[0].ID != tc.first {
			t.Errorf("%s %s: %+v", tc.runtime, tc.number, got)
		}
	}
}

// The table is read from its beginning to its end: branches have to be in order.
func TestTableIsInOrder(t *testing.T) {
	for runtime, all := range flaws {
		for _, f := range all {
			if len(f.mended) == 0 || !slices.IsSortedFunc(f.mended, compare) {
				t.Errorf("%s: %s was mended in %q", runtime, f.id, f.mended)
			}
			for _, m := range f.mended {
				if !Valid(m) {
					t.Errorf("%s: %s has %q for a version", runtime, f.id, m)
				}
			}
			if !strings.HasPrefix(f.id, "CVE-") || f.what == "" {
				t.Errorf("%s: %+v", runtime, f)
			}
		}
	}
}

func compare(a, b string) int {
	switch {
	case Older(a, b):
		return -1
	case Older(b, a):
		return 1
	}
	return 0
}

func TestFloor(t *testing.T) {
	for _, ok := range [][2]string{{"1.2.8", ""}, {"unknown", ""}, {"1.2.8", "1.2.8"}, {"1.3.0", "1.2.8"}} {
		if err := Floor("x", "runc", ok[0], ok[1]); err != nil {
			t.Errorf("%s where %q is wanted: %v", ok[0], ok[1], err)
		}
	}
	err := Floor("x", "runc", "1.2.7", "1.2.8")
	if want := "it is runc 1.2.7, and handlers.x.min_version wants 1.2.8 (by its version it has CVE-2025-31133, CVE-2025-52565, CVE-2025-52881); install that or a newer one"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := Floor("x", "crun", "1.20", "1.27"); err == nil || strings.Contains(err.Error(), "CVE") {
		t.Errorf("without flaws: %v", err)
	}
	if err := Floor("x", "runsc", "VERSION_MISSING", "20260101.0"); err == nil || !strings.Contains(err.Error(), `"VERSION_MISSING"`) {
		t.Errorf("what cannot be compared: %v", err)
	}
}
