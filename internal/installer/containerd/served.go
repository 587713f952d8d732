package containerd

import (
	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/fault"
)

// Served says which of the handlers is loaded with other settings than it is to have.
func Served(loaded map[string]cri.Loaded, all []Handler) error {
	for _, h := range For(all) {
		l := loaded[h.Name]
		config, _ := l.Options["ConfigPath"].(string)
		want := ""
		if h.Options != nil {
			want = h.Options.ConfigPath
		}
		if l.Type != h.RuntimeType || l.Path != h.RuntimePath || config != want {
			return fault.New(payload.HandlerNotServed, "handler %s is served with runtime_type %q, runtime_path %q and ConfigPath %q, and not with what was written", h.Name, l.Type, l.Path, config)
		}
	}
	return nil
}
