package chaos

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/test/node"
)

// TestFsckConflist takes the interface, and then the route, from one of three pods
// on a conflist. An audit has the plugins look and finds that pod alone, with a
// daemon and without; a daemon that starts notes it, and all pods serve meanwhile.
func TestFsckConflist(t *testing.T) {
	node.UnderAll(t, func(t *testing.T, n *node.Node, handler string) {
		inside := handler == "runsc" // routes are in the sandbox
		s, fine, published := n.RunPod(handler), n.RunPod(handler), n.RunPod(handler, hostPort(31877))
		c := s.Start(node.Script("sleep 1000"))
		wantInOrder(t, n)
		enter := "nsenter --net=" + n.State + "/pods/" + s.ID + "/ns/net "
		if !inside {
			shell(t, enter+"ip route del default")
			wantAttachment(t, n, s.ID, "plugin bridge CHECK")
			disableCheck(t, n, s.ID, true)
			n.Restart()
			wantInOrder(t, n)
			disableCheck(t, n, s.ID, false)
			n.Restart()
		}
		shell(t, enter+"ip link del eth0")
		wantAttachment(t, n, s.ID, "has no eth0")
		n.Kill(syscall.SIGKILL)
		if r, err := offline(t, n); err == nil || len(r.Findings) != 1 || r.Findings[0].PodID != s.ID {
			t.Errorf("without a daemon: %v\n%s", err, strings.Join(told(r.Findings), "\n"))
		}
		n.Start()
		c.Exec("true")
		node.Eventually(t, "the daemon has noted what is wrong", func() bool { return strings.Contains(networkFaults(t, n)[s.ID], "has no eth0") })
		if all := networkFaults(t, n); len(all) != 1 {
			t.Errorf("noted are %v", all)
		}
		s.Remove()
		wantInOrder(t, n)
		fine.Remove()
		published.Remove()
	}, node.Conflist)
}

func wantAttachment(t *testing.T, n *node.Node, id, fault string) {
	t.Helper()
	wantFound(t, n, []string{"attachment-faulty"}, []string{"attachment-faulty"})
	for _, f := range audit(t, n, adminv1.FsckRequest{}).Findings {
		if f.PodID != id || !strings.Contains(f.Problem, fault) {
			t.Errorf("found %s of pod %s, want %q of pod %s", f.Problem, f.PodID, fault, id)
		}
	}
}

// disableCheck is what the pod would be if the administrator's list had said so.
func disableCheck(t *testing.T, n *node.Node, id string, yes bool) {
	t.Helper()
	path := filepath.Join(n.Root, "network/attachments", id+".json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flag := []string{`"conflist":{`, `"conflist":{"disableCheck":true,`}
	if !yes {
		slices.Reverse(flag)
	}
	changed := strings.Replace(string(text), flag[0], flag[1], 1)
	if changed == string(text) {
		t.Fatalf("no %s in %s", flag[0], text)
	}
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
}

// networkFaults are what is noted of the networks of pods, by their ids.
func networkFaults(t *testing.T, n *node.Node) map[string]string {
	t.Helper()
	out, err := n.CLI("ps", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var pods []struct{ ID, NetworkFault string }
	if err := json.Unmarshal([]byte(out), &pods); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	found := map[string]string{}
	for _, p := range pods {
		if p.NetworkFault != "" {
			found[p.ID] = p.NetworkFault
		}
	}
	return found
}
