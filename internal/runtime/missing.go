package runtime

import (
	"fmt"
	"slices"
	"strings"

	"fairlead.run/internal/pod"
)

// addMissing adds the configured default to the list of all handlers, if it is
// none of them: then whoever looks at the list sees why pods are refused.
func (r *Registry[H]) addMissing(list []pod.HandlerInfo) []pod.HandlerInfo {
	if d := r.set.Load().wanted.Default; d == "" || r.find(d) != nil {
		return list
	}
	return append(list, r.missing())
}

// warnMissing logs the same.
func (r *Registry[H]) warnMissing() {
	for _, h := range r.addMissing(nil) {
		r.cfg.Log.Warn("the default handler does not exist; pods that name no handler are refused",
			"default_handler", h.Name, "reason", h.Reason)
	}
}

// missing describes the configured default where no handler has its name. That
// can only be where no handler is configured.
func (r *Registry[H]) missing() pod.HandlerInfo {
	d := r.set.Load().wanted.Default
	why := fmt.Sprintf("default_handler = %q names no handler of this node; describe it in a table [handlers.%s], or name another", d, d)
	if slices.Contains(discoverable, d) {
		why = fmt.Sprintf("default_handler = %q is not installed: it is not in %s", d, strings.Join(r.cfg.Search, ", "))
	}
	return pod.HandlerInfo{Name: d, Kind: KindOCI, Default: true, Reason: why}
}
