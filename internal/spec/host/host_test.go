package host

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// A capability outside of the bounding set must never be promised: runtimes
// fail to raise it.
func TestProbe(t *testing.T) {
	h, err := Probe()
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	bits := 0
	for line := range strings.Lines(string(status)) {
		if set, ok := strings.CutPrefix(line, "CapBnd:\t"); ok && os.Geteuid() == 0 {
			for _, c := range strings.TrimSpace(set) {
				digit := strings.IndexRune("0123456789abcdef", c)
				bits += digit&1 + digit>>1&1 + digit>>2&1 + digit>>3&1
			}
			if bits != len(h.Capabilities) {
				t.Errorf("%d capabilities of %d: %v", len(h.Capabilities), bits, h.Capabilities)
			}
		}
	}
	if len(h.Rlimits) != len(RlimitNumbers) || h.Rlimits["RLIMIT_NOFILE"] == 0 {
		t.Errorf("limits %v", h.Rlimits)
	}
}

// Whoever is filtered must not ask the kernel about x32: the answer may be death.
func TestX32IsNotAskedByTheFiltered(t *testing.T) {
	h, err := Probe()
	if err != nil {
		t.Fatal(err)
	}
	if filtered() && runtime.GOARCH == "amd64" && !h.X32 {
		t.Error("the kernel was asked")
	}
}
