package oci

import (
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/api/config/v1alpha1"
	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime"
)

// A flag that the administrator has set is not set again: the last one would win.
func TestFlagsOf(t *testing.T) {
	if f := flagsOf("runc", nil); f != nil {
		t.Errorf("runc gets %q", f)
	}
	all := flagsOf(gVisor, []string{"--platform=kvm"})
	for _, want := range []string{"--overlay2=none", "--oci-seccomp", "--allow-suid", "--gofer-network-namespace=new"} {
		if !slices.Contains(all, want) {
			t.Errorf("%s is not in %q", want, all)
		}
	}
	some := flagsOf(gVisor, []string{"-allow-suid=false", "--overlay2=all:memory"})
	if slices.ContainsFunc(some, func(f string) bool { return strings.Contains(f, "suid") || strings.Contains(f, "overlay2") }) || len(some) != len(all)-2 {
		t.Errorf("%q", some)
	}
}

// The network of a pod is where its gofers are, too; a pod on the node's has none.
func TestNetworkOfASandbox(t *testing.T) {
	def := runtime.Definition{Name: "runsc", Handler: v1alpha1.Handler{Path: "/bin/true"}}
	h := &Handler{def: def, tool: tool{def: def}, info: func() pod.HandlerInfo { return pod.HandlerInfo{Runtime: gVisor} }}
	argv, err := h.argv("", "run", "--pid-file", "p", "id")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		namespaces []specs.LinuxNamespace
		has, lacks string
	}{
		{[]specs.LinuxNamespace{{Type: specs.NetworkNamespace, Path: "/pod/net"}}, "--gofer-network-namespace=/pod/net", "--network=host"},
		{[]specs.LinuxNamespace{{Type: specs.NetworkNamespace}}, "--gofer-network-namespace=new", "--network=host"},
		{nil, "--network=host", "--gofer-network-namespace=/pod/net"},
	} {
		has := &traces{}
		has.Linux.Namespaces = tt.namespaces
		got := h.inSandbox(monitorv1.StartRequest{ID: "id", Command: argv}, has).Command
		if !slices.Contains(got, tt.has) || slices.Contains(got, tt.lacks) {
			t.Errorf("%+v: %q", tt.namespaces, got)
		}
	}
	if slices.Contains(argv, "--gofer-network-namespace=/pod/net") {
		t.Error("what the caller has was changed")
	}
}
