package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// byKind are the tests of drivers that provoke a finding without its code: an
// audit has no more to do with it than to put the two together.
var byKind = map[Code][2]string{
	"address-leftover": {"network/bridge/audit_test.go", "TestAuditFindsLeaks"},
	"port-leftover":    {"network/bridge/audit_test.go", "TestAuditFindsLeaks"},
}

// TestCodesAreProvoked wants a test for each code in which an audit of real
// drivers finds it: a code that nothing provokes may be one that nothing says.
func TestCodesAreProvoked(t *testing.T) {
	var all strings.Builder
	for _, pattern := range []string{"../../test/chaos/fsck_*_test.go", "../daemon/audit_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no tests in %s: %v", pattern, err)
		}
		for _, f := range files {
			all.WriteString(read(t, f))
		}
	}
	for _, r := range Rules() {
		where, elsewhere := byKind[r.Code()]
		switch {
		case elsewhere && !strings.Contains(read(t, filepath.Join("..", where[0])), "func "+where[1]+"("):
			t.Errorf("%s: %s is not in %s any more", r.Code(), where[1], where[0])
		case !elsewhere && !strings.Contains(all.String(), `"`+string(r.Code())+`"`):
			t.Errorf("no test of an audit provokes %s", r.Code())
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
