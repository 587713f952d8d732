package nri

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/pod"
)

// thing is a pod with one container, and the container's spec.
func thing() (*pod.Record, *pod.Container, *specs.Spec) {
	c := &pod.Container{ID: "container", State: pod.Created}
	r := &pod.Record{ID: "pod", State: pod.Running, Containers: []*pod.Container{c}}
	s := &specs.Spec{Process: &specs.Process{}, Linux: &specs.Linux{Resources: &specs.LinuxResources{}}}
	return r, c, s
}

// A container is shown whatever it has, and without its spec, too.
func TestViewOfLittle(t *testing.T) {
	r, c, s := thing()
	if v := containerView(r, c, s); v.GetId() != "container" || v.GetPodSandboxId() != "pod" {
		t.Errorf("%+v", v)
	}
	if v := containerView(r, c, nil); v.GetId() != "container" {
		t.Errorf("%+v", v)
	}
	if v := podView(r); v.GetId() != "pod" {
		t.Errorf("%+v", v)
	}
}
