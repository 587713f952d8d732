package cri

import (
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// What a container uses its sandbox tells, each apart from the others.
func TestGVisorMeasuresContainers(t *testing.T) {
	n := gvisor(t)
	s := n.RunPod("runsc")
	c, idle := s.Start(node.Script(hold)), s.Start(node.Script(forever))
	node.Eventually(t, "the container holds its memory", func() bool { return strings.Contains(c.Log(), "held") })
	ready(t, idle)
	busy, still := stats(c), stats(idle)
	if got := busy.GetMemory().GetWorkingSetBytes().GetValue(); got < memoryOf/2 || got > 8*memoryOf {
		t.Errorf("the container that holds %d bytes uses %d", memoryOf/2, got)
	}
	if m := still.GetMemory(); m.GetUsageBytes() == nil || m.GetUsageBytes().GetValue() > memoryOf/4 {
		t.Errorf("the idle one uses %v", m)
	}
	if m := busy.GetMemory(); m.RssBytes != nil || m.AvailableBytes != nil || m.PageFaults != nil {
		t.Errorf("the sandbox does not tell this: %v", m)
	}
	if got := still.GetCpu().GetUsageCoreNanoSeconds().GetValue(); got == 0 {
		t.Error("the idle one has used no processor time")
	}
	// What an exec uses is the container's, too.
	before := stats(idle).GetCpu().GetUsageCoreNanoSeconds().GetValue()
	idle.Exec("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
	var after uint64
	node.Eventually(t, "the exec's processor time", func() bool {
		after = stats(idle).GetCpu().GetUsageCoreNanoSeconds().GetValue()
		return after > before+uint64(20*time.Millisecond)
	})
	list, err := n.Runtime.ListContainerStats(n.Ctx(), &runtimeapi.ListContainerStatsRequest{})
	if err != nil || len(list.Stats) != 2 {
		t.Fatalf("%v %v", list, err)
	}
	for _, x := range list.Stats {
		if x.Cpu.GetUsageCoreNanoSeconds() == nil || x.Memory.GetUsageBytes() == nil {
			t.Errorf("in the list: %v", x)
		}
	}
	p := podStats(s)
	if p.GetMemory().GetWorkingSetBytes().GetValue() < memoryOf/2 || p.GetCpu() == nil || len(p.GetContainers()) != 2 || p.GetContainers()[0].GetMemory() == nil {
		t.Errorf("the pod: %v", p)
	}
	if got := insideMetrics(n)["container_threads"]; got != 2 {
		t.Errorf("%d containers have a number of threads", got)
	}
	s.Remove()
}

// insideMetrics counts the containers that have a metric.
func insideMetrics(n *node.Node) map[string]int {
	n.T.Helper()
	r, err := n.Runtime.ListPodSandboxMetrics(n.Ctx(), &runtimeapi.ListPodSandboxMetricsRequest{})
	if err != nil {
		n.T.Fatal(err)
	}
	count := map[string]int{}
	for _, p := range r.PodMetrics {
		for _, c := range p.ContainerMetrics {
			for _, m := range c.Metrics {
				count[m.Name]++
			}
		}
	}
	return count
}

// A sandbox that hangs costs its own pod the numbers, and nobody else.
func TestGVisorMeasuresBesideOneThatHangs(t *testing.T) {
	n := gvisor(t)
	stuck, good := n.RunPod("runsc"), n.RunPod("runsc")
	victim, other := stuck.Start(node.Script(forever)), good.Start(node.Script(forever))
	ready(t, victim)
	ready(t, other)
	pid := sentryOf(t, stuck.ID)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		node.Eventually(t, "the numbers of the other, on a machine that may be busy", func() bool {
			list, err := n.Runtime.ListContainerStats(n.Ctx(), &runtimeapi.ListContainerStatsRequest{})
			if err != nil || len(list.Stats) != 2 {
				t.Fatalf("%v %v", list, err)
			}
			told := map[string]bool{}
			for _, x := range list.Stats {
				told[x.Attributes.Id] = x.Memory != nil
			}
			if told[victim.ID] {
				t.Errorf("a sandbox that hangs has told something: %v", list)
			}
			return told[other.ID]
		})
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	node.Eventually(t, "the numbers", func() bool { return stats(victim).Memory != nil })
	stuck.Remove()
	good.Remove()
}
