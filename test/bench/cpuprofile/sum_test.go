package cpuprofile

import (
	"slices"
	"testing"
)

// times is a sample that was taken so often.
func times(n int, stack ...string) []Sample { return slices.Repeat([]Sample{{Stack: stack}}, n) }

func TestAreas(t *testing.T) {
	const (
		start  = "fairlead.run/internal/lifecycle.(*Core).startContainer"
		handle = "google.golang.org/grpc.(*Server).handleStream"
	)
	for want, stacks := range map[string][][]string{
		"calls: gRPC and protobuf":               {{"runtime.mallocgc", handle}},
		"operations: the core, locks, undo":      {{start, handle}},
		"the record: bbolt":                      {{"go.etcd.io/bbolt.(*Tx).Commit", start}},
		"specification and JSON":                 {{"encoding/json.Marshal", "fairlead.run/internal/store.(*Store).Put"}},
		"starting programs and waiting for them": {{"syscall.rawVforkSyscall", "syscall.forkExec", "os/exec.(*Cmd).Start", "fairlead.run/internal/network/cni.(*runner).once"}},
		"netlink and nftables":                   {{"syscall.Sendto", "github.com/vishvananda/netlink/nl.(*NetlinkSocket).Send", "fairlead.run/internal/network/bridge.(*wire).connect"}},
		"network beside that":                    {{"os.Mkdir", "fairlead.run/internal/network/bridge.(*wire).connect"}},
		"collecting garbage":                     {{"runtime.scanObject", "runtime.gcBgMarkWorker"}, {"runtime.gcAssistAlloc", start}},
		"Go's scheduler":                         {{"runtime.futex", "runtime.findRunnable", "runtime.mcall"}},
		"namespaces and files of the sandbox":    {{"golang.org/x/sys/unix.Unshare", "fairlead.run/internal/sandbox.onLentThread"}},
		Rest:                                     {{"something.else"}, nil},
	} {
		for _, stack := range stacks {
			p := Profile{times(2, stack...)}
			if got := p.Areas(Daemon); len(got) != 1 || got[0] != (Part{want, 2}) {
				t.Errorf("%q: %+v, want %s", stack, got, want)
			}
		}
	}
	p := Profile{slices.Concat(times(1), times(2, start), times(3, start, handle), times(4, handle))}
	want := []Part{{"operations: the core, locks, undo", 5}, {"calls: gRPC and protobuf", 4}, {Rest, 1}}
	if got := p.Areas(Daemon); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAreasOfTheMonitor(t *testing.T) {
	const start = own + "monitor/inner.(*Inner).startContainer"
	for want, stack := range map[string][]string{
		"starting the OCI runtime and waiting for it": {"syscall.rawVforkSyscall", "syscall.forkExec", own + "monitor/launch.(*Launcher).Fork", start},
		"output: FIFOs, terminals and logs":           {"syscall.Syscall", own + "monitor/stream.(*Copier).Run"},
		"records":                                     {"os.WriteFile", own + "atomicfile.Write", own + "monitor/record.(*Dir).Save", start},
		"processes and their ends":                    {"os.Open", start},
		"Go's scheduler":                              {"runtime.futex", "runtime.findRunnable", "runtime.mcall"},
	} {
		p := Profile{times(3, stack...)}
		if got := p.Areas(Monitor); len(got) != 1 || got[0] != (Part{want, 3}) {
			t.Errorf("%q: %+v, want %s", stack, got, want)
		}
	}
}

func TestInKernel(t *testing.T) {
	p := Profile{[]Sample{{Kernel: true}, {Stack: []string{"os.Mkdir"}, Kernel: true}, {Stack: []string{"os.Mkdir"}}}}
	if n := p.InKernel(); n != 2 {
		t.Errorf("%d samples, want 2", n)
	}
}

func TestFunctions(t *testing.T) {
	const (
		runPod   = own + "lifecycle.(*Core).RunPod"
		attach   = own + "network.Pods.Attach"
		add      = own + "network/cni.(*Driver).add"
		sandbox  = own + "sandbox.(*plan).pin"
		store    = own + "store.(*Store[go.shape.1f]).Put"
		fly      = own + "lifecycle/ops.(*Ledger).fly"
		runc     = own + "criserver.(*Server).RunPodSandbox"
		external = "os/exec.(*Cmd).Run"
	)
	p := Profile{slices.Concat(
		times(9, external, add, attach, runPod+".func1", fly, runc),
		times(1, attach, runPod, fly),
		times(4, sandbox+".gowrap1", runPod, runPod+".func1.2", fly), // once in it is enough
		times(5, store),
		times(50, external),
	)}
	// add is nearly all of attach, which is not nearly all of runPod.
	want := []Part{{"lifecycle.(*Core).RunPod", 14}, {"network.Pods.Attach", 10}, {"store.(*Store[...]).Put", 5}, {"sandbox.(*plan).pin", 4}}
	for limit := range 6 {
		if got := p.Functions(limit); !slices.Equal(got, want[:min(limit, 4)]) {
			t.Errorf("the first %d: got %+v, want %+v", limit, got, want)
		}
	}
}
