package chaos

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/test/node"
)

// audit asks the node's daemon to compare its host with its records.
func audit(t *testing.T, n *node.Node, req adminv1.FsckRequest) adminv1.FsckReply {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+n.Socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), node.Patience)
	defer cancel()
	reply, err := adminv1.Fsck(ctx, conn, req)
	if err != nil {
		t.Fatalf("fsck: %v", err)
	}
	if len(reply.Blind) > 0 {
		t.Errorf("fsck could not look at: %s", strings.Join(reply.Blind, "; "))
	}
	if len(reply.Busy) > 0 {
		t.Errorf("fsck says nothing of pods that were busy all the while: %s", strings.Join(reply.Busy, ", "))
	}
	return reply
}

// wantInOrder fails the test over anything that an audit finds.
func wantInOrder(t *testing.T, n *node.Node) {
	t.Helper()
	if found := told(audit(t, n, adminv1.FsckRequest{}).Findings); len(found) > 0 {
		t.Errorf("fsck finds:\n%s", strings.Join(found, "\n"))
	}
}

// told is what findings say, one line each.
func told(list []adminv1.Finding) (out []string) {
	for _, f := range list {
		out = append(out, strings.Join([]string{f.Code, f.Object, f.Pod, f.Problem, f.Action, f.Error}, " | "))
	}
	return out
}

// codesOf are those of findings, each once.
func codesOf(list []adminv1.Finding) (out []string) {
	for _, f := range list {
		out = append(out, f.Code)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// shell runs a command of the host.
func shell(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// wantFound audits, repairs and audits again: what was damaged is found with
// exactly these codes, looking changes nothing, and after the repair all but
// the codes in left agrees.
func wantFound(t *testing.T, n *node.Node, want, left []string) {
	t.Helper()
	for _, look := range []string{"first", "second"} {
		found := audit(t, n, adminv1.FsckRequest{}).Findings
		if got := codesOf(found); !slices.Equal(got, want) {
			t.Fatalf("the %s look found %v, want %v:\n%s", look, got, want, strings.Join(told(found), "\n"))
		}
	}
	reply := audit(t, n, adminv1.FsckRequest{Repair: true})
	if got := codesOf(reply.Left()); !slices.Equal(got, left) {
		t.Fatalf("after the repair %v is left, want %v:\n%s", got, left, strings.Join(told(reply.Findings), "\n"))
	}
	after := audit(t, n, adminv1.FsckRequest{}).Findings
	if got := codesOf(after); !slices.Equal(got, left) {
		t.Fatalf("a look after the repair found %v, want %v:\n%s", got, left, strings.Join(told(after), "\n"))
	}
	for _, f := range after {
		if f.Action == "" {
			t.Errorf("%s does not say what helps", f.Code)
		}
	}
}

// ownCgroup is the folder of the cgroups of this node's pods.
func ownCgroup(t *testing.T, n *node.Node, s *node.Sandbox) string {
	t.Helper()
	found, err := filepath.Glob("/sys/fs/cgroup/*/fairlead-*/pod" + s.ID)
	if len(found) == 0 {
		found, err = filepath.Glob("/sys/fs/cgroup/fairlead-*/pod" + s.ID)
	}
	if err != nil || len(found) == 0 {
		t.Fatalf("the pod has no cgroup: %v", err)
	}
	return filepath.Dir(found[0])
}

// TestFsckCommand wants output for people and for programs, and the codes.
func TestFsckCommand(t *testing.T) {
	n := node.Start(t, "")
	if out, err := n.CLI("fsck", "--dry-run"); err != nil || out != "" {
		t.Errorf("a node in order: %q, %v", out, err)
	}
	stray := filepath.Join(n.State, "pods", strings.Repeat("5e", 32))
	if err := os.MkdirAll(stray, 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := n.CLI("fsck")
	if err == nil || !strings.Contains(err.Error(), "exit status 1") || !strings.Contains(err.Error(), "--repair repairs 1") {
		t.Errorf("with a leftover: %v", err)
	}
	if !strings.Contains(out, "folder-leftover") || !strings.Contains(out, stray) || !strings.Contains(out, "delete it") {
		t.Errorf("with a leftover: %s", out)
	}
	out, _ = n.CLI("fsck", "-o", "json")
	var reply adminv1.FsckReply
	if err := json.Unmarshal([]byte(out), &reply); err != nil || len(reply.Findings) != 1 || reply.Findings[0].Object != stray {
		t.Errorf("as JSON: %v, %s", err, out)
	}
	if out, _ = n.CLI("fsck", "-o", "yaml"); !strings.Contains(out, "code: folder-leftover") {
		t.Errorf("as YAML: %s", out)
	}
	if _, err := n.CLI("fsck", "--repair", "--dry-run"); err == nil || !strings.Contains(err.Error(), "exit status 2") {
		t.Errorf("--repair --dry-run: %v", err)
	}
	if out, err = n.CLI("fsck", "--repair"); err != nil || !strings.Contains(out, "done: delete it") {
		t.Errorf("repair: %v, %s", err, out)
	}
	if _, err := os.Stat(stray); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// fsckVerify asks for a look at the content of images too.
func fsckVerify(repair bool) adminv1.FsckRequest {
	return adminv1.FsckRequest{Repair: repair, VerifyContent: true}
}
