package containerd

import (
	"fmt"
	"strings"

	"fairlead.run/internal/installer/tomledit"
)

// render writes handlers as tables, in their order, so that the same handlers
// always give the same text.
func render(version int, handlers []Handler) string {
	var b strings.Builder
	for _, h := range handlers {
		fmt.Fprintf(&b, "[%s]\n", tomledit.Path(runtimes(version, h.Name)...))
		text(&b, "  ", "runtime_type", h.RuntimeType)
		text(&b, "  ", "runtime_path", h.RuntimePath)
		text(&b, "  ", "snapshotter", h.Snapshotter)
		text(&b, "  ", "sandboxer", h.Sandboxer)
		list(&b, "pod_annotations", h.PodAnnotations)
		list(&b, "container_annotations", h.ContainerAnnotations)
		if h.PrivilegedWithoutHostDevices {
			b.WriteString("  privileged_without_host_devices = true\n")
		}
		o := h.Options
		if o == nil {
			continue
		}
		fmt.Fprintf(&b, "  [%s]\n", tomledit.Path(runtimes(version, h.Name, "options")...))
		text(&b, "    ", "TypeUrl", o.TypeURL)
		text(&b, "    ", "ConfigPath", o.ConfigPath)
		text(&b, "    ", "BinaryName", o.BinaryName)
		if o.SystemdCgroup != nil {
			fmt.Fprintf(&b, "    SystemdCgroup = %v\n", *o.SystemdCgroup)
		}
	}
	return b.String()
}

func text(b *strings.Builder, indent, key, value string) {
	if value != "" {
		fmt.Fprintf(b, "%s%s = %s\n", indent, key, tomledit.Quote(value))
	}
}

func list(b *strings.Builder, key string, values []string) {
	if len(values) == 0 {
		return
	}
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = tomledit.Quote(v)
	}
	fmt.Fprintf(b, "  %s = [%s]\n", key, strings.Join(quoted, ", "))
}
