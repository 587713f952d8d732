package cri

import (
	"os"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// kernelHasSELinux says whether the kernel labels processes by a policy. One
// that has been given none yet calls all of them "kernel".
func kernelHasSELinux() bool {
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err != nil {
		return false
	}
	own, err := os.ReadFile("/proc/self/attr/current")
	return err == nil && strings.TrimRight(string(own), "\x00\n") != "kernel"
}

func labelled(o *runtimeapi.SELinuxOption) func(*containerConfig) {
	return secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.SelinuxOptions = o })
}

func TestSELinuxLabelsWhereDisabled(t *testing.T) {
	if kernelHasSELinux() {
		t.Skip("SELinux is enabled here, and this test is about hosts without")
	}
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		// A host without SELinux has no labels to give, and pods that ask run.
		must(t, n.Inside(h, "echo ran", labelled(&runtimeapi.SELinuxOption{Level: "s0:c1,c2"})), "ran")
	})
}

func TestSELinuxLabels(t *testing.T) {
	if !kernelHasSELinux() {
		t.Skip("needs a host with SELinux and a policy loaded")
	}
	own := func() string {
		b, err := os.ReadFile("/proc/self/attr/current")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimRight(string(b), "\x00\n")
	}()
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		const label = "tr -d '\\000' </proc/self/attr/current"
		level := func(l string) string { return strings.Join(strings.SplitN(l, ":", 4)[3:], "") }
		asked := n.Inside(h, label+"; echo; grep ' /dev ' /proc/mounts", labelled(&runtimeapi.SELinuxOption{Level: "s0:c1,c2"}))
		text, dev, _ := strings.Cut(asked, "\n")
		if level(text) != "s0:c1,c2" || text == own || !strings.Contains(dev, "s0:c1,c2") {
			t.Errorf("label %q, /dev %q; asked for s0:c1,c2, and the node itself is %s", text, dev, own)
		}
		// The containers of a pod share a level that nobody asked for, and pods do not.
		s := n.RunPod(h)
		one, two := s.Start(node.Script("sleep 1000")), s.Start(node.Script("sleep 1000"))
		first, second := one.Exec("sh", "-c", label), two.Exec("sh", "-c", label)
		if first != second || !strings.HasPrefix(level(first), "s0:c") {
			t.Errorf("containers of one pod have the labels %q and %q", first, second)
		}
		s.Remove()
		if other := n.Inside(h, label, nil); level(other) == level(first) {
			t.Errorf("two pods have the label %q", other)
		}
		if got := n.Inside(h, label, secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = true }), privilegedPod); level(got) == level(first) {
			t.Errorf("a privileged container has the label %q", got)
		}
	})
}
