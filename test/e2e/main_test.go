// Package e2e_test runs a real Kubernetes node on Fairlead: the programs of a
// Kubernetes release, upstream's own specs, and stories of our own about
// restarts. It needs what `make e2e` or `make e2e-short` builds and does nothing
// without.
package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"fairlead.run/test/bench/arena"
	"fairlead.run/test/e2e/cluster"
)

// The flags come from make. Without -programs every test is skipped.
var (
	programs = flag.String("programs", "", "absolute path of the folder of the Kubernetes programs")
	fairlead = flag.String("fairlead", "", "absolute path of the folder of fairlead and fairlead-monitor")
	peers    = flag.String("peers", "", "absolute path of the folder of containerd and its shim, or of crio, pinns and conmon")
	kind     = flag.String("runtime", string(cluster.Fairlead), "what the kubelet uses: fairlead, containerd or crio")
	agent    = flag.String("agent", string(cluster.Kubelet), "what makes the machine a node: kubelet or fairlead")
	handler  = flag.String("handler", "runc", "Fairlead's default handler")
	output   = flag.String("output", "", "absolute path of the folder for what the programs say, and for reports")
	specs    = flag.String("specs", "e2e.test", "the program among -programs that has the specs")
	focus    = flag.String("focus", "", "the specs that TestSpecs runs, as a regular expression")
	skip     = flag.String("skip", "", "the specs that TestSpecs leaves out, as a regular expression")
	limit    = flag.Duration("limit", 6*time.Hour, "how long TestSpecs may take; what has not run by then has no result")
	guest    = flag.String("guest", "", "absolute path of test/guest/guest, where the node is to be a virtual machine with cgroup v2")
	driver   = flag.String("driver", "cgroupfs", "what makes cgroups in a guest: cgroupfs or systemd")
	procs    = flag.Int("procs", 2, "how many specs TestSpecs runs at once")
	outage   = flag.Duration("outage", 0, "run TestOutage, with something that stays away for so long")
	gone     = flag.String("gone", "apiserver", "what stays away in TestOutage: apiserver, apiserver-agent, agent, runtime, or node, which is both of these")
	crowd    = flag.Int("crowd", 20000, "how many pods of another node TestOutage makes")
	operator = flag.Bool("operator", false, "run the tests of fairlead operator")
	theirCRD = flag.String("gardener-crd", "", "absolute path of Gardener's own CRD of ContainerRuntimes, which the tests of fairlead operator take in the place of ours")
	webhook  = flag.Bool("webhook", false, "run the tests of fairlead webhook, for which the API server is without Kubernetes' own plugin")
)

// node is the cluster of all tests, which run one after another.
var node *cluster.Cluster

func TestMain(m *testing.M) {
	flag.Parse()
	switch {
	case *programs == "":
		fmt.Println("these tests need the programs of a Kubernetes release: run them by make e2e; every one of them is skipped")
		return
	case os.Geteuid() != 0:
		fmt.Println("these tests start a node, which needs root; every one of them is skipped")
		return
	}
	os.Exit(arena.Main("/var/tmp", func(a arena.Arena) int { return run(m, a) }))
}

func run(m *testing.M, a arena.Arena) int {
	if *driver == "systemd" && *guest == "" {
		fmt.Fprintln(os.Stderr, "-driver systemd: without -guest this machine's own systemd would make the cgroups")
		return 1
	}
	if *guest != "" {
		patience = 20 * time.Minute // its processor is emulated
	}
	var flags []string
	if *webhook {
		if err := prepareAudit(); err != nil {
			fmt.Fprintln(os.Stderr, "prepare the audit log:", err)
			return 1
		}
		flags = webhookFlags()
	}
	var err error
	node, err = cluster.Start(context.Background(), cluster.Config{
		Arena: a, Programs: *programs, Specs: *specs, Fairlead: *fairlead, Peers: *peers,
		Output: *output, Runtime: cluster.Runtime(*kind), Agent: cluster.Agent(*agent), Handler: *handler,
		Guest: *guest, Systemd: *driver == "systemd", Patience: patience, APIServer: flags,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "start a cluster:", err)
		return 1
	}
	code := m.Run()
	if err := node.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the cluster:", err)
		code = 1
	}
	return code
}
