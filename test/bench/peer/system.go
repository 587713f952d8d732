package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/bench/arena"
)

// patience is how long a daemon may take to start or to end. It decides nothing
// but when to give up.
const patience = 60 * time.Second

// RegistryAddress is where each daemon finds the registry, in its own network.
const RegistryAddress = "127.0.0.1:5000"

// Kind is a way to set up a daemon. The value names its folders.
type Kind string

// The kinds. They are arena.StateFolders too.
const (
	Containerd      Kind = "containerd"
	FairleadCNI     Kind = "cni"
	FairleadBuiltin Kind = "builtin"
)

// Config is what all daemons of a run share.
type Config struct {
	Arena arena.Arena
	// Programs by name: fairlead, containerd, containerd-shim-runc-v2, runc, crun,
	// and, to have a handler of that name, runsc.
	Programs map[string]string
	// Handlers are more handlers of Fairlead, as TOML.
	Handlers string
	// Plugins is the folder of CNI plugins.
	Plugins string
	// Registry serves the images.
	Registry http.Handler
	// PauseImage is what containerd starts in each pod.
	PauseImage string
	// Stages makes Fairlead log how long each stage of an operation took.
	Stages bool
	// Mirror makes the registry serve all images, whatever registry their names say.
	Mirror bool
	// NRITimeout is how long an NRI plugin may take to answer; 0 is the daemon's default.
	NRITimeout time.Duration
}

// System is a daemon that runs.
type System struct {
	Kind    Kind
	Runtime runtimeapi.RuntimeServiceClient
	Images  runtimeapi.ImageServiceClient
	// Logs is the folder for the logs of pods.
	Logs string
	// Cgroup is the parent for the cgroups of pods.
	Cgroup string
	// Output is the file with what the daemon says.
	Output string
	// Socket is where the daemon serves the CRI, and NRI where plugins connect.
	Socket, NRI string

	argv  []string
	cmd   *exec.Cmd
	ended chan struct{}
	conn  *grpc.ClientConn
	serve net.Listener
}

// Start starts a daemon and waits until it is ready. It finds nothing of one of
// the same kind that ran before.
func Start(ctx context.Context, kind Kind, cfg Config) (*System, error) {
	s := &System{
		Kind: kind, Cgroup: filepath.Join(cfg.Arena.Cgroup, string(kind)),
		Logs: cfg.dir(kind, "logs"), Output: cfg.dir(kind, "output.log"),
		NRI: filepath.Join(cfg.state(kind), "nri.sock"),
	}
	if kind == Containerd {
		s.NRI = "/var/run/nri/nri.sock"
	}
	// An earlier one of this kind may have been here.
	for _, d := range []string{cfg.dir(kind, ""), cfg.state(kind)} {
		if err := os.RemoveAll(d); err != nil {
			return nil, fmt.Errorf("start %s: %w", kind, err)
		}
	}
	for _, d := range []string{s.Logs, cfg.dir(kind, "varlib"), cfg.state(kind)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("start %s: %w", kind, err)
		}
	}
	var err error
	if s.argv, s.Socket, err = cfg.prepare(kind); err != nil {
		return nil, fmt.Errorf("start %s: %w", kind, err)
	}
	if err := s.launch(arena.Command(cfg.dir(kind, "varlib"), s.argv...)); err != nil {
		return nil, fmt.Errorf("start %s: %w", kind, err)
	}
	if err := s.connect(ctx, cfg.Registry); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", kind, err), s.Stop())
	}
	return s, nil
}

func (c Config) dir(kind Kind, name string) string {
	return filepath.Join(c.Arena.Dir, string(kind), name)
}

func (c Config) state(kind Kind) string { return filepath.Join(c.Arena.Memory, string(kind)) }

// prepare writes the configuration files.
func (c Config) prepare(kind Kind) (argv []string, socket string, err error) {
	if kind != FairleadBuiltin {
		if err := c.writeConflist(kind); err != nil {
			return nil, "", err
		}
	}
	if err := c.writeHosts(kind); err != nil {
		return nil, "", err
	}
	if kind == Containerd {
		return c.containerd()
	}
	return c.fairlead(kind)
}

func (s *System) launch(cmd *exec.Cmd) error {
	ended := make(chan struct{})
	s.ended = ended
	out, err := os.OpenFile(s.Output, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close() // the daemon has a copy
	s.cmd = cmd
	s.cmd.Stdout, s.cmd.Stderr = out, out
	// containerd looks for its shim beside itself or here.
	s.cmd.Env = append(s.cmd.Env, "PATH="+filepath.Dir(s.argv[0])+":"+os.Getenv("PATH"))
	started := make(chan error)
	go func() {
		// Never unlocked: the kernel kills the daemon when the thread that started it ends.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its output
			close(ended)
		}
	}()
	return <-started
}

// dial connects to the daemon anew.
func (s *System) dial() error {
	conn, err := grpc.NewClient("unix://"+s.Socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(32<<20)))
	if err != nil {
		return err
	}
	s.conn, s.Runtime, s.Images = conn, runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	return nil
}

func (s *System) connect(ctx context.Context, registry http.Handler) (err error) {
	if err := s.dial(); err != nil {
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		return err
	}
	if s.serve, err = arena.Listen(s.Pid(), RegistryAddress); err != nil {
		return fmt.Errorf("serve the registry: %w", err)
	}
	go func() { _ = http.Serve(s.serve, registry) }() // ends when Stop closes the listener
	return nil
}

// awaitReady waits until runtime and network are ready.
func (s *System) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	for {
		r, err := s.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
		switch {
		case err != nil:
			last = err
		case ready(r):
			return nil
		default:
			last = fmt.Errorf("it is not ready: %v", r.GetStatus())
		}
		select {
		case <-s.ended:
			return fmt.Errorf("it ended:\n%s", s.Said())
		case <-ctx.Done():
			return fmt.Errorf("%w:\n%s", last, s.Said())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func ready(r *runtimeapi.StatusResponse) bool {
	n := 0
	for _, c := range r.GetStatus().GetConditions() {
		if c.Status && (c.Type == runtimeapi.RuntimeReady || c.Type == runtimeapi.NetworkReady) {
			n++
		}
	}
	return n == 2
}

// Pid is the daemon's process.
func (s *System) Pid() int { return s.cmd.Process.Pid }

// Said is the end of what the daemon said, for errors.
func (s *System) Said() string {
	b, err := os.ReadFile(s.Output)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4096):])
}

// Stop ends the daemon. Its pods should have been removed.
func (s *System) Stop() error {
	if s.serve != nil {
		_ = s.serve.Close()
	}
	if s.conn != nil {
		_ = s.conn.Close()
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end %s: %w", s.Kind, err)
	}
	select {
	case <-s.ended:
		return nil
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("%s does not end on SIGTERM", s.Kind), s.cmd.Process.Kill())
	}
}
