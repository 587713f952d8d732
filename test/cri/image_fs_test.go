package cri

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/images"
	"fairlead.run/test/node"
)

const mib = 1 << 20

// fsInfo is what is said of the file systems of images and of containers.
func fsInfo(n *node.Node) (ofImages, ofContainers *runtimeapi.FilesystemUsage) {
	n.T.Helper()
	r, err := n.Images.ImageFsInfo(n.Ctx(), &runtimeapi.ImageFsInfoRequest{})
	if err != nil || len(r.ImageFilesystems) != 1 || len(r.ContainerFilesystems) != 1 {
		n.T.Fatalf("%v, %v", r, err)
	}
	for _, u := range []*runtimeapi.FilesystemUsage{r.ImageFilesystems[0], r.ContainerFilesystems[0]} {
		if u.Timestamp <= 0 || u.UsedBytes == nil || u.InodesUsed == nil {
			n.T.Errorf("%v", u)
		}
	}
	return r.ImageFilesystems[0], r.ContainerFilesystems[0]
}

// within says whether a number is at least low and not much more: folders and
// the last blocks of files count too, and file systems take some in advance.
func within(got, low uint64) bool { return got >= low && got < 2*low }

// What containers write is counted as theirs, and what is pulled as the images'.
// Both are on one file system, and by its name a kubelet sees that.
func TestImageFsInfo(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		pulled, nothing := fsInfo(n)
		if pulled.FsId.Mountpoint != n.Root || nothing.FsId.Mountpoint != n.Root {
			t.Errorf("at %s and %s", pulled.FsId.Mountpoint, nothing.FsId.Mountpoint)
		}
		if nothing.UsedBytes.Value != 0 || nothing.InodesUsed.Value != 0 {
			t.Errorf("without containers: %v", nothing)
		}
		s := n.RunPod(h)
		c := s.Start(node.Script("sleep 1000"))
		c.Exec("sh", "-c", "dd if=/dev/urandom of=/big bs=1M count=20; mkdir /many; for i in $(seq 100); do echo $i > /many/$i; done")
		node.Eventually(t, "20 MB of the container", func() bool {
			_, got := fsInfo(n)
			return within(got.UsedBytes.Value, 20*mib) && got.InodesUsed.Value >= 102
		})
		if after, _ := fsInfo(n); after.UsedBytes.Value != pulled.UsedBytes.Value || after.InodesUsed.Value != pulled.InodesUsed.Value {
			t.Errorf("images take %v, and took %v before a container wrote", after, pulled)
		}
		// One that has ended has its layer still.
		c.Stop(0)
		other := s.Start(node.Script("sleep 1000"))
		other.Exec("dd", "if=/dev/urandom", "of=/big", "bs=1M", "count=5")
		node.Eventually(t, "25 MB of both", func() bool {
			_, got := fsInfo(n)
			return within(got.UsedBytes.Value, 25*mib)
		})
		big := make([]byte, 20*mib)
		_, _ = rand.Read(big)
		id := pullData(n, "test/big:1", layerOf(map[string]images.File{"big": {Body: big}}))
		with, layers := fsInfo(n)
		// Once as it was fetched and once unpacked.
		if more := with.UsedBytes.Value - pulled.UsedBytes.Value; !within(more, 40*mib) {
			t.Errorf("an image of 20 MB takes %d bytes", more)
		}
		if with.InodesUsed.Value <= pulled.InodesUsed.Value || !within(layers.UsedBytes.Value, 25*mib) {
			t.Errorf("%v, %v", with, layers)
		}
		if _, err := n.Images.RemoveImage(n.Ctx(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: id}}); err != nil {
			t.Fatal(err)
		}
		if after, _ := fsInfo(n); after.UsedBytes.Value != pulled.UsedBytes.Value {
			t.Errorf("images take %v, and took %v before the pull", after, pulled)
		}
		s.Remove()
		if _, got := fsInfo(n); got.UsedBytes.Value != 0 {
			t.Errorf("after the last container: %v", got)
		}
	})
}

// What a container writes to a volume of its image is its own as well: it lies
// beside its layer, and goes with it.
func TestImageFsInfoCountsVolumesOfImages(t *testing.T) {
	tag, err := node.PushImage("test/volume:1", ocispec.ImageConfig{Env: []string{"PATH=/bin"}, Volumes: map[string]struct{}{"/data": {}}})
	if err != nil {
		t.Fatal(err)
	}
	n := node.Start(t, "")
	n.Pull(tag)
	s := n.RunPod("")
	cfg := node.Script("sleep 1000")
	cfg.Image.Image = tag
	c := s.Start(cfg)
	c.Exec("dd", "if=/dev/urandom", "of=/data/big", "bs=1M", "count=5")
	node.Eventually(t, "5 MB of the container, in all and in its stats", func() bool {
		_, got := fsInfo(n)
		r, err := n.Runtime.ContainerStats(n.Ctx(), &runtimeapi.ContainerStatsRequest{ContainerId: c.ID})
		if err != nil {
			t.Fatal(err)
		}
		return within(got.UsedBytes.Value, 5*mib) && within(r.GetStats().GetWritableLayer().GetUsedBytes().GetValue(), 5*mib)
	})
	s.Remove()
	if _, got := fsInfo(n); got.UsedBytes.Value != 0 {
		t.Errorf("after the last container: %v", got)
	}
}

// Where writable layers have a file system of their own, it is that one.
func TestImageFsInfoOfTwo(t *testing.T) {
	var own string
	n := node.Start(t, "", func(n *node.Node) error {
		own = filepath.Join(n.Root, "containers")
		if err := os.MkdirAll(own, 0o700); err != nil {
			return err
		}
		return unix.Mount("none", own, "tmpfs", 0, "size=64m")
	})
	t.Cleanup(func() { _ = unix.Unmount(own, unix.MNT_DETACH) })
	n.Pull(node.Busybox)
	s := n.RunPod("")
	s.Start(node.Script("sleep 1000")).Exec("dd", "if=/dev/urandom", "of=/big", "bs=1M", "count=3")
	node.Eventually(t, "what the container wrote, on its own file system", func() bool {
		ofImages, got := fsInfo(n)
		return ofImages.FsId.Mountpoint == n.Root && got.FsId.Mountpoint == own && within(got.UsedBytes.Value, 3*mib)
	})
	s.Remove()
}
