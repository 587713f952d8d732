package containerd

import (
	"strings"
	"testing"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/cri"
)

// Each setting that was written has to be the one that is served, and what was not written
// must not be left from another version.
func TestServed(t *testing.T) {
	on := true
	h := Handler{Name: "test", ContainerdHandler: payload.ContainerdHandler{
		RuntimeType: "io.containerd.runc.v2", RuntimePath: "/2/shim", Snapshotter: "a", Sandboxer: "shim", PodAnnotations: []string{"p.*"}, ContainerAnnotations: []string{"c"},
		PrivilegedWithoutHostDevices: true,
		Options:                      &payload.ContainerdOptions{TypeURL: "t", ConfigPath: "/2/c", BinaryName: "/2/b", SystemdCgroup: &on},
	}}
	good := func() cri.Loaded {
		return cri.Loaded{
			Type: "io.containerd.runc.v2", Path: "/2/shim", Snapshotter: "a", Sandboxer: "shim", PodAnnotations: []string{"p.*"}, ContainerAnnotations: []string{"c"},
			PrivilegedWithoutHostDevices: true,
			Options:                      map[string]any{"TypeUrl": "t", "ConfigPath": "/2/c", "BinaryName": "/2/b", "SystemdCgroup": true, "Root": "/own"},
		}
	}
	served := func(l cri.Loaded, h Handler) error {
		return Served(map[string]cri.Loaded{"test": l}, []Handler{h})
	}
	if err := served(good(), h); err != nil {
		t.Error(err)
	}
	for key, change := range map[string]func(l *cri.Loaded){
		"runtime_type":                    func(l *cri.Loaded) { l.Type = "io.containerd.runc.v1" },
		"runtime_path":                    func(l *cri.Loaded) { l.Path = "/1/shim" },
		"snapshotter":                     func(l *cri.Loaded) { l.Snapshotter = "" },
		"sandboxer":                       func(l *cri.Loaded) { l.Sandboxer = "podsandbox" },
		"pod_annotations":                 func(l *cri.Loaded) { l.PodAnnotations = nil },
		"container_annotations":           func(l *cri.Loaded) { l.ContainerAnnotations = []string{"c", "d"} },
		"privileged_without_host_devices": func(l *cri.Loaded) { l.PrivilegedWithoutHostDevices = false },
		"TypeUrl":                         func(l *cri.Loaded) { delete(l.Options, "TypeUrl") },
		"ConfigPath":                      func(l *cri.Loaded) { l.Options["ConfigPath"] = "/1/c" },
		"BinaryName":                      func(l *cri.Loaded) { l.Options["BinaryName"] = "/1/b" },
		"SystemdCgroup":                   func(l *cri.Loaded) { l.Options["SystemdCgroup"] = false },
	} {
		l := good()
		change(&l)
		if err := served(l, h); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
	plain := Handler{Name: "test", ContainerdHandler: payload.ContainerdHandler{RuntimeType: "io.containerd.x.v1"}}
	byItself := cri.Loaded{Type: "io.containerd.x.v1", Sandboxer: "podsandbox", PodAnnotations: []string{}, Options: map[string]any{"SystemdCgroup": true, "BinaryName": ""}}
	if err := served(byItself, plain); err != nil {
		t.Error(err)
	}
	byItself.Snapshotter, byItself.PodAnnotations, byItself.PrivilegedWithoutHostDevices = "nydus", []string{"an.admins"}, true
	if err := served(byItself, plain); err != nil {
		t.Errorf("what another file adds is a fault: %v", err)
	}
}
