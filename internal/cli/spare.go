package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
)

// sparedScore is by how much the kernel spares who keeps pods when memory runs out, and what it
// starts: as a kubelet, the last of all that may be ended. Containers have scores of their own.
const sparedScore = -999

// ownScore is where the kernel has the score of this process.
const ownScore = "/proc/self/oom_score_adj"

// spare gives this process a score. Who may not take a better one goes on with what it has, and
// is told.
func spare(to io.Writer, file string, score int) {
	if err := os.WriteFile(file, []byte(strconv.Itoa(score)), 0o644); err != nil {
		_, _ = fmt.Fprintf(to, "fairlead: the kernel may end this process before pods when memory runs out, as it cannot be given the oom_score_adj %d: %v; give it the capability CAP_SYS_RESOURCE, or set OOMScoreAdjust in its unit\n", score, err)
	}
}
