package show

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// TopPods are the rows of what pods use, or each of their containers. What could not be
// measured is empty.
func TopPods(list []statsv1.PodStats, containers bool) [][]string {
	out := [][]string{{"NAME", "CPU(cores)", "MEMORY(bytes)"}}
	if containers {
		out[0] = append([]string{"POD"}, out[0]...)
	}
	for _, p := range list {
		name := Name(p.PodRef.Namespace, p.PodRef.Name)
		if !containers {
			out = append(out, []string{name, cores(p.CPU), workingSet(p.Memory)})
			continue
		}
		for _, c := range p.Containers {
			out = append(out, []string{name, c.Name, cores(c.CPU), workingSet(c.Memory)})
		}
	}
	return out
}

// TopNode is what a node uses, and how much that is of what its pods may have.
func TopNode(s statsv1.NodeStats, n *corev1.Node) [][]string {
	cpu, mem := "", ""
	if s.CPU != nil && s.CPU.UsageNanoCores != nil {
		cpu = percent(float64(*s.CPU.UsageNanoCores)/1e6, float64(allocatable(n, corev1.ResourceCPU).MilliValue()))
	}
	if s.Memory != nil && s.Memory.WorkingSetBytes != nil {
		mem = percent(float64(*s.Memory.WorkingSetBytes), float64(allocatable(n, corev1.ResourceMemory).Value()))
	}
	return [][]string{
		{"NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"},
		{s.NodeName, cores(s.CPU), cpu, workingSet(s.Memory), mem},
	}
}

func allocatable(n *corev1.Node, name corev1.ResourceName) *resource.Quantity {
	q := n.Status.Allocatable[name]
	return &q
}

func percent(part, of float64) string {
	if of <= 0 {
		return ""
	}
	return fmt.Sprintf("%.0f%%", 100*part/of)
}

func cores(s *statsv1.CPUStats) string {
	if s == nil || s.UsageNanoCores == nil {
		return ""
	}
	return fmt.Sprintf("%dm", (*s.UsageNanoCores+999_999)/1_000_000) // what runs is never 0m
}

func workingSet(s *statsv1.MemoryStats) string {
	if s == nil || s.WorkingSetBytes == nil {
		return ""
	}
	return memory(int64(*s.WorkingSetBytes))
}
