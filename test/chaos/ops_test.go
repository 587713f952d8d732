package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	rpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/images"
	"fairlead.run/test/node"
)

// slowNetwork is a CNI plugin that attaches nothing, and does that only when it
// is let go. It writes a line for each ADD.
type slowNetwork struct{ dir string }

func newSlowNetwork(t *testing.T) (s slowNetwork, toml string) {
	t.Helper()
	s.dir = t.TempDir()
	for name, content := range map[string]string{
		"conf/10-slow.conflist": `{"cniVersion":"1.0.0","name":"slow","plugins":[{"type":"slow"}]}`,
		"bin/slow": fmt.Sprintf(`#!/bin/sh
cd %s
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}';;
ADD)
	echo "$CNI_CONTAINERID" >> added
	until [ -e go ]; do sleep 0.05; done
	echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/x"}],"ips":[{"address":"10.9.0.7/24","interface":0}]}';;
esac
`, s.dir),
	} {
		path := filepath.Join(s.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { s.letGo(t) })
	return s, fmt.Sprintf("[network]\nconf_dir = %q\nbin_dirs = [%q]\n", s.dir+"/conf", s.dir+"/bin")
}

func (s slowNetwork) letGo(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "go"), nil, 0o600); err != nil {
		t.Error(err)
	}
}

// added is how many pods the plugin was asked to add.
func (s slowNetwork) added() int {
	b, _ := os.ReadFile(filepath.Join(s.dir, "added"))
	return strings.Count(string(b), "\n")
}

// A pod whose network takes its time: the caller who gives up learns where it
// is, those who come back join it and get one pod, and who wants another one of
// that name is refused at once.
func TestSlowPodIsJoined(t *testing.T) {
	t.Parallel()
	slow, toml := newSlowNetwork(t)
	n := node.Start(t, toml)
	cfg := n.PodConfig()
	name := cfg.Metadata.Namespace + "/" + cfg.Metadata.Name
	ask := func(ctx context.Context, cfg *runtimeapi.PodSandboxConfig) (string, error) {
		r, err := n.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: cfg, RuntimeHandler: "crun"})
		return r.GetPodSandboxId(), err
	}
	first, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := ask(first, cfg)
		left <- err
	}()
	awaitStuck(n, "run", name, "network plugin slow ADD")
	_, err := ask(withDeadline(t), cfg)
	wantNamed(t, err, "run pod "+name, "network plugin slow ADD")
	leave()
	if err := <-left; status.Code(err) != rpccodes.Canceled {
		t.Errorf("who gave up got %v", err)
	}
	node.Eventually(t, "nobody waits", func() bool { return awaitStuck(n, "run", name, "slow").Waiting == 0 })
	const many = 4
	ids, errs := make(chan string, many), make(chan error, many)
	for range many {
		go func() {
			id, err := ask(context.Background(), cfg)
			ids <- id
			errs <- err
		}()
	}
	node.Eventually(t, "all have joined", func() bool { return awaitStuck(n, "run", name, "slow").Waiting == many })
	other := n.PodConfig(func(c *runtimeapi.PodSandboxConfig) { c.Metadata = cfg.Metadata })
	if _, err := ask(n.Ctx(), other); status.Code(err) != rpccodes.AlreadyExists || !strings.Contains(err.Error(), "slow") {
		t.Errorf("another pod of that name: %v", err)
	}
	table, err := n.CLI("ops")
	if err != nil || !strings.Contains(table, "run pod") || !strings.Contains(table, name) {
		t.Errorf("fairlead ops prints %q, %v", table, err)
	}
	st, err := n.Runtime.Status(n.Ctx(), &runtimeapi.StatusRequest{Verbose: true})
	if err != nil || !strings.Contains(st.Info["operations"], name) {
		t.Errorf("the verbose status has %q, %v", st.GetInfo()["operations"], err)
	}
	slow.letGo(t)
	made := ""
	for range many {
		id, err := <-ids, <-errs
		if err != nil || id == "" || (made != "" && id != made) {
			t.Errorf("joined, got %q, %v; another has %q", id, err, made)
		}
		made = id
	}
	if again, err := ask(n.Ctx(), cfg); again != made || err != nil {
		t.Errorf("asked once more: %q, %v; want %q", again, err, made)
	}
	if got := slow.added(); got != 1 {
		t.Errorf("the pod was attached %d times", got)
	}
	if ops := inFlight(n); len(ops) > 0 {
		t.Errorf("in flight at the end: %+v", ops)
	}
}

// A pull whose client is gone goes on, is listed with how far it has come, and
// is joined by the client that comes back: nothing is fetched twice.
func TestPullOutlivesItsClient(t *testing.T) {
	t.Parallel()
	n := node.Start(t, "")
	const repo = "outlives"
	ref, err := node.PushImage(repo+":1", ocispec.ImageConfig{})
	if err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(letGo)
	node.Registry.Inject(images.Fault{Method: "GET", Path: repo + "/blobs/", Hold: hold})
	pull := func(ctx context.Context) (string, error) {
		r, err := n.Images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
		return r.GetImageRef(), err
	}
	_, err = pull(withDeadline(t))
	wantNamed(t, err, "pull image "+ref)
	if op := awaitStuck(n, "pull", ref, ""); op.Waiting != 0 || op.Kind != "image" {
		t.Errorf("after its client has left: %+v", op)
	}
	var id string
	joined := sendOff(func(ctx context.Context) (err error) {
		id, err = pull(ctx)
		return err
	})
	node.Eventually(t, "the client that came back waits", func() bool { return awaitStuck(n, "pull", ref, "").Waiting == 1 })
	letGo()
	if err := <-joined; err != nil || id == "" {
		t.Fatalf("who came back got %q, %v", id, err)
	}
	fetched := map[string]int{}
	for _, r := range node.Registry.Requests() {
		if strings.HasPrefix(r, "GET") && strings.Contains(r, repo+"/blobs/") {
			fetched[r]++
		}
	}
	for r, times := range fetched {
		if times > 1 {
			t.Errorf("%d times %s", times, r)
		}
	}
	if len(fetched) == 0 {
		t.Error("nothing was fetched")
	}
}
