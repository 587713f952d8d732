package chaos

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

const served = `mkdir /www; echo page >/www/index.html; exec httpd -f -p 80 -h /www`

// page is what a web server says, or "".
func page(url string) string {
	c := http.Client{Timeout: 2 * time.Second}
	r, err := c.Get(url)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return strings.TrimSpace(string(b))
}

// TestFsckLosses takes things away from pods that run, and looks what an audit
// says and puts back. The pod has to work again afterwards.
func TestFsckLosses(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	s := n.RunPod("", hostPort(31873))
	c := s.Start(node.Script(served))
	script := node.Script("ls /image/bin/busybox && echo started; sleep 1000")
	script.Mounts = []*runtimeapi.Mount{{ContainerPath: "/image", Readonly: true, Image: &runtimeapi.ImageSpec{Image: node.Busybox}}}
	waiting := s.Create(script)
	empty := n.RunPod("")
	own := ownCgroup(t, n, s)
	port := "http://127.0.0.1:31873/"
	works := func() {
		t.Helper()
		node.Eventually(t, "a page by the host port", func() bool { return page(port) == "page" })
		if got := strings.TrimSpace(c.Exec("wget", "-qO-", "http://"+s.IPs()[0]+"/")); got != "page" {
			t.Errorf("within the pod: %q", got)
		}
	}
	works()
	wantInOrder(t, n)
	pods, link := n.State+"/pods/"+s.ID, ""
	links, err := filepath.Glob("/sys/class/net/" + n.Bridge + "/brif/*")
	if err != nil || len(links) != 2 {
		t.Fatalf("links on the bridge: %v, %v", links, err)
	}
	var entry string
	if b, err := os.ReadFile(n.Root + "/network/attachments/" + s.ID + ".json"); err != nil {
		t.Fatal(err)
	} else {
		entry = string(b)
	}
	for _, l := range links {
		if strings.Contains(entry, filepath.Base(l)) {
			link = filepath.Base(l)
		}
	}

	for _, tt := range []struct {
		name, damage string
		want, left   []string
	}{
		{"network namespace", "umount " + pods + "/ns/net", []string{"namespace-missing"}, nil},
		{"all namespaces and /dev/shm", "umount " + pods + "/ns/* " + pods + "/shm", []string{"mount-missing", "namespace-missing"}, nil},
		{"folder", "umount " + pods + "/ns/* " + pods + "/shm; rm -r " + pods, []string{"folder-missing", "mount-missing", "namespace-missing"}, nil},
		{"hosts", "rm " + n.Root + "/pods/" + s.ID + "/hosts", []string{"folder-faulty"}, nil},
		{"files", "rm -r " + n.Root + "/pods/" + s.ID, []string{"folder-missing"}, nil},
		{"cgroup of a pod without processes", "rmdir /sys/fs/cgroup/*/" + filepath.Base(own) + "/pod" + empty.ID + " /sys/fs/cgroup/" + filepath.Base(own) + "/pod" + empty.ID + " 2>/dev/null || true", []string{"cgroup-missing"}, nil},
		{"link", "ip link del " + link, []string{"link-missing"}, nil},
		{"link off the bridge", "ip link set " + link + " nomaster", []string{"link-faulty"}, nil},
		{"host port", "nft flush map inet " + n.Bridge + " ports4", []string{"element-missing"}, nil},
		{"rules", "nft flush chain inet " + n.Bridge + " prerouting", []string{"table-missing"}, nil},
		{"entry of the ledger", "rm " + n.Root + "/network/attachments/" + s.ID + ".json", []string{"attachment-missing"}, nil},
		{"root file system of a container that waits", "umount " + n.State + "/containers/" + waiting.ID + "/rootfs", []string{"mount-missing"}, nil},
		{"image that a container that waits shows", "umount " + n.State + "/containers/" + waiting.ID + "/mount-0", []string{"mount-missing"}, nil},
		{
			"address in the pod", "nsenter --net=" + pods + "/ns/net ip addr add 10.9.9.9/32 dev eth0; nsenter --net=" + pods + "/ns/net ip -6 addr flush dev eth0 scope global",
			[]string{"address-faulty"},
			[]string{"address-faulty"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			shell(t, tt.damage)
			wantFound(t, n, tt.want, tt.left)
			works()
		})
	}
	if err := waiting.TryStart(); err != nil {
		t.Errorf("start the container whose root file system and image were put back: %v", err)
	}
	node.Eventually(t, "its output", func() bool { return strings.Contains(waiting.Log(), "started") })
	s.Remove()
	wantInOrder(t, n)
}

// TestFsckSaysWhatIsLost takes away what nobody can put back. The audit says
// so, touches nothing, and removing the container helps.
func TestFsckSaysWhatIsLost(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, handler string) {
		for _, tt := range []struct {
			name, damage string
			want         []string
		}{
			{"FIFO", "rm $S/containers/$C/io/stdout", []string{"fifo-missing"}},
			{"config.json", "rm $S/containers/$C/config.json", []string{"bundle-faulty"}},
			{"state of the runtime", "rm -r $S/runtimes/" + handler + "/$C", []string{"state-missing"}},
			{"root file system in use", "umount $S/containers/$C/rootfs", []string{"mount-missing"}},
			{"writable layer", "mv $R/containers/$C $R/moved-$C", []string{"writable-missing"}},
			{"bundle", "umount $S/containers/$C/rootfs; rm -r $S/containers/$C", []string{"bundle-missing", "fifo-missing", "mount-missing"}},
			{"cgroup", "TOP=/sys/fs/cgroup; " + outOf, []string{"cgroup-missing"}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				n.T = t
				s := n.RunPod(handler)
				c := s.Start(node.Script("sleep 1000"))
				shell(t, "S="+n.State+"; R="+n.Root+"; C="+c.ID+"; "+tt.damage)
				wantFound(t, n, tt.want, tt.want)
				if st := c.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
					t.Errorf("the container is %s", st.State)
				}
				s.Remove()
				wantInOrder(t, n)
			})
		}
	})
}

// TestFsckContent damages what images are made of.
func TestFsckContent(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	s := n.RunPod("")
	c := s.Start(node.Script("sleep 1000"))
	wantInOrder(t, n)
	blobs, err := filepath.Glob(n.Root + "/content/blobs/sha256/*")
	if err != nil || len(blobs) == 0 {
		t.Fatal(blobs, err)
	}
	largest, size := "", int64(0)
	for _, b := range blobs {
		if st, err := os.Stat(b); err == nil && st.Size() > size {
			largest, size = b, st.Size()
		}
	}
	// One byte of the layer changes, and not its size.
	shell(t, fmt.Sprintf("chmod u+w %s; printf '\\377' | dd of=%s bs=1 seek=%d conv=notrunc status=none", largest, largest, size/2))
	wantInOrder(t, n)
	found := audit(t, n, fsckVerify(false)).Findings
	if len(found) != 1 || found[0].Code != "blob-faulty" || found[0].Object != "sha256:"+filepath.Base(largest) {
		t.Fatalf("verifying found:\n%s", strings.Join(told(found), "\n"))
	}
	if left := audit(t, n, fsckVerify(true)).Left(); len(left) > 0 {
		t.Errorf("not repaired:\n%s", strings.Join(told(left), "\n"))
	}
	if got := strings.TrimSpace(c.Exec("echo", "works")); got != "works" {
		t.Errorf("the container that uses the image: %q", got)
	}
	n.Pull(node.Busybox)
	if found := audit(t, n, fsckVerify(false)).Findings; len(found) > 0 {
		t.Errorf("after another pull:\n%s", strings.Join(told(found), "\n"))
	}
	if _, err := os.Stat(largest); err != nil {
		t.Errorf("another pull did not fetch the layer: %v", err)
	}
	layers, err := filepath.Glob(n.Root + "/snapshots/snapshots/*/fs")
	if err != nil || len(layers) == 0 {
		t.Fatal(layers, err)
	}
	shell(t, "mv "+layers[0]+" "+layers[0]+".away")
	if got := codesOf(audit(t, n, fsckVerify(true)).Left()); len(got) != 1 || got[0] != "snapshot-faulty" {
		t.Errorf("without a layer: %v", got)
	}
	shell(t, "mv "+layers[0]+".away "+layers[0])
	wantInOrder(t, n)
}
