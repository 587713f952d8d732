package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// notTheDaemonsFault are the codes that a request of this test may be answered
// with. What is not among them says that Fairlead failed, or nothing at all.
var notTheDaemonsFault = map[codes.Code]bool{
	codes.OK: true, codes.InvalidArgument: true, codes.NotFound: true, codes.FailedPrecondition: true, codes.AlreadyExists: true,
	codes.Unimplemented: true, codes.ResourceExhausted: true, codes.OutOfRange: true, codes.PermissionDenied: true,
}

var unmarshalling = regexp.MustCompile(`^grpc: (error unmarshalling request|failed to unmarshal the received message): `)

// longestMessage is more than anybody reads, in bytes.
const longestMessage = 4096

// attacker sends requests that nobody should send.
type attacker struct {
	*node.Node
	t    *testing.T
	conn *grpc.ClientConn
	pod  *node.Sandbox
	ctr  *node.Container
}

// Every call of the CRI, with each field of its request in turn empty, huge or
// hostile: the answer is a status that says whose fault it is, the daemon goes
// on, and nothing is left of what it has made of it.
func TestHostileRequests(t *testing.T) {
	n := node.Start(t, "", node.Plain)
	n.Pull(node.Busybox)
	conn, err := grpc.NewClient("unix://"+n.Socket(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(asIs{}), grpc.MaxCallRecvMsgSize(32<<20), grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	a := &attacker{Node: n, t: t, conn: conn}
	pid, requests := n.Pid(), 0
	services := runtimeapi.File_staging_src_k8s_io_cri_api_pkg_apis_runtime_v1_api_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			requests += a.attack(services.Get(i).Methods().Get(j))
		}
	}
	t.Logf("%d bad requests", requests)
	if err := syscall.Kill(pid, 0); err != nil || n.Pid() != pid {
		t.Errorf("the daemon is not the one that was started: %v", err)
	}
	n.RemoveAll()
	node.Eventually(t, "nothing of the pods is left", func() bool { return len(n.OfPods()) == 0 })
	if _, err := os.Stat("/hostile"); err == nil {
		t.Error("a path led out of where it belongs, to /hostile")
	}
}

// attack sends all bad requests of a call and says how many these were.
func (a *attacker) attack(m protoreflect.MethodDescriptor) int {
	bad := badRequests(m.Input())
	for _, r := range bad {
		a.settle()
		what := fmt.Sprintf("%s, %s", m.Name(), r.field)
		resp, err := a.send(m, r.from(a.good(m.Input())))
		a.judge(what, err)
		if err == nil {
			a.undo(what, resp)
		}
	}
	return len(bad)
}

// settle has a pod and a container run for the next request.
func (a *attacker) settle() {
	if a.pod != nil {
		st, err := a.Runtime.ContainerStatus(a.Ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: a.ctr.ID})
		if err == nil && st.Status.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			return
		}
		a.pod.Remove()
	}
	a.pod = a.RunPod("crun")
	a.ctr = a.pod.Start(node.Script("trap 'exit 0' TERM; echo ready; while :; do sleep 1 & wait $!; done"))
	node.Eventually(a.t, "the container ends when it is told to", func() bool { return strings.Contains(a.ctr.Log(), "ready") })
}

func (a *attacker) judge(what string, err error) {
	st := status.Convert(err)
	switch {
	case st.Code() == codes.Internal && unmarshalling.MatchString(st.Message()):
		// gRPC's own word for bytes that are no message.
	case st.Code() == codes.Internal && strings.Contains(st.Message(), "with handler crun: "):
		// What the runtime, or the kernel, says of a value that it is for them to judge.
	case !notTheDaemonsFault[st.Code()]:
		a.t.Errorf("%s: %s %.300q", what, st.Code(), st.Message())
	case err == nil:
	case st.Message() == "" || len(st.Message()) > longestMessage || !utf8.ValidString(st.Message()):
		a.t.Errorf("%s: a message of %d bytes: %.200q", what, len(st.Message()), st.Message())
	case strings.Contains(st.Message(), "panic"):
		a.t.Errorf("%s: %s", what, st.Message())
	}
}

// good is a request that works, as far as one can be made without knowing the call.
func (a *attacker) good(d protoreflect.MessageDescriptor) proto.Message {
	out := message(d)
	switch r := out.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		r.Config, r.RuntimeHandler = a.PodConfig(), "crun"
	case *runtimeapi.CreateContainerRequest:
		r.PodSandboxId, r.Config, r.SandboxConfig = a.pod.ID, node.Script("exit 0"), a.pod.Config
	case *runtimeapi.PullImageRequest:
		r.Image = &runtimeapi.ImageSpec{Image: node.Busybox}
	case *runtimeapi.ExecSyncRequest:
		r.ContainerId, r.Cmd, r.Timeout = a.ctr.ID, []string{"true"}, 10
	case *runtimeapi.ExecRequest:
		r.ContainerId, r.Cmd, r.Stdout = a.ctr.ID, []string{"true"}, true
	case *runtimeapi.AttachRequest:
		r.ContainerId, r.Stdout = a.ctr.ID, true
	default:
		// Of all others, what matters is which pod or container they are about.
		for name, id := range map[protoreflect.Name]string{"pod_sandbox_id": a.pod.ID, "container_id": a.ctr.ID} {
			if f := d.Fields().ByName(name); f != nil {
				out.ProtoReflect().Set(f, protoreflect.ValueOfString(id))
			}
		}
	}
	return out
}

func message(d protoreflect.MessageDescriptor) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err)
	}
	return t.New().Interface()
}

// send sends bytes as a request and decodes the first answer. A stream that
// has none yet is one that was accepted.
func (a *attacker) send(m protoreflect.MethodDescriptor, request []byte) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), node.Patience)
	defer cancel()
	path := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
	var answer []byte
	if !m.IsStreamingServer() {
		if err := a.conn.Invoke(ctx, path, &request, &answer); err != nil {
			return nil, err
		}
		resp := message(m.Output())
		return resp, proto.Unmarshal(answer, resp)
	}
	stream, err := a.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(stream.SendMsg(&request), stream.CloseSend()); err != nil {
		return nil, err
	}
	if m.Name() == "GetContainerEvents" { // which has no end
		_, err := stream.Header()
		return nil, err
	}
	for {
		if err := stream.RecvMsg(&answer); errors.Is(err, io.EOF) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
}

// undo takes away what a request has made all the same. A container that could
// be made has to be one that can be started, or that is refused then.
func (a *attacker) undo(what string, resp proto.Message) {
	switch r := resp.(type) {
	case *runtimeapi.RunPodSandboxResponse:
		a.Know(r.PodSandboxId)
		(&node.Sandbox{Node: a.Node, ID: r.PodSandboxId}).Remove()
	case *runtimeapi.CreateContainerResponse:
		a.Know(r.ContainerId)
		c := &node.Container{Sandbox: a.pod, ID: r.ContainerId}
		if !strings.Contains(what, " sandbox_config.") { // of which nothing reaches the container
			a.judge(what+", started", c.TryStart())
		}
		c.Remove()
	}
}

// asIs is the codec of messages that are encoded already.
type asIs struct{}

func (asIs) Name() string { return "proto" }

func (asIs) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (asIs) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
