package cri

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// On the node's network a sandbox has the node's own loopback and name.
func TestGVisorOnTheNodesNetwork(t *testing.T) {
	n := gvisor(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "from the node") }))
	defer server.Close()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	got := n.Inside("runsc", "hostname; wget -qO- "+server.URL, func(c *containerConfig) {
		c.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
	}, func(p *runtimeapi.PodSandboxConfig) {
		p.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
		p.Hostname = ""
	})
	must(t, got, name+"\nfrom the node")
}

// What a kernel of its own cannot show is refused, and leaves nothing.
func TestGVisorRefusesWhatIsTheNodes(t *testing.T) {
	n := gvisor(t)
	for want, change := range map[string]func(*runtimeapi.PodSandboxConfig){
		"namespace_options.pid": func(p *runtimeapi.PodSandboxConfig) {
			p.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_NODE
		},
		"namespace_options.ipc": func(p *runtimeapi.PodSandboxConfig) {
			p.Linux.SecurityContext.NamespaceOptions.Ipc = runtimeapi.NamespaceMode_NODE
		},
		"kernel.shm_rmid_forced": func(p *runtimeapi.PodSandboxConfig) {
			p.Linux.Sysctls = map[string]string{"kernel.shm_rmid_forced": "1"}
		},
	} {
		_, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: n.PodConfig(change), RuntimeHandler: "runsc"})
		if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if got := sentries(t, n); got != 0 {
		t.Errorf("%d sandboxes are left", got)
	}
}
