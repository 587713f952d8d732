package criserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

// No call of the CRI is answered by generated code: not those that are refused
// either.
func TestEveryCallIsServed(t *testing.T) {
	f := newFake()
	conn := serve(t, f.server(t, nil))
	said := func(name string, err error) {
		if err != nil && (strings.Contains(err.Error(), "not implemented") || strings.Contains(err.Error(), "does not serve")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	eachCall(t, func(name, method string, req, resp protoreflect.MessageType) {
		said(name, conn.Invoke(t.Context(), method, req.New().Interface(), resp.New().Interface()))
	})
	streams := 0
	for _, service := range []string{"RuntimeService", "ImageService"} {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("runtime.v1." + service))
		if err != nil {
			t.Fatal(err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			m := methods.Get(i)
			if !m.IsStreamingServer() {
				continue
			}
			streams++
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, fmt.Sprintf("/runtime.v1.%s/%s", service, m.Name()))
			if err != nil {
				t.Fatal(err)
			}
			req, _ := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
			resp, _ := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
			err = errors.Join(s.SendMsg(req.New().Interface()), s.CloseSend())
			if err == nil {
				err = s.RecvMsg(resp.New().Interface())
			}
			if !errors.Is(err, io.EOF) {
				said(string(m.Name()), err)
			}
			cancel()
		}
	}
	if streams < 6 {
		t.Errorf("only %d calls are streams", streams)
	}
}

func TestUpdatePodSandboxResources(t *testing.T) {
	f := newFake()
	s := f.server(t, nil)
	_, err := s.UpdatePodSandboxResources(t.Context(), &cri.UpdatePodSandboxResourcesRequest{
		PodSandboxId: "aaa", Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: 5},
	})
	if err != nil || len(f.calls) != 1 || !strings.HasPrefix(f.calls[0], "ResizePod aaaa") || !strings.HasSuffix(f.calls[0], "and <nil>") {
		t.Errorf("%v %q", err, f.calls)
	}
	_, err = s.UpdatePodSandboxResources(t.Context(), &cri.UpdatePodSandboxResourcesRequest{
		PodSandboxId: "aaa", Overhead: &cri.LinuxContainerResources{CpuPeriod: -5},
	})
	if err == nil || !strings.Contains(err.Error(), "overhead.cpu_period") {
		t.Error(err)
	}
}

func TestAnnotationsOfAnUpdateAreRefused(t *testing.T) {
	s := newFake().server(t, nil)
	_, err := s.UpdateContainerResources(t.Context(), &cri.UpdateContainerResourcesRequest{
		ContainerId: "c", Linux: &cri.LinuxContainerResources{CpuShares: 2}, Annotations: map[string]string{"a": "b"},
	})
	if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), "annotations is set") {
		t.Errorf("%v", err)
	}
}
