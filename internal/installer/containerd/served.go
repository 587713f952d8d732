package containerd

import (
	"cmp"
	"fmt"
	"strconv"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/fault"
)

// Served says which of the handlers is loaded with other settings than it is to have.
func Served(loaded map[string]cri.Loaded, all []Handler) error {
	for _, h := range For(all) {
		for _, s := range settings(loaded[h.Name], h) {
			if s.is != s.want {
				return fault.New(payload.HandlerNotServed, "handler %s is served with %s %s, and %s was written", h.Name, s.key, s.is, s.want)
			}
		}
	}
	return nil
}

// setting is one key of a handler, as it is and as it was written, as text.
type setting struct{ key, is, want string }

// settings are all that are written. What was not written may come from another file that
// containerd merges, which is for those who wrote that.
func settings(l cri.Loaded, h Handler) []setting {
	o := payload.ContainerdOptions{}
	if h.Options != nil {
		o = *h.Options
	}
	option := func(key string) string {
		s, _ := l.Options[key].(string)
		return strconv.Quote(s)
	}
	all := []setting{
		{"runtime_type", strconv.Quote(l.Type), strconv.Quote(h.RuntimeType)},
		{"runtime_path", strconv.Quote(l.Path), strconv.Quote(h.RuntimePath)},
		{"the option TypeUrl", option("TypeUrl"), strconv.Quote(o.TypeURL)},
		{"the option ConfigPath", option("ConfigPath"), strconv.Quote(o.ConfigPath)},
		{"the option BinaryName", option("BinaryName"), strconv.Quote(o.BinaryName)},
	}
	if h.Snapshotter != "" {
		all = append(all, setting{"snapshotter", strconv.Quote(l.Snapshotter), strconv.Quote(h.Snapshotter)})
	}
	if len(h.PodAnnotations) > 0 {
		all = append(all, setting{"pod_annotations", fmt.Sprintf("%q", l.PodAnnotations), fmt.Sprintf("%q", h.PodAnnotations)})
	}
	if len(h.ContainerAnnotations) > 0 {
		all = append(all, setting{"container_annotations", fmt.Sprintf("%q", l.ContainerAnnotations), fmt.Sprintf("%q", h.ContainerAnnotations)})
	}
	if h.PrivilegedWithoutHostDevices {
		all = append(all, setting{"privileged_without_host_devices", strconv.FormatBool(l.PrivilegedWithoutHostDevices), "true"})
	}
	if o.SystemdCgroup != nil {
		on, _ := l.Options["SystemdCgroup"].(bool)
		all = append(all, setting{"the option SystemdCgroup", strconv.FormatBool(on), strconv.FormatBool(*o.SystemdCgroup)})
	}
	if h.Sandboxer != "" { // releases before 2.0 have none, and do not tell one
		all = append(all, setting{"sandboxer", cmp.Or(l.Sandboxer, h.Sandboxer), h.Sandboxer})
	}
	return all
}
