package criserver

import (
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// signal is the signal as the kernel's headers spell it: "SIGTERM",
// "SIGRTMIN+3". The runtime's default is "".
func (d *decoder) signal(field string, s cri.Signal) string {
	name, ok := cri.Signal_name[int32(s)]
	if !ok {
		d.fail(field, "is %d, which this version of Fairlead does not know", s)
		return ""
	}
	if s == cri.Signal_SIGNAL_RUNTIME_DEFAULT {
		return ""
	}
	name = strings.TrimPrefix(name, "SIGNAL_")
	name = strings.Replace(name, "RTMINPLUS", "RTMIN+", 1)
	return strings.Replace(name, "RTMAXMINUS", "RTMAX-", 1)
}

// encodeSignal is the reverse, and SIGNAL_RUNTIME_DEFAULT for what the CRI has
// no name for: an image may ask for a signal by its number.
func encodeSignal(s string) cri.Signal {
	name := strings.TrimPrefix(strings.ToUpper(s), "SIG")
	name = strings.Replace(name, "RTMIN+", "RTMINPLUS", 1)
	name = strings.Replace(name, "RTMAX-", "RTMAXMINUS", 1)
	return cri.Signal(cri.Signal_value["SIGNAL_SIG"+name])
}
