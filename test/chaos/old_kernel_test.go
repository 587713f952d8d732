package chaos

import (
	"fmt"
	"os"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// saidLost says whether the exit code is rightly unknown: before 6.15, in a
// network namespace of their own, as tests are, nobody knows how a process ended
// whose parents were killed.
func saidLost(t *testing.T, st *runtimeapi.ContainerStatus) bool {
	t.Helper()
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	var major, minor int
	_, _ = fmt.Sscanf(string(release), "%d.%d", &major, &minor)
	old := major < 6 || major == 6 && minor < 15
	return old && st.ExitCode == 255 && st.Reason == "ContainerStatusUnknown"
}
