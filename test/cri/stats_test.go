package cri

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

func stats(c *node.Container) *runtimeapi.ContainerStats {
	n := c.Sandbox.Node
	n.T.Helper()
	r, err := n.Runtime.ContainerStats(n.Ctx(), &runtimeapi.ContainerStatsRequest{ContainerId: c.ID})
	if err != nil {
		n.T.Fatal(err)
	}
	return r.Stats
}

func podStats(s *node.Sandbox) *runtimeapi.LinuxPodSandboxStats {
	s.Node.T.Helper()
	r, err := s.Node.Runtime.PodSandboxStats(s.Node.Ctx(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: s.ID})
	if err != nil {
		s.Node.T.Fatal(err)
	}
	return r.Stats.Linux
}

const memoryOf = 64 << 20

// hold keeps as much memory as memoryOf/2 and waits.
const hold = "x=$(head -c 33554432 /dev/zero | tr '\\0' x); echo held; while :; do sleep 1000; done"

func TestMemoryOfContainers(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		cfg := node.Script(hold)
		limited(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 4 * memoryOf})(cfg)
		c, idle := s.Start(cfg), s.Start(node.Script("sleep 1000"))
		node.Eventually(t, "the container holds its memory", func() bool { return strings.Contains(c.Log(), "held") })
		m, i := stats(c).Memory, stats(idle).Memory
		if m.GetTimestamp() == 0 || m.GetUsageBytes().GetValue() < memoryOf/2 || m.GetWorkingSetBytes().GetValue() < memoryOf/2 || m.GetRssBytes().GetValue() < memoryOf/2 {
			t.Errorf("%v", m)
		}
		if got := m.GetAvailableBytes().GetValue() + m.GetWorkingSetBytes().GetValue(); got != 4*memoryOf {
			t.Errorf("available and working set together are %d: %v", got, m)
		}
		if m.GetPageFaults().GetValue() < memoryOf/2/4096/16 || m.MajorPageFaults == nil {
			t.Errorf("faults: %v", m)
		}
		if i.GetUsageBytes() == nil || i.GetUsageBytes().GetValue() >= memoryOf/2 || i.AvailableBytes != nil {
			t.Errorf("the idle container without a limit: %v", i)
		}
		if p := podStats(s); p.GetMemory().GetUsageBytes().GetValue() < memoryOf/2 || p.GetProcess().GetProcessCount().GetValue() < 2 {
			t.Errorf("the pod: %v", p)
		}
		s.Remove()
	})
}

func TestTimeOfContainers(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		busy, idle := s.Start(node.Script("while :; do :; done")), s.Start(node.Script("sleep 1000"))
		node.Eventually(t, "time and rate of the busy container", func() bool {
			c := stats(busy).Cpu
			return c.GetUsageCoreNanoSeconds().GetValue() > 3e8 && c.GetUsageNanoCores().GetValue() > 1e7
		})
		node.Eventually(t, "a rate of the idle container", func() bool { return stats(idle).Cpu.UsageNanoCores != nil })
		b, i, p := stats(busy).Cpu, stats(idle).Cpu, podStats(s)
		if i.GetUsageCoreNanoSeconds().GetValue() >= b.GetUsageCoreNanoSeconds().GetValue() || i.GetUsageNanoCores().GetValue() >= b.GetUsageNanoCores().GetValue() {
			t.Errorf("busy %v, idle %v", b, i)
		}
		if p.GetCpu().GetUsageCoreNanoSeconds().GetValue() < b.GetUsageCoreNanoSeconds().GetValue() {
			t.Errorf("the pod has used less than its container: %v, %v", p.GetCpu(), b)
		}
		s.Remove()
	})
}

func TestWritableLayerGrows(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		c := s.Start(node.Script("sleep 1000"))
		layer := func() *runtimeapi.FilesystemUsage { return stats(c).WritableLayer }
		node.Eventually(t, "the layer was measured", func() bool { return layer() != nil })
		before := layer()
		if before.GetFsId().GetMountpoint() == "" || before.GetTimestamp() == 0 {
			t.Errorf("%v", before)
		}
		c.Exec("sh", "-c", "mkdir /new && head -c 5000000 /dev/zero > /new/file && sync")
		node.Eventually(t, "the layer has grown", func() bool {
			now := layer()
			return now.GetUsedBytes().GetValue() >= before.GetUsedBytes().GetValue()+5_000_000 &&
				now.GetInodesUsed().GetValue() == before.GetInodesUsed().GetValue()+2
		})
		s.Remove()
	})
}

func TestTrafficOfPods(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s, quiet := n.RunPod(h), n.RunPod(h)
		s.Start(node.Script("mkdir /www && head -c 300000 /dev/zero > /www/index.html && httpd -f -p 80 -h /www"))
		node.Eventually(t, "a page", func() bool { return len(fetch("http://"+s.IPs()[0]+"/")) == 300000 })
		p, q := podStats(s).GetNetwork(), podStats(quiet).GetNetwork()
		d := p.GetDefaultInterface()
		if d.GetName() != "eth0" || d.GetTxBytes().GetValue() < 300000 || d.GetRxBytes().GetValue() == 0 || d.RxErrors == nil || d.TxErrors == nil || p.GetTimestamp() == 0 {
			t.Errorf("%v", p)
		}
		if q.GetDefaultInterface() == nil || q.GetDefaultInterface().GetTxBytes().GetValue() >= 300000 {
			t.Errorf("the other pod: %v", q)
		}
		host := n.RunPod(h, func(c *runtimeapi.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
		})
		if got := podStats(host); got.Network != nil {
			t.Errorf("a pod on the node's network: %v", got.Network)
		}
		for _, s := range []*node.Sandbox{s, quiet, host} {
			s.Remove()
		}
	})
}

func TestStatsLists(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	a := n.RunPod("runc", func(c *runtimeapi.PodSandboxConfig) { c.Labels = map[string]string{"app": "a"} })
	b := n.RunPod("crun", func(c *runtimeapi.PodSandboxConfig) { c.Labels = map[string]string{"app": "b"} })
	cfg := node.Script("sleep 1000")
	cfg.Labels, cfg.Annotations = map[string]string{"role": "main"}, map[string]string{"note": "kept"}
	first, second, third := a.Start(cfg), a.Start(node.Script("sleep 1000")), b.Start(node.Script("sleep 1000"))
	made, ended := b.Create(node.Script("true")), b.Start(node.Script("true"))
	ended.Wait()
	for name, tt := range map[string]struct {
		filter *runtimeapi.ContainerStatsFilter
		want   []string
	}{
		"none":  {nil, []string{first.ID, second.ID, third.ID}},
		"id":    {&runtimeapi.ContainerStatsFilter{Id: second.ID[:13]}, []string{second.ID}},
		"pod":   {&runtimeapi.ContainerStatsFilter{PodSandboxId: a.ID}, []string{first.ID, second.ID}},
		"label": {&runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{"role": "main"}}, []string{first.ID}},
		"ended": {&runtimeapi.ContainerStatsFilter{Id: ended.ID}, nil},
	} {
		l, err := n.Runtime.ListContainerStats(n.Ctx(), &runtimeapi.ListContainerStatsRequest{Filter: tt.filter})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, c := range l.Stats {
			got[c.Attributes.Id] = c.Cpu.GetUsageCoreNanoSeconds() != nil && c.Memory.GetWorkingSetBytes() != nil
		}
		same(t, name, got, tt.want)
	}
	at := stats(first).Attributes
	if at.Labels["role"] != "main" || at.Annotations["note"] != "kept" || at.Metadata.GetName() != cfg.Metadata.Name {
		t.Errorf("%v", at)
	}
	for _, id := range []string{made.ID, ended.ID, "0000"} {
		if _, err := n.Runtime.ContainerStats(n.Ctx(), &runtimeapi.ContainerStatsRequest{ContainerId: id}); status.Code(err) != codes.NotFound {
			t.Errorf("a container that does not run: %v", err)
		}
	}
	list := func(f *runtimeapi.PodSandboxStatsFilter) (out []string) {
		l, err := n.Runtime.ListPodSandboxStats(n.Ctx(), &runtimeapi.ListPodSandboxStatsRequest{Filter: f})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range l.Stats {
			out = append(out, p.Attributes.Id+" "+p.Attributes.Labels["app"]+" "+strconv.Itoa(len(p.Linux.Containers)))
		}
		slices.Sort(out)
		return out
	}
	of := func(s *node.Sandbox, app string, containers int) string {
		return fmt.Sprint(s.ID, " ", app, " ", containers)
	}
	both := []string{of(a, "a", 2), of(b, "b", 1)}
	slices.Sort(both)
	if got := list(nil); !slices.Equal(got, both) {
		t.Errorf("got %q, want %q", got, both)
	}
	if got := list(&runtimeapi.PodSandboxStatsFilter{LabelSelector: map[string]string{"app": "b"}}); !slices.Equal(got, []string{of(b, "b", 1)}) {
		t.Errorf("by label: %q", got)
	}
	if _, err := n.Runtime.StopPodSandbox(n.Ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: b.ID}); err != nil {
		t.Fatal(err)
	}
	if got := list(&runtimeapi.PodSandboxStatsFilter{Id: b.ID}); len(got) != 0 {
		t.Errorf("of a stopped pod: %q", got)
	}
	if _, err := n.Runtime.PodSandboxStats(n.Ctx(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: b.ID}); status.Code(err) != codes.NotFound {
		t.Errorf("of a stopped pod: %v", err)
	}
}

// A daemon that starts anew measures what runs.
func TestStatsAfterARestart(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	s := n.RunPod("crun")
	c := s.Start(node.Script("sleep 1000"))
	before := stats(c).Cpu.GetUsageCoreNanoSeconds().GetValue()
	n.Restart()
	now := stats(c).Cpu
	if now.GetUsageCoreNanoSeconds().GetValue() < before || now.UsageNanoCores != nil {
		t.Errorf("before %d, now %v", before, now)
	}
	if d := podStats(s).GetNetwork().GetDefaultInterface(); d.GetName() != "eth0" {
		t.Errorf("%v", d)
	}
}
