package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/cluster/requests"
	"fairlead.run/internal/node/podspec"
)

// TestANodeDoesNotWaitForAnotherCRI: a runtime that answers, and has no CRI v1, will not
// have it later.
func TestANodeDoesNotWaitForAnotherCRI(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	a := &app{endpoint: path, err: t.Output()}
	if _, err := a.patiently(t.Context(), slog.New(slog.DiscardHandler)); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("got %v", err)
	}
}

// TestANodeWaits for a runtime, or for the service of images, that is not there yet, and for
// nothing else.
func TestANodeWaits(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for last, want := range map[error]int{nil: 5, errdefs.ErrPrecondition: 5} {
		synctest.Test(t, func(t *testing.T) {
			tries := 0
			got, err := patiently(t.Context(), log, func() (string, error) {
				switch tries++; {
				case tries < 3:
					return "", fmt.Errorf("connect: %w", errdefs.ErrNotFound)
				case tries < 5:
					return "", fmt.Errorf("connect: %w", errdefs.ErrUnavailable)
				}
				return "a service", last
			})
			if got != "a service" || !errors.Is(err, last) || tries != want {
				t.Errorf("%q, %v after %d tries; want %v after %d", got, err, tries, last, want)
			}
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := patiently(ended, log, func() (int, error) { return 0, errdefs.ErrNotFound }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Queries are answered with the files of the handler, so that they go with that.
func TestLogQueryFlag(t *testing.T) {
	if err := (&apiFlags{shownFlags: shownFlags{logQuery: true}}).check(); err == nil {
		t.Error("without the handler it is taken")
	}
	if err := (&apiFlags{shownFlags: shownFlags{systemLogs: true}}).check(); err != nil {
		t.Error(err)
	}
	f := apiFlags{shownFlags: shownFlags{systemLogs: true, logQuery: true}}
	if err := f.check(); err != nil {
		t.Error(err)
	}
	if got := f.served().NodeLogs; !got.Query || got.Folder != systemLogFolder {
		t.Errorf("%+v", got)
	}
}

func TestNodeIP(t *testing.T) {
	for given, want := range map[string]string{
		"":                         "",
		"10.0.0.1":                 "10.0.0.1",
		"fd00::1, 10.0.0.1":        "fd00::1 10.0.0.1",
		"::ffff:10.0.0.1":          "10.0.0.1",
		"10.0.0.1,10.0.0.2":        "10.0.0.2 is one too many",
		"10.0.0.1,fd00::1,fd00::2": "fd00::2 is one too many",
		"0.0.0.0":                  "nobody else reaches this node at 0.0.0.0",
		"127.0.0.1":                "nobody else reaches this node",
		"host":                     "--node-ip: ParseAddr",
	} {
		f := selfFlags{}
		if given != "" {
			f.ips = strings.Split(given, ",")
		}
		got, err := f.given()
		switch {
		case err == nil && strings.Join(got, " ") != want:
			t.Errorf("%s: %v, want %s", given, got, want)
		case err != nil && (!errors.As(err, new(usageError)) || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", given, err, want)
		}
	}
}

func TestResolvConf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv")
	if err := os.WriteFile(path, []byte("nameserver 192.0.2.53\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for resolv, want := range map[string]string{nodeResolvConf: "its own", path: "192.0.2.53", "": "127.0.0.1"} {
		node := podspec.Node{DNS: podspec.Fixed(podspec.DNS{Servers: []string{"its own"}})}
		if err := (&dnsFlags{resolv: resolv}).set(&node); err != nil || !slices.Equal(node.DNS().Servers, []string{want}) {
			t.Errorf("%q: %v, %v", resolv, node.DNS().Servers, err)
		}
	}
	if err := (&dnsFlags{resolv: "/nowhere"}).set(&podspec.Node{}); !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), "--resolv-conf") {
		t.Errorf("got %v", err)
	}
}

// TestRequestsOfANodeAreCounted has both clients of a node counted.
func TestRequestsOfANodeAreCounted(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"], config.Contexts["c"], config.CurrentContext = &clientcmdapi.Cluster{Server: server.URL}, &clientcmdapi.Context{Cluster: "c"}, "c"
	f := nodeFlags{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	if err := clientcmd.WriteToFile(*config, f.kubeconfig); err != nil {
		t.Fatal(err)
	}
	asked := requests.New()
	client, events, err := f.clients(asked)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*cluster.Client{client, events} {
		_, _ = c.Namespace(t.Context(), "a")
	}
	var out strings.Builder
	if err := asked.Write(&out); err != nil || !strings.Contains(out.String(), `rest_client_requests_total{code="404",method="GET",host="`+server.Listener.Addr().String()+`"} 2`) {
		t.Errorf("%v:\n%s", err, &out)
	}
}
