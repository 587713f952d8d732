package chaos

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	adminv1 "fairlead.run/api/admin/v1"
	"fairlead.run/internal/failpoint"
	"fairlead.run/test/node"
)

// TestFsckDamageBetweenDaemons damages what a daemon reads at its start. An
// audit says so, and the way that it names helps.
func TestFsckDamageBetweenDaemons(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	for _, tt := range []struct {
		code   string
		damage func(id string)
	}{
		{"attachment-faulty", func(id string) { shell(t, "echo '{' >"+n.Root+"/network/attachments/"+id+".json") }},
		{"record-faulty", func(id string) {
			editRecords(n, func(pods *bbolt.Bucket) error { return pods.Put([]byte(id), []byte("{")) })
		}},
	} {
		t.Run(tt.code, func(t *testing.T) {
			outer := n.T
			n.T = t
			defer func() { n.T = outer }()
			s := n.RunPod("")
			s.Start(node.Script("sleep 1000"))
			n.Kill(syscall.SIGKILL)
			tt.damage(s.ID)
			n.Start()
			allObserved(n)
			wantFound(t, n, []string{tt.code}, []string{tt.code})
			s.Remove()
			node.Eventually(t, "all is in order", func() bool { return len(audit(t, n, adminv1.FsckRequest{}).Findings) == 0 })
		})
	}
}

// TestFsckIncompleteImage wants an image found that has lost its configuration,
// with which a container can be neither made nor described.
func TestFsckIncompleteImage(t *testing.T) {
	n := node.Start(t, "")
	id := n.Pull(node.Busybox)
	shell(t, "rm "+n.Root+"/content/blobs/sha256/"+strings.TrimPrefix(id, "sha256:"))
	both := []string{"blob-faulty", "image-faulty"}
	wantFound(t, n, both, both)
	if _, err := n.Images.RemoveImage(n.Ctx(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: id}}); err != nil {
		t.Fatal(err)
	}
	n.Pull(node.Busybox)
	wantInOrder(t, n)
	n.RunPod("").Start(node.Script("sleep 1000"))
}

// TestFsckPullCutOff kills the daemon in a pull. Before another daemon tidies
// up, an audit finds what keeps the parts.
func TestFsckPullCutOff(t *testing.T) {
	n := node.Start(t, "", node.WithEnv(failpoint.Env+"=image.unpacked=kill"))
	if _, err := n.TryPull(node.Busybox); err == nil {
		t.Fatal("the pull has an answer")
	}
	<-n.Ended()
	r, err := offline(t, n)
	if got := codesOf(r.Findings); err == nil || !slices.Contains(got, "lease-leftover") {
		t.Errorf("found %v (%v), want the lease of the pull", got, err)
	}
	if r, err = offline(t, n, "--repair"); err != nil || len(r.Left()) > 0 {
		t.Errorf("repair: %v\n%s", err, strings.Join(told(r.Left()), "\n"))
	}
	if of := n.OfImages(); len(of) > 0 {
		t.Errorf("after the repair there are %v", of)
	}
	n.Env = nil
	n.Start()
	n.Pull(node.Busybox)
	wantInOrder(t, n)
}
