package report

import (
	_ "embed"
	"fmt"
	"strings"
)

// nodeNotes is what the numbers of nodes mean, in words.
//
//go:embed node.md
var nodeNotes string

// The variants of the benchmark of nodes.
const (
	NodeFairlead = "fairlead node"
	NodeKubelet  = "kubelet, containerd"
)

// The metrics of the benchmark of nodes, beside Memory and CPU.
const (
	// Ready is from the start of kubectl apply until the API server says that the pod
	// is Ready, or all pods.
	Ready = "kubectl apply until Ready"
	// Created, Bound and OnNode are its parts.
	Created = "until the pod is created"
	Bound   = "until the scheduler has bound it"
	OnNode  = "from there until Ready"
	// Gone is from the start of kubectl delete until the pods are no more.
	Gone = "kubectl delete until gone"
	// Resident is memory as it is counted for each process.
	Resident = "resident memory"
)

// OnePod is the scenario of pods that come one after the other.
const OnePod = "one pod"

// AtOnce is the scenario of so many pods of one kubectl apply.
func AtOnce(pods int) string { return fmt.Sprintf("%d pods of one kubectl apply", pods) }

// BesideHung is the scenario of pods that come one after the other while so many hang.
func BesideHung(pods int) string { return fmt.Sprintf("one pod beside %d that hang", pods) }

// The numbers of pods for which something was promised.
const (
	NodeMemoryPods = 50
	NodeIdlePods   = 110
	NodeBurstPods  = 100
	NodeHungPods   = 10
)

// nodeBar is what a node has to reach.
func nodeBar() []promised {
	ratio := func(what, metric, scenario string, limit float64) promised {
		return promised{what: what, of: Key{metric, scenario, NodeFairlead}, base: Key{metric, scenario, NodeKubelet}, limit: limit}
	}
	return []promised{
		ratio("kubectl apply until Ready, one pod", Ready, OnePod, 0.6),
		ratio("kubectl apply of 100 pods until all are Ready", Ready, AtOnce(NodeBurstPods), 0.5),
		{
			what: "what 10 pods that hang add to one pod until Ready", of: Key{Ready, BesideHung(NodeHungPods), NodeFairlead},
			less: Key{Ready, OnePod, NodeFairlead}, unit: "ms", limit: 100,
		},
		{what: "resident memory with 50 pods", of: Key{Resident, Idle(NodeMemoryPods), NodeFairlead}, unit: "MB", limit: 110},
		{what: "CPU with 110 idle pods", of: Key{CPU, Idle(NodeIdlePods), NodeFairlead}, unit: "% of a core", limit: 0.5},
	}
}

// NodePromises is Promises for a result of the benchmark of nodes.
func (r *Result) NodePromises() []Promise { return r.compared(nodeBar()) }

// NodePage shows a result of the benchmark of nodes as Markdown.
func (r *Result) NodePage() string {
	p := &page{r: r}
	p.line("# Performance of a node\n")
	p.line("<!-- Written by test/bench/nodes; run \"make bench-node\" to write it anew, and change the words in test/bench/report/node.md. -->\n")
	p.line("Two nodes of one cluster on one machine, made to do the same work in turns: `fairlead node`, which is agent and runtime in one process, and a kubelet with containerd. Times are in milliseconds.\n")
	p.warnings()
	p.machine()
	p.line("## What was promised\n")
	p.line("Ratios are to the kubelet with containerd, with the same runc and CNI conflist, in the same run.\n")
	p.rows(r.NodePromises())
	p.line("## Pods that come and go\n")
	p.line("Median and 95th percentile; kubectl's own time is in them.\n")
	for _, scenario := range p.scenarios(Ready) {
		p.line("### %s\n", strings.ToUpper(scenario[:1])+scenario[1:])
		p.table(scenario, []string{Ready, Created, Bound, OnNode, Gone})
	}
	p.line("## At rest\n")
	p.line("All that runs because of the node: the kubelet, containerd, its shims and pause processes; `fairlead node` and its monitor. The workload is not in it. MB are 10^6 bytes.\n")
	p.line("Resident memory (RSS) counts for each process what it shares with others; memory beside the workload (PSS) counts that once.\n")
	for _, metric := range []string{Resident, Memory, CPU} {
		p.rest(metric)
	}
	p.WriteString(strings.TrimRight(nodeNotes, "\n") + "\n")
	return p.String()
}
