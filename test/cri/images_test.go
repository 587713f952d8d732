package cri

import (
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/images"
	"fairlead.run/test/node"
)

func TestImageService(t *testing.T) {
	n := node.Start(t, "")
	id := n.Pull(node.Busybox)
	spec := &runtimeapi.ImageSpec{Image: node.Busybox}
	st, err := n.Images.ImageStatus(n.Ctx(), &runtimeapi.ImageStatusRequest{Image: spec, Verbose: true})
	if err != nil || st.Image == nil || st.Image.Id != id || st.Image.Size == 0 || len(st.Image.RepoTags) != 1 || len(st.Image.RepoDigests) != 1 || len(st.Info) == 0 {
		t.Fatalf("%+v %v", st, err)
	}
	list, err := n.Images.ListImages(n.Ctx(), &runtimeapi.ListImagesRequest{})
	if err != nil || len(list.Images) != 1 || list.Images[0].Id != id {
		t.Fatalf("%+v %v", list, err)
	}
	fs, err := n.Images.ImageFsInfo(n.Ctx(), &runtimeapi.ImageFsInfoRequest{})
	if err != nil || len(fs.ImageFilesystems) != 1 || fs.ImageFilesystems[0].UsedBytes.GetValue() == 0 {
		t.Fatalf("%+v %v", fs, err)
	}
	for range 2 { // idempotent
		if _, err := n.Images.RemoveImage(n.Ctx(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: id}}); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := n.Images.ImageStatus(n.Ctx(), &runtimeapi.ImageStatusRequest{Image: spec}); err != nil || st.Image != nil {
		t.Fatalf("a missing image is no error, and no image: %+v %v", st, err)
	}
}

func TestRemovedImageStaysUnderItsContainers(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		id := n.Pull(node.Busybox)
		s := n.RunPod(h)
		c := s.Start(node.Script("sleep 1000"))
		if _, err := n.Images.RemoveImage(n.Ctx(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: id}}); err != nil {
			t.Fatal(err)
		}
		must(t, c.Exec("sh", "-c", "ls /bin/busybox; echo alive"), "/bin/busybox\nalive")
		s.Remove()
		n.Pull(node.Busybox)
	})
}

func TestPullErrorsSayWhere(t *testing.T) {
	n := node.Start(t, "")
	broken, err := node.PushImage("test/broken:1", ocispec.ImageConfig{}, images.Layer{Blob: []byte("no gzip at all")})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ ref, want string }{
		{node.Registry.Host() + "/test/none:1", "not found"},
		{"UPPER/not valid!", "UPPER"},
		{"", "image"},
		{broken, "test/broken"},
		{"127.0.0.1:1/x:1", "127.0.0.1:1"},
	} {
		_, err := n.Images.PullImage(n.Ctx(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: tt.ref}})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: want %q in %v", tt.ref, tt.want, err)
		}
	}
	if list, err := n.Images.ListImages(n.Ctx(), &runtimeapi.ListImagesRequest{}); err != nil || len(list.Images) != 0 {
		t.Errorf("%+v %v", list, err)
	}
}

func TestPullWithCredentials(t *testing.T) {
	private := images.NewRegistry()
	defer private.Close()
	private.RequireBasic("user", "secret")
	base, err := images.Busybox()
	if err != nil {
		t.Fatal(err)
	}
	img, err := images.Build(images.Spec{Layers: []images.Layer{base}})
	if err != nil {
		t.Fatal(err)
	}
	ref := private.Push("team/app:1", img)
	n := node.Start(t, "")
	req := &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}}
	if _, err := n.Images.PullImage(n.Ctx(), req); err == nil {
		t.Fatal("pulled without credentials")
	}
	req.Auth = &runtimeapi.AuthConfig{Username: "user", Password: "secret"}
	if _, err := n.Images.PullImage(n.Ctx(), req); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(n.Stderr.String(), "secret") {
		t.Error("the password is in the log")
	}
}
