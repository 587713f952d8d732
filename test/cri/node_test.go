package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/monitor/client"
)

// patience is how long anything may take that should be quick. It decides
// nothing but when to give up.
const patience = 60 * time.Second

// node is a Fairlead daemon with directories, a bridge and sockets of its own.
type node struct {
	t       *testing.T
	dir     string
	state   string
	root    string
	logs    string // pods' log directories
	config  string
	cmd     *exec.Cmd
	done    chan struct{} // closed when cmd ended
	conn    *grpc.ClientConn
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	stderr  *syncBuffer
	bridge  string
	ids     map[string]bool // of all pods and containers
	env     []string        // of the daemon, beside the tests' own
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

var nodes struct {
	sync.Mutex
	n int
}

// startNode starts a daemon and ends it with the test, which then fails if
// anything is left on the host. extra is TOML.
func startNode(t *testing.T, extra string) *node {
	t.Helper()
	nodes.Lock()
	nodes.n++
	number := nodes.n
	nodes.Unlock()
	dir, err := os.MkdirTemp("", "fl")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{
		t: t, dir: dir, state: dir + "/run", root: dir + "/lib", logs: dir + "/logs",
		config: dir + "/config.toml", stderr: &syncBuffer{}, ids: map[string]bool{},
		bridge: fmt.Sprintf("flt%d-%d", number, os.Getpid()%100000),
	}
	t.Cleanup(n.end)
	toml := extra
	if !strings.Contains(extra, "[network]") {
		toml += fmt.Sprintf("\n[network]\nconf_dir = %q\nbridge = %q\nipv4 = \"10.199.%d.0/24\"\nipv6 = \"fd5e:199:%x::/64\"\n",
			dir+"/cni", n.bridge, number%250, number)
	}
	if err := os.WriteFile(n.config, []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}
	n.start()
	return n
}

func (n *node) socket() string { return filepath.Join(n.state, "fairlead.sock") }

// start runs the daemon and waits until it answers.
func (n *node) start() {
	n.t.Helper()
	n.cmd = exec.Command(filepath.Join(bin, "fairlead"), "runtime",
		"--config", n.config, "--root", n.root, "--state", n.state, "--log-level", "debug")
	n.cmd.Stderr = n.stderr
	n.cmd.Env = append(os.Environ(), n.env...)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(n.cmd, n.done)
	n.dial()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		_, err := n.runtime.Version(ctx, &runtimeapi.VersionRequest{}, grpc.WaitForReady(false))
		if err == nil {
			return
		}
		select {
		case <-n.done:
			n.t.Fatalf("the daemon ended at start: %s", n.stderr)
		case <-ctx.Done():
			n.t.Fatalf("the daemon does not answer: %v\n%s", err, n.stderr)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (n *node) dial() {
	n.t.Helper()
	conn, err := grpc.NewClient("unix://"+n.socket(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(32<<20)))
	if err != nil {
		n.t.Fatal(err)
	}
	if n.conn != nil {
		_ = n.conn.Close()
	}
	n.conn, n.runtime, n.images = conn, runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
}

// kill ends the daemon by a signal and waits for that.
func (n *node) kill(sig syscall.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		n.t.Fatal(err)
	}
	select {
	case <-n.done:
	case <-time.After(patience):
		n.t.Fatalf("the daemon does not end on %s", sig)
	}
}

// end removes all pods, ends daemon and monitor, and looks for leftovers.
func (n *node) end() {
	t := n.t
	if n.cmd == nil || n.cmd.Process == nil {
		_ = os.RemoveAll(n.dir)
		return
	}
	select {
	case <-n.done:
		n.start() // a test left it dead; what it held must still go away
	default:
	}
	n.removeAll()
	n.kill(syscall.SIGTERM)
	_ = n.conn.Close()
	if strings.Contains(n.stderr.String(), "DATA RACE") || strings.Contains(n.stderr.String(), "panic:") {
		t.Errorf("the daemon raced or panicked")
	}
	n.wantNothingLeft(t)
	if t.Failed() {
		t.Logf("daemon:\n%s", tail(n.daemonLog(), 12000))
	}
	if err := os.RemoveAll(n.dir); err != nil {
		t.Errorf("remove the node's folder: %v", err)
	}
}

func (n *node) removeAll() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pods, err := n.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		n.t.Errorf("list pods at the end: %v", err)
		return
	}
	for _, p := range pods.Items {
		if _, err := n.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.Id}); err != nil {
			n.t.Errorf("stop pod %s at the end: %v", p.Metadata.Name, err)
		}
		if _, err := n.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.Id}); err != nil {
			n.t.Errorf("remove pod %s at the end: %v", p.Metadata.Name, err)
		}
	}
}

// daemonLog is what the daemon logged, without the words of its image library.
func (n *node) daemonLog() string {
	var b strings.Builder
	for line := range strings.Lines(n.stderr.String()) {
		if !strings.Contains(line, `msg="image library"`) {
			b.WriteString(line)
		}
	}
	return b.String()
}

func tail(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}

// killMonitor kills one or both processes of the node's monitor.
func (n *node) killMonitor(which string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	m, err := client.Ensure(ctx, client.Options{StateDir: n.state, Binary: filepath.Join(bin, "fairlead-monitor")})
	if err != nil {
		n.t.Fatal(err)
	}
	info, err := m.Info(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	pids := map[string][]int{"inner": {info.InnerPID}, "outer": {info.OuterPID}, "both": {info.OuterPID, info.InnerPID}}[which]
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			n.t.Fatal(err)
		}
	}
}
