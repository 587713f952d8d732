package crio

import (
	"slices"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/cri"
	"fairlead.run/internal/installer/fault"
)

// Served says which of the handlers is loaded with other settings than it is to have;
// loaded is nil where CRI-O does not show that.
func Served(loaded map[string]cri.Loaded, all []Handler) error {
	if loaded == nil {
		return nil
	}
	for _, h := range all {
		l, ok := loaded[h.Name]
		if ok && l.Monitor == "" && NeedsMonitor(h.RuntimeType) {
			return fault.New(payload.HandlerNotServed, "handler %s is served without a monitor, so that no container starts on it: CRI-O has read its files by SIGHUP, and has to be restarted", h.Name)
		}
		if !ok || l.Type != h.RuntimeType || l.Path != h.RuntimePath || l.ConfigPath != h.RuntimeConfigPath {
			return fault.New(payload.HandlerNotServed, "handler %s is served with runtime_type %q, runtime_path %q and runtime_config_path %q, and not with what was written; CRI-O keeps what it had if it does not like its configuration, and its log says why", h.Name, l.Type, l.Path, l.ConfigPath)
		}
		root := h.RuntimeRoot != "" && l.Root != h.RuntimeRoot
		annotations := len(h.AllowedAnnotations) > 0 && !slices.Equal(l.AllowedAnnotations, h.AllowedAnnotations)
		if root || annotations || h.PrivilegedWithoutHostDevices && !l.PrivilegedWithoutHostDevices {
			return fault.New(payload.HandlerNotServed, "handler %s is served with runtime_root %q, allowed_annotations %q and privileged_without_host_devices %v, and not with what was written; CRI-O keeps what it had if it does not like its configuration, and its log says why", h.Name, l.Root, l.AllowedAnnotations, l.PrivilegedWithoutHostDevices)
		}
	}
	return nil
}
