package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/hostpath"
)

// Executor runs a command in a container and waits for its end. It is a part of
// the CRI's client.
type Executor interface {
	ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest, options ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error)
}

// versioned is an Executor that answers a question which costs it nothing.
type versioned interface {
	Version(ctx context.Context, r *runtimeapi.VersionRequest, options ...grpc.CallOption) (*runtimeapi.VersionResponse, error)
}

// Target is what is asked: one attempt at a container.
type Target struct {
	Container *corev1.Container
	ID        string
	Host      string // the pod's address; empty if it has none
	Executor  Executor
	// Plain is told the address of a hook by HTTPS that was asked by HTTP. It may be nil.
	Plain func(address string)
}

// Port is the number of a port of the container, which may be given by its name.
func (t *Target) Port(p intstr.IntOrString) (int, error) {
	if p.Type == intstr.Int {
		return p.IntValue(), nil
	}
	for _, have := range t.Container.Ports {
		if have.Name == p.StrVal {
			return int(have.ContainerPort), nil
		}
	}
	return 0, fmt.Errorf("container %s has no port %q", t.Container.Name, p.StrVal)
}

// address is where a port can be reached: on a host of its own, or the pod's.
func (t *Target) address(host string, p intstr.IntOrString) (string, error) {
	port, err := t.Port(p)
	if err != nil {
		return "", err
	}
	if host == "" {
		host = t.Host
	}
	if host == "" {
		return "", errors.New("the pod has no address")
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// maxAnswer is how much of an answer is looked at, as by the kubelet.
const maxAnswer = 10 << 10

// late is the message of a try whose timeout is over.
const late = "no answer in time"

// Try asks once. It takes no longer than the probe's timeout, and for a command
// a while more at most, as it is the runtime that ends it.
func (t *Target) Try(ctx context.Context, p *corev1.Probe) Result {
	timeout := SettingsOf(p).Timeout
	if p.Exec != nil {
		return t.tryExec(ctx, p.Exec.Command, timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r := Result{Unknown, "it names nothing to ask"}
	switch {
	case p.HTTPGet != nil:
		r = t.tryHTTP(ctx, p.HTTPGet)
	case p.TCPSocket != nil:
		r = t.tryTCP(ctx, p.TCPSocket)
	case p.GRPC != nil:
		r = t.tryGRPC(ctx, p.GRPC)
	}
	if r.Message == late || r.Outcome == Failure && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		r.Message = fmt.Sprintf("no answer within %s", timeout)
	}
	r.Message = OneLine(r.Message)
	return r
}

// How much longer than the timeout a runtime may take for a command, which it ends by itself:
// where the machine has much to do, it takes its time to begin with it. And how long it may take
// to say that it is there.
const (
	overtime = 30 * time.Second
	presence = 2 * time.Second
)

// tryExec wants a command to end with 0. What a runtime that answers nobody does not say is no
// failure of the container.
func (t *Target) tryExec(ctx context.Context, command []string, timeout time.Duration) Result {
	within, cancel := context.WithTimeout(ctx, timeout+overtime)
	defer cancel()
	resp, err := t.Executor.ExecSync(within, &runtimeapi.ExecSyncRequest{ContainerId: t.ID, Cmd: command, Timeout: int64(timeout / time.Second)})
	switch {
	case status.Code(err) == codes.DeadlineExceeded && within.Err() != nil && !t.answers(ctx):
		return Result{Unknown, "the command cannot be run: the runtime does not answer, neither to this nor to who asks for its version; see its log, or restart it"}
	case status.Code(err) == codes.DeadlineExceeded:
		return Result{Failure, fmt.Sprintf("the command did not end within %s", timeout)}
	case err != nil:
		return Result{Unknown, OneLine("the command cannot be run: " + status.Convert(err).Message())}
	case resp.GetExitCode() == 0:
		return Result{Outcome: Success}
	}
	return Result{Failure, DescribeExit(resp)}
}

// answers says whether the runtime does, as far as it can be asked.
func (t *Target) answers(ctx context.Context) bool {
	v, ok := t.Executor.(versioned)
	if !ok {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, presence)
	defer cancel()
	_, err := v.Version(ctx, &runtimeapi.VersionRequest{})
	return err == nil
}

// DescribeExit says how a command ended that failed, and what it printed, on one line.
func DescribeExit(r *runtimeapi.ExecSyncResponse) string {
	out, errs := r.GetStdout(), r.GetStderr()
	text := strings.TrimSpace(string(out[:min(len(out), maxAnswer)]) + " " + string(errs[:min(len(errs), maxAnswer)]))
	said := fmt.Sprintf("the command ended with exit code %d", r.GetExitCode())
	if text != "" {
		said += ": " + text
	}
	return OneLine(said)
}

// tryTCP wants a port to take a connection.
func (t *Target) tryTCP(ctx context.Context, a *corev1.TCPSocketAction) Result {
	address, err := t.address(a.Host, a.Port)
	if err != nil {
		return Result{Unknown, err.Error()}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return failed(err)
	}
	_ = conn.Close()
	return Result{Outcome: Success}
}

// failed is the result of a try that has come to this error.
func failed(err error) Result {
	if short(err) {
		return Result{Unknown, err.Error() + hostpath.Advice(err)}
	}
	return Result{Failure, err.Error()}
}

// short says of an error that it is the agent, or the machine, which has no more of what makes a
// connection: descriptors, ports, memory. A container is not to end for that.
func short(err error) bool {
	return slices.ContainsFunc([]error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EADDRNOTAVAIL}, func(one error) bool { return errors.Is(err, one) })
}

// maxLine bounds what is said about a result.
const maxLine = 300

// OneLine makes text of a stranger fit to be shown: on one line, without control
// characters, and not too long.
func OneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text[:min(len(text), maxAnswer)])
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > maxLine {
		text = string(runes[:maxLine]) + "..."
	}
	return text
}
