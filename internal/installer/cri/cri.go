// Package cri asks a CRI runtime what the installer has to know: whether it is
// ready, which handlers it serves with which settings, and which pods are on them.
//
// Each question has a connection of its own, since the runtime is restarted in
// between. It changes nothing.
package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/installer/fault"
)

// timeout is how long one question may take.
const timeout = 10 * time.Second

// Client asks the runtime behind a socket.
type Client struct {
	// Socket is a path in the namespace of this process.
	Socket string
}

// Seen is what a runtime says of itself.
type Seen struct {
	// Name and Version are as the runtime says, without a leading v.
	Name, Version string
	// NotReady is why the runtime is not ready, or "".
	NotReady string
	// Handlers are the names of those that it serves, sorted; nil if it does not
	// say.
	Handlers []string
	// Loaded are the settings of its handlers that it has read; nil if it does not
	// say.
	Loaded map[string]Loaded
}

// Release is the runtime's version, as numbers.
func (s Seen) Release() (major, minor int, err error) {
	parts := strings.SplitN(s.Version, ".", 3)
	if len(parts) > 1 {
		major, err = strconv.Atoi(parts[0])
		if err == nil {
			minor, err = strconv.Atoi(parts[1])
		}
	}
	if len(parts) < 2 || err != nil {
		return 0, 0, fault.New(payload.UnsupportedNode, "%s calls its version %q, which is none that is known", s.Name, s.Version)
	}
	return major, minor, nil
}

// Loaded is one handler in the configuration that a runtime runs with.
type Loaded struct {
	// Type and Path name its shim.
	Type string `json:"runtimeType"`
	Path string `json:"runtimePath"`
	// Options are those of its shim.
	Options map[string]any `json:"options"`
	// PodAnnotations and ContainerAnnotations are patterns of those that are passed on, with
	// containerd, and AllowedAnnotations those that CRI-O honours.
	PodAnnotations       []string `json:"PodAnnotations,omitempty"`
	ContainerAnnotations []string `json:"ContainerAnnotations,omitempty"`
	AllowedAnnotations   []string `json:"allowedAnnotations,omitempty"`
	// Snapshotter and Sandboxer are containerd's; the latter is "" where it tells none.
	Snapshotter string `json:"snapshotter,omitempty"`
	Sandboxer   string `json:"sandboxer,omitempty"`
	// PrivilegedWithoutHostDevices keeps devices of the node from privileged containers.
	PrivilegedWithoutHostDevices bool `json:"privileged_without_host_devices,omitempty"`
	// Root is where the runtime keeps its state, with CRI-O.
	Root string `json:"root,omitempty"`
	// ConfigPath is the configuration of the runtime, with CRI-O.
	ConfigPath string `json:"configPath,omitempty"`
	// Monitor is the program that watches over its containers, with CRI-O.
	Monitor string `json:"monitorPath,omitempty"`
}

// Sandbox is a pod's sandbox.
type Sandbox struct {
	// ID is the runtime's; Namespace and Name are the pod's.
	ID, Namespace, Name string
	// Handler is what it runs on.
	Handler string
	// Created is when.
	Created time.Time
	// Ended says that nothing runs in it any more; it is there until somebody removes it.
	Ended bool
}

// Probe asks for all that is in Seen. An error wraps errdefs.ErrUnavailable if
// nobody answered.
func (c Client) Probe(ctx context.Context) (Seen, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var version *runtimeapi.VersionResponse
	var status *runtimeapi.StatusResponse
	err := c.ask(func(r runtimeapi.RuntimeServiceClient) error {
		var err error
		if version, err = r.Version(ctx, &runtimeapi.VersionRequest{}); err != nil {
			return err
		}
		status, err = r.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
		return err
	})
	if err != nil {
		return Seen{}, err
	}
	s := Seen{Name: version.GetRuntimeName(), Version: strings.TrimPrefix(version.GetRuntimeVersion(), "v")}
	if err := s.read(status); err != nil || s.Name != crio {
		return s, err
	}
	s.Loaded, err = c.inForce(ctx)
	return s, err
}

// Absent says whether an error of a question says that a daemon has answered that has no CRI.
func Absent(err error) bool { return status.Code(err) == codes.Unimplemented }

// Answers asks only for the runtime's status. Without one the error wraps
// errdefs.ErrUnavailable; a runtime that says that it is not ready has answered.
func (c Client) Answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.ask(func(r runtimeapi.RuntimeServiceClient) error {
		_, err := r.Status(ctx, &runtimeapi.StatusRequest{})
		return err
	})
}

func (s *Seen) read(status *runtimeapi.StatusResponse) error {
	s.NotReady = "the runtime does not say whether it is ready"
	for _, c := range status.GetStatus().GetConditions() {
		switch {
		case c.GetType() != runtimeapi.RuntimeReady:
		case c.GetStatus():
			s.NotReady = ""
		default:
			s.NotReady = strings.TrimSpace("the runtime is not ready: " + c.GetReason() + " " + c.GetMessage())
		}
	}
	for _, h := range status.GetRuntimeHandlers() {
		if h.GetName() != "" {
			s.Handlers = append(s.Handlers, h.GetName())
		}
	}
	config, ok := status.GetInfo()["config"]
	if !ok || s.Name != "containerd" {
		slices.Sort(s.Handlers)
		return nil
	}
	var read struct {
		Containerd struct {
			Runtimes map[string]Loaded `json:"runtimes"`
		} `json:"containerd"`
	}
	if err := json.Unmarshal([]byte(config), &read); err != nil {
		return fmt.Errorf("read the configuration that %s shows: %w", s.Name, err)
	}
	s.Loaded = read.Containerd.Runtimes
	if len(s.Handlers) == 0 {
		// Before 2.0 it is only here.
		for name := range s.Loaded {
			s.Handlers = append(s.Handlers, name)
		}
	}
	slices.Sort(s.Handlers)
	return nil
}

// Sandboxes lists all sandboxes, those that have ended too: to remove one, the
// runtime needs its handler.
func (c Client) Sandboxes(ctx context.Context) ([]Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var all []Sandbox
	err := c.ask(func(r runtimeapi.RuntimeServiceClient) error {
		version, err := r.Version(ctx, &runtimeapi.VersionRequest{})
		if err != nil {
			return err
		}
		list, err := r.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			return err
		}
		for _, s := range list.GetItems() {
			all = append(all, Sandbox{
				ID: s.GetId(), Namespace: s.GetMetadata().GetNamespace(), Name: s.GetMetadata().GetName(),
				Handler: s.GetRuntimeHandler(), Created: time.Unix(0, s.GetCreatedAt()), Ended: s.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY,
			})
		}
		if version.GetRuntimeName() != crio {
			return nil
		}
		all, err = onHandlers(ctx, r, all)
		return err
	})
	return all, err
}

// maxMessage bounds a reply: a full node's list is some megabytes.
const maxMessage = 16 << 20

// ask asks one question. Whatever error that returns says that there was no answer.
func (c Client) ask(question func(runtimeapi.RuntimeServiceClient) error) error {
	conn, err := grpc.NewClient("unix://"+c.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", c.Socket, err)
	}
	err = question(runtimeapi.NewRuntimeServiceClient(conn))
	if closed := conn.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("ask the runtime at %s: %w (%w)", c.Socket, err, errdefs.ErrUnavailable)
	}
	return nil
}

// PID is the process that listens at the socket; errdefs.ErrUnavailable says that none
// does. It fails, too, where that process cannot be seen from here, as in a container with a PID namespace of its own.
func (c Client) PID() (int, error) {
	conn, err := net.DialTimeout("unix", c.Socket, timeout)
	if err != nil {
		return 0, fmt.Errorf("connect to %s: %w (%w)", c.Socket, err, errdefs.ErrUnavailable)
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("look who listens at %s: %w", c.Socket, err)
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, failed); err != nil {
		return 0, fmt.Errorf("look who listens at %s: %w", c.Socket, err)
	}
	if peer.Pid <= 0 {
		return 0, fmt.Errorf("look who listens at %s: its process cannot be seen from here; use the host's PID namespace: %w", c.Socket, errdefs.ErrPrecondition)
	}
	return int(peer.Pid), nil
}
