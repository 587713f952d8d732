package cri

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// wantNoSecrets looks for texts in all that the daemon has written anywhere: in
// its folders, in its log, and in what it tells of its past.
func wantNoSecrets(t *testing.T, n *node.Node, secrets ...string) {
	t.Helper()
	ops, err := n.CLI("ops")
	if err != nil {
		t.Error(err)
	}
	list, err := n.CLI("image", "ls")
	if err != nil {
		t.Error(err)
	}
	written := map[string]string{"the log": n.Stderr.String(), "ops": ops, "image ls": list}
	err = filepath.WalkDir(n.Dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it went meanwhile
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		written[path] = string(b)
		if errors.Is(err, syscall.EINVAL) {
			return nil // a namespace
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if len(written) < 10 {
		t.Errorf("only %d files were looked into", len(written))
	}
	for where, text := range written {
		for _, s := range secrets {
			if strings.Contains(text, s) {
				t.Errorf("%q is in %s", s, where)
			}
		}
	}
}

// Credentials of a request are in no file, log, error, span or list, whether
// they are good or not.
func TestPullWithCredentials(t *testing.T) {
	const user, password, refresh, wrong = "user-of-the-test", "password-of-the-test", "refresh-of-the-test", "wrong-one-of-the-test"
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	base, err := images.Busybox()
	if err != nil {
		t.Fatal(err)
	}
	img, err := images.Build(images.Spec{Layers: []images.Layer{base}})
	if err != nil {
		t.Fatal(err)
	}
	collector := startCollector(t)
	n := node.Start(t, fmt.Sprintf("[tracing]\nendpoint = %q\n", collector.address))
	secrets := []string{password, refresh, wrong, encode(user + ":" + password), encode(user + ":" + wrong), "bearer-of-"}
	for name, tc := range map[string]struct {
		demand func(*images.Registry)
		auth   *runtimeapi.AuthConfig
		good   bool
	}{
		"basic":                {func(r *images.Registry) { r.RequireBasic(user, password) }, &runtimeapi.AuthConfig{Username: user, Password: password}, true},
		"basic, encoded":       {func(r *images.Registry) { r.RequireBasic(user, password) }, &runtimeapi.AuthConfig{Auth: encode(user + ":" + password)}, true},
		"basic, wrong":         {func(r *images.Registry) { r.RequireBasic(user, password) }, &runtimeapi.AuthConfig{Username: user, Password: wrong}, false},
		"basic, not encoded":   {func(r *images.Registry) { r.RequireBasic(user, password) }, &runtimeapi.AuthConfig{Auth: "%" + wrong}, false},
		"none":                 {func(r *images.Registry) { r.RequireBasic(user, password) }, nil, false},
		"token":                {func(r *images.Registry) { r.RequireToken(user, password, refresh) }, &runtimeapi.AuthConfig{Username: user, Password: password}, true},
		"identity token":       {func(r *images.Registry) { r.RequireToken(user, password, refresh) }, &runtimeapi.AuthConfig{IdentityToken: refresh}, true},
		"identity, wrong":      {func(r *images.Registry) { r.RequireToken(user, password, refresh) }, &runtimeapi.AuthConfig{IdentityToken: wrong}, false},
		"registry token":       {func(r *images.Registry) { r.RequireToken(user, password, refresh) }, &runtimeapi.AuthConfig{RegistryToken: "bearer-of-" + user}, true},
		"registry token, odd":  {func(r *images.Registry) { r.RequireToken(user, password, refresh) }, &runtimeapi.AuthConfig{RegistryToken: wrong + "\n"}, false},
		"for another registry": {func(r *images.Registry) { r.RequireBasic(user, password) }, &runtimeapi.AuthConfig{Username: user, Password: password, ServerAddress: "https://other.example"}, false},
	} {
		private := images.NewRegistry()
		tc.demand(private)
		ref := private.Push("team/app:1", img)
		_, err := n.Images.PullImage(n.Ctx(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}, Auth: tc.auth})
		if tc.good != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, s := range secrets {
			if err != nil && strings.Contains(err.Error(), s) {
				t.Errorf("%s: the error has %q: %v", name, s, err)
			}
		}
		private.Close()
	}
	n.RunPod("crun")
	wantNoSecrets(t, n, secrets...)
	n.Restart() // ends the daemon, which sends all spans
	wantNoSecrets(t, n, secrets...)
	spans := collector.text()
	if spans == "" {
		t.Error("no span was sent")
	}
	for _, s := range secrets {
		if strings.Contains(spans, s) {
			t.Errorf("%q is in a span", s)
		}
	}
}

// An image is one, under whatever names it came from wherever, and each of them
// finds it.
func TestOneImageOfManyNames(t *testing.T) {
	second := images.NewRegistry()
	defer second.Close()
	img := marked(t, "", "many names")
	refs := []string{node.Registry.Push("names/a:1", img), node.Registry.Push("names/a:2", img), second.Push("names/b:1", img)}
	n := node.Start(t, fmt.Sprintf("[images]\npinned = [%q]\n", second.Host()+"/names/*"))
	var wg sync.WaitGroup
	for _, ref := range refs[:2] {
		wg.Go(func() {
			if id, err := n.TryPull(ref); err != nil || id != img.ID {
				t.Errorf("%s: %s %v", ref, id, err)
			}
		})
	}
	wg.Wait()
	find := func(ref string) *runtimeapi.Image {
		t.Helper()
		st, err := n.Images.ImageStatus(n.Ctx(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
		if err != nil {
			t.Fatal(err)
		}
		return st.Image
	}
	if find(img.ID).Pinned {
		t.Error("it is pinned by a name that it does not have yet")
	}
	n.Pull(refs[2])
	digests := []string{node.Registry.Host() + "/names/a@" + img.Desc.Digest.String(), second.Host() + "/names/b@" + img.Desc.Digest.String()}
	for _, ref := range slices.Concat(refs, digests, []string{img.ID, img.ID[7:], img.ID[7:20], refs[0] + "@" + img.Desc.Digest.String()}) {
		got := find(ref)
		if got == nil || got.Id != img.ID || !got.Pinned {
			t.Errorf("%s: %v", ref, got)
		}
	}
	list, err := n.Images.ListImages(n.Ctx(), &runtimeapi.ListImagesRequest{})
	if err != nil || len(list.Images) != 1 {
		t.Fatalf("%v %v", list, err)
	}
	slices.Sort(refs)
	slices.Sort(digests)
	if got := list.Images[0]; !slices.Equal(got.RepoTags, refs) || !slices.Equal(got.RepoDigests, digests) || !got.Pinned {
		t.Errorf("%v", got)
	}
	for _, h := range node.Handlers {
		must(t, n.Inside(h, "cat /mark", func(c *containerConfig) { c.Image.Image = digests[0] }), "many names")
	}
	removeImages(t, n)
}

// A pull from a registry that stops sending is given up, with the layer and the
// registry named, and leaves nothing; so does one that is cut off by the end of
// the daemon.
func TestAbortedPullsLeaveNothing(t *testing.T) {
	own := images.NewRegistry()
	defer own.Close()
	layer := images.Layer{Files: map[string]images.File{"big": {Body: make([]byte, 1<<20)}}, Compression: images.Plain}
	img, err := images.Build(images.Spec{Layers: []images.Layer{{Files: map[string]images.File{"small": {}}}, layer}})
	if err != nil {
		t.Fatal(err)
	}
	ref := own.Push("team/stalls:1", img)
	big := img.Layers()[1].Digest.String()
	own.Inject(images.Fault{Path: big, Stall: 1 << 19})
	n := node.Start(t, "[images]\nstall_timeout = \"1s\"\n")
	_, err = n.TryPull(ref)
	for _, want := range []string{"no data arrived for 1s", "layer " + big, own.Host()} {
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if left := n.OfImages(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}

	asked := len(own.Requests())
	pulled := make(chan error, 1)
	go func() { // ends with the daemon
		_, err := n.TryPull(ref)
		pulled <- err
	}()
	node.Eventually(t, "the layer was asked for", func() bool {
		return slices.ContainsFunc(own.Requests()[asked:], func(r string) bool { return strings.HasPrefix(r, "GET") && strings.HasSuffix(r, big) })
	})
	n.Kill(syscall.SIGKILL)
	if err := <-pulled; err == nil {
		t.Error("it was pulled from a registry that does not send it")
	}
	n.Restart()
	node.Eventually(t, "nothing is left", func() bool { return len(n.OfImages()) == 0 })
	own.Heal()
	n.Pull(ref)
	removeImages(t, n)
}
