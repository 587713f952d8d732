package installer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	payload "fairlead.run/api/payload/v1alpha1"
)

// withHandler gives a payload a second handler, which is as its first one.
func withHandler(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, payload.ManifestName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, list, _ := strings.Cut(string(data), `"handlers":[`)
	first, tail, _ := strings.Cut(list, "]")
	_, rest, _ := strings.Cut(first, ",")
	if err := os.WriteFile(path, []byte(head+`"handlers":[`+first+`,{"name":"`+name+`",`+rest+"]"+tail), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A pod that comes at the last moment to a handler that a new version no longer has keeps
// what it runs on, and a runtime that does not tell of pods yet is asked again.
func TestUpgradeUnderALatePod(t *testing.T) {
	releases(t, func(t *testing.T, n *node) {
		n.install(withHandler(t, bundle(t, "test", "1", "1"), "second"))
		before := n.tree("etc")
		looks := 0
		n.onRestart = func() {
			n.sandboxes = []*runtimeapi.PodSandbox{{Id: "late", RuntimeHandler: "second", Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "n", Name: "late"}}}
			n.onRestart, looks = nil, 0
			n.onList = func() error {
				if looks++; looks < 3 {
					return status.Error(codes.Unavailable, "not yet")
				}
				return nil
			}
		}
		r := n.installer().Install(t.Context(), sources([]string{bundle(t, "test", "2", "2")}))[0]
		if r.State != payload.RolledBack || r.Reason != payload.InUse || !strings.Contains(r.Message, "n/late") {
			t.Errorf("%+v", r)
		}
		n.serves("runc", "foreign", "test", "second")
		n.same(before, "etc")
	})
}

// A restart waits for a container that is being started, also where it takes something away.
func TestRestartWaitsForContainers(t *testing.T) {
	n := newNode(t, 2)
	change := func(f func()) {
		t.Helper()
		looks := 0
		n.mu.Lock()
		n.containers = []*runtimeapi.Container{{Id: "c", State: runtimeapi.ContainerState_CONTAINER_CREATED, CreatedAt: time.Now().UnixNano()}}
		n.onContainers = func() {
			if looks++; looks == 3 {
				n.containers = nil
			}
		}
		n.onRestart = func() {
			if looks < 3 {
				t.Errorf("it is restarted after %d looks", looks)
			}
		}
		n.mu.Unlock()
		before := n.count()
		f()
		if n.count() == before {
			t.Error("it is not restarted")
		}
	}
	change(func() { n.install(bundle(t, "test", "1", "1")) })
	change(func() { n.uninstall("test") })
}
