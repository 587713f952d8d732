package join

import (
	"io"
	"runtime"
	"strings"

	"fairlead.run/internal/node/cluster/nodestatus"
	"fairlead.run/internal/telemetry"
)

// version returns what writes which kubelet the node behaves as, for alerts that compare the
// parts of a cluster. Of the commit and the day there is nothing to say.
func version() func(io.Writer) error {
	var r telemetry.Registry
	major, rest, _ := strings.Cut(strings.TrimPrefix(nodestatus.KubeletVersion, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	r.Gauge("kubernetes_build_info", "The version of Kubernetes that the node behaves as. The value is always 1.",
		[]string{"major", "minor", "git_version", "go_version", "compiler", "platform"}, func(tell func(float64, ...string)) {
			tell(1, major, minor, nodestatus.KubeletVersion, runtime.Version(), runtime.Compiler, runtime.GOOS+"/"+runtime.GOARCH)
		})
	return r.Write
}
