package cpuprofile

import (
	"slices"
	"testing"
)

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
		"namespaces and files of the sandbox":    {{"golang.org/x/sys/unix.Unshare", "fairlead.run/internal/sandbox.onThrownAwayThread"}},
		Rest:                                     {{"something.else"}, nil},
	} {
		for _, stack := range stacks {
			p := Profile{[]Sample{{stack, 2}}}
			if got := p.Areas(); len(got) != 1 || got[0] != (Part{want, 2}) {
				t.Errorf("%q: %+v, want %s", stack, got, want)
			}
		}
	}
	p := Profile{[]Sample{{nil, 1}, {[]string{start}, 2}, {[]string{start, handle}, 3}, {[]string{handle}, 4}}}
	want := []Part{{"operations: the core, locks, undo", 5}, {"calls: gRPC and protobuf", 4}, {Rest, 1}}
	if got := p.Areas(); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestInKernel(t *testing.T) {
	p := Profile{[]Sample{
		{[]string{"internal/runtime/syscall/linux.Syscall6", "os.Mkdir"}, 2},
		{[]string{"runtime.futex"}, 1},
		{[]string{"os.Mkdir"}, 4},
		{[]string{"bytes.(*Buffer).readSlice"}, 8},
		{nil, 16},
	}}
	if n := p.InKernel(); n != 3 {
		t.Errorf("%d samples, want 3", n)
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
	p := Profile{[]Sample{
		{[]string{external, add, attach, runPod + ".func1", fly, runc}, 9},
		{[]string{attach, runPod, fly}, 1},
		{[]string{sandbox + ".gowrap1", runPod, runPod + ".func1.2", fly}, 4}, // once in it is enough
		{[]string{store}, 5},
		{[]string{external}, 50},
	}}
	// add is nearly all of attach, which is not nearly all of runPod.
	want := []Part{{"lifecycle.(*Core).RunPod", 14}, {"network.Pods.Attach", 10}, {"store.(*Store[...]).Put", 5}, {"sandbox.(*plan).pin", 4}}
	for limit := range 6 {
		if got := p.Functions(limit); !slices.Equal(got, want[:min(limit, 4)]) {
			t.Errorf("the first %d: got %+v, want %+v", limit, got, want)
		}
	}
}
