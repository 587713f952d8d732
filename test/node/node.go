package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/monitor/client"
	"fairlead.run/test/hostprep"
)

// Patience is how long anything may take that should be quick. It decides
// nothing but when to give up. On an emulated processor it is longer.
var Patience = patience()

func patience() time.Duration {
	text := os.Getenv("FAIRLEAD_TEST_PATIENCE")
	if text == "" {
		return time.Minute
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		panic(err) // in place of a limit that nobody wanted
	}
	return d
}

// Node is a Fairlead daemon with directories, a bridge and sockets of its own.
type Node struct {
	T       *testing.T // the test that is failed by what goes wrong now
	Dir     string     // everything of this node is in it, and it goes with the test
	State   string
	Root    string
	Logs    string // pods' log directories
	Config  string // the TOML file
	Bridge  string
	Env     []string // of the daemon, beside the tests' own
	Runtime runtimeapi.RuntimeServiceClient
	Images  runtimeapi.ImageServiceClient
	Stderr  *Buffer // what all daemons of this node logged
	setup   setup
	daemon  daemon
	conn    *grpc.ClientConn
	ids     ids // of all pods and containers
}

// setup is what a node keeps over its daemons.
type setup struct {
	bin    string // the folder of the daemon
	number int    // tells the nodes of a test binary apart
}

// daemon is the process that runs now, or ran last.
type daemon struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd ended
}

// ids are safe for tests with many clients.
type ids struct {
	sync.Mutex
	seen map[string]bool
}

func (i *ids) add(id string) {
	i.Lock()
	defer i.Unlock()
	if i.seen == nil {
		i.seen = map[string]bool{}
	}
	i.seen[id] = true
}

// in says whether one of them is in name.
func (i *ids) in(name string) bool {
	i.Lock()
	defer i.Unlock()
	for id := range i.seen {
		if strings.Contains(name, id) {
			return true
		}
	}
	return false
}

// Buffer is text that is written and read at the same time.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write adds to the text.
func (s *Buffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// String is the text so far.
func (s *Buffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

var nodes struct {
	sync.Mutex
	n int
}

// Option changes a node before its first daemon starts.
type Option func(*Node) error

// WithEnv adds to the environment of the daemon, until Restart.
func WithEnv(env ...string) Option {
	return func(n *Node) error {
		n.Env = append(n.Env, env...)
		return nil
	}
}

// Plain runs the daemon without the race detector, for tests that measure or
// that start very many.
func Plain(n *Node) (err error) {
	n.setup.bin, err = plain()
	return err
}

// CNIBridge is the bridge of a node with Conflist.
func (n *Node) CNIBridge() string { return "c" + n.Bridge }

// conflist is the name of the node's list, with which plugins mark their rules.
func (n *Node) conflist() string { return "net-" + n.Bridge }

// Conflist gives the node's pods the network of the usual CNI plugins, bridge
// and portmap, in place of the built-in one.
func Conflist(n *Node) error {
	dir := filepath.Join(n.Dir, "cni")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	list := fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"plugins":[
		{"type":"bridge","bridge":%q,"isGateway":true,"ipMasq":true,"hairpinMode":true,
		 "ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.197.%d.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
		{"type":"portmap","capabilities":{"portMappings":true},"snat":true}]}`, n.conflist(), n.CNIBridge(), n.Dir+"/ipam", n.setup.number%250)
	return os.WriteFile(filepath.Join(dir, "10-node.conflist"), []byte(list), 0o644)
}

// Start starts a daemon and ends it with the test, which then fails if
// anything is left on the host. extra is TOML; if it has no [network], the node
// gets the built-in bridge with a range of its own, and if it has no [cgroup],
// systemd makes the cgroups where it is process 1.
func Start(t *testing.T, extra string, options ...Option) *Node {
	t.Helper()
	nodes.Lock()
	nodes.n++
	number := nodes.n
	nodes.Unlock()
	dir, err := os.MkdirTemp("", "fl")
	if err == nil {
		err = os.Chmod(dir, 0o711) // as /run is, for pods with user namespaces
	}
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{
		T: t, Dir: dir, State: dir + "/run", Root: dir + "/lib", Logs: dir + "/logs",
		Config: dir + "/config.toml", Stderr: &Buffer{}, setup: setup{Bin, number},
		Bridge: fmt.Sprintf("flt%d-%d", number, os.Getpid()%100000),
	}
	t.Cleanup(n.end)
	toml := extra
	if hostprep.BySystemd() && !strings.Contains(extra, "[cgroup]") {
		toml += "\n[cgroup]\ndriver = \"systemd\"\n" // the default only on cgroup v2
	}
	if !strings.Contains(extra, "[network]") {
		toml += fmt.Sprintf("\n[network]\nconf_dir = %q\nbridge = %q\nipv4 = \"10.199.%d.0/24\"\nipv6 = \"fd5e:199:%x::/64\"\n",
			dir+"/cni", n.Bridge, number%250, number)
	}
	if err := os.WriteFile(n.Config, []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range options {
		if err := o(n); err != nil {
			t.Fatal(err)
		}
	}
	n.Start()
	return n
}

// Socket is the daemon's, with the CRI on it.
func (n *Node) Socket() string { return filepath.Join(n.State, "fairlead.sock") }

// Program is the fairlead that the node's daemon is.
func (n *Node) Program() string { return filepath.Join(n.setup.bin, "fairlead") }

// Pid is the daemon's.
func (n *Node) Pid() int { return n.daemon.cmd.Process.Pid }

// Ended is closed when the daemon that runs now has ended.
func (n *Node) Ended() <-chan struct{} { return n.daemon.done }

// Start runs the daemon and waits until it answers.
func (n *Node) Start() {
	n.T.Helper()
	if err := n.TryStart(); err != nil {
		n.T.Fatal(err)
	}
}

// TryStart is Start for a daemon that may end at once; the error says so.
func (n *Node) TryStart() error {
	n.T.Helper()
	cmd := exec.Command(filepath.Join(n.setup.bin, "fairlead"), "runtime",
		"--config", n.Config, "--root", n.Root, "--state", n.State, "--log-level", "debug")
	cmd.Stderr = n.Stderr
	cmd.Env = n.environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	n.daemon = daemon{cmd, done}
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	n.dial()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	for {
		_, err := n.Runtime.Version(ctx, &runtimeapi.VersionRequest{}, grpc.WaitForReady(false))
		if err == nil {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("the daemon ended at start (%s): %s", cmd.ProcessState, tail(n.DaemonLog(), 4000))
		case <-ctx.Done():
			return fmt.Errorf("the daemon does not answer: %w\n%s", err, tail(n.DaemonLog(), 4000))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// environ keeps the race detector from sleeping at the end of each program.
func (n *Node) environ() []string {
	return append(append(os.Environ(), "GORACE=atexit_sleep_ms=0"), n.Env...)
}

// CLI runs a command of fairlead against this node, and returns what it printed
// to its standard output. The error holds what it printed to the other one.
func (n *Node) CLI(args ...string) (string, error) {
	n.T.Helper()
	cmd := exec.CommandContext(n.Ctx(), filepath.Join(n.setup.bin, "fairlead"),
		append([]string{"--config", n.Config, "--root", n.Root, "--state", n.State}, args...)...)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("fairlead %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return string(out), nil
}

// Restart ends the daemon if it still runs and starts it with this environment
// and no other.
func (n *Node) Restart(env ...string) {
	n.T.Helper()
	select {
	case <-n.daemon.done:
	default:
		n.Kill(syscall.SIGTERM)
	}
	n.Env = env
	n.Start()
}

func (n *Node) dial() {
	n.T.Helper()
	conn, err := grpc.NewClient("unix://"+n.Socket(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(32<<20)),
		// The usual first pause is a second, ten times what the daemon needs.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.2, MaxDelay: 50 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		n.T.Fatal(err)
	}
	if n.conn != nil {
		_ = n.conn.Close()
	}
	n.conn, n.Runtime, n.Images = conn, runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
}

// Kill ends the daemon by a signal and waits for that.
func (n *Node) Kill(sig syscall.Signal) {
	n.T.Helper()
	if err := n.daemon.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		n.T.Fatal(err)
	}
	select {
	case <-n.daemon.done:
	case <-time.After(Patience):
		n.T.Fatalf("the daemon does not end on %s", sig)
	}
}

// end removes all pods, ends daemon and monitor, and looks for leftovers.
func (n *Node) end() {
	t := n.T
	if n.daemon.cmd == nil || n.daemon.cmd.Process == nil {
		_ = os.RemoveAll(n.Dir)
		return
	}
	select {
	case <-n.daemon.done:
		n.Env = nil
		n.Start() // a test left it dead; what it held must still go away
	default:
	}
	n.RemoveAll()
	n.Kill(syscall.SIGTERM)
	_ = n.conn.Close()
	if fault := fault(n.Stderr.String()); fault != "" {
		t.Errorf("the daemon raced or panicked: %s", fault)
	}
	if _, err := net.InterfaceByName(n.CNIBridge()); err == nil { // plugins leave it
		_ = exec.Command("ip", "link", "delete", n.CNIBridge()).Run()
	}
	n.WantNothingLeft(t)
	if t.Failed() {
		t.Logf("daemon:\n%s", tail(n.DaemonLog(), 12000))
	}
	if err := os.RemoveAll(n.Dir); err != nil {
		t.Errorf("remove the node's folder: %v", err)
	}
}

// RemoveAll stops and removes all pods.
func (n *Node) RemoveAll() {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	pods, err := n.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		n.T.Errorf("list pods at the end: %v", err)
		return
	}
	for _, p := range pods.Items {
		if _, err := n.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.Id}); err != nil {
			n.T.Errorf("stop pod %s at the end: %v", p.Metadata.Name, err)
		}
		if _, err := n.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.Id}); err != nil {
			n.T.Errorf("remove pod %s at the end: %v", p.Metadata.Name, err)
		}
	}
}

// DaemonLog is what the daemon logged, without the words of its image library.
func (n *Node) DaemonLog() string {
	var b strings.Builder
	for line := range strings.Lines(n.Stderr.String()) {
		if !strings.Contains(line, `msg="image library"`) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// faults are how a race or panic of the daemon begins in its log. The word "panic"
// may also be in what it tells of a runtime, which is not its fault.
var faults = regexp.MustCompile(`(?m)^(WARNING: DATA RACE|panic: |fatal error: )|msg="CRI call panicked"|Observed a panic`)

// fault is the beginning of the first race or panic that a log tells of, or "".
func fault(log string) string {
	const most = 8000
	at := faults.FindStringIndex(log)
	if at == nil {
		return ""
	}
	from := strings.LastIndexByte(log[:at[0]], '\n') + 1
	return log[from:min(from+most, len(log))]
}

func tail(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}

func (n *Node) signal(process unix.PollFd, with unix.Signal) {
	n.T.Helper()
	if err := unix.PidfdSendSignal(int(process.Fd), with, nil, 0); err != nil {
		n.T.Fatal(err)
	}
}

// KillMonitor kills one or both processes of the node's monitor: "inner",
// "outer" or "both".
func (n *Node) KillMonitor(which string) {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	m, err := client.Ensure(ctx, client.Options{StateDir: n.State, Binary: filepath.Join(n.setup.bin, "fairlead-monitor")})
	if err != nil {
		n.T.Fatal(err)
	}
	info, err := m.Info(ctx)
	if err != nil {
		n.T.Fatal(err)
	}
	pids := map[string][]int{"inner": {info.InnerPID}, "outer": {info.OuterPID}, "both": {info.OuterPID, info.InnerPID}}[which]
	if pids == nil {
		n.T.Fatalf("a monitor has no process %q", which)
	}
	var ended []unix.PollFd
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			n.T.Fatal(err)
		}
		defer unix.Close(fd)
		ended = append(ended, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if which == "both" {
		// Else the inner one may replace the outer one before it is killed, too, and
		// have started another.
		n.signal(ended[1], unix.SIGSTOP)
	}
	for _, fd := range ended {
		n.signal(fd, unix.SIGKILL)
	}
	Eventually(n.T, "a killed monitor ends, with all it had open", func() bool {
		got, err := unix.Poll(ended, 0)
		return err == nil && got == len(ended)
	})
}
