package criserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// served are the calls that this version answers.
var served = map[string]bool{}

func init() {
	for _, name := range strings.Fields(`Version Status RuntimeConfig UpdateRuntimeConfig
		RunPodSandbox StopPodSandbox RemovePodSandbox PodSandboxStatus ListPodSandbox
		CreateContainer StartContainer StopContainer RemoveContainer ListContainers ContainerStatus
		ContainerStats ListContainerStats PodSandboxStats ListPodSandboxStats
		ListMetricDescriptors ListPodSandboxMetrics
		UpdatePodSandboxResources CheckpointContainer CheckpointPod RestorePod
		UpdateContainerResources ReopenContainerLog ExecSync Exec Attach PortForward
		ListImages ImageStatus PullImage RemoveImage ImageFsInfo`) {
		served[name] = true
	}
}

// eachCall calls f for every unary call of both services.
func eachCall(t testing.TB, f func(name, method string, req, resp protoreflect.MessageType)) {
	t.Helper()
	for _, service := range []string{"RuntimeService", "ImageService"} {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("runtime.v1." + service))
		if err != nil {
			t.Fatal(err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			m := methods.Get(i)
			if m.IsStreamingServer() {
				continue
			}
			req, _ := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
			resp, _ := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
			f(string(m.Name()), fmt.Sprintf("/runtime.v1.%s/%s", service, m.Name()), req, resp)
		}
	}
}

// Whatever comes in, the server answers with a code that means something, and
// goes on.
func TestHostileRequests(t *testing.T) {
	f := newFake()
	conn := serve(t, f.server(t, nil))
	fillers := map[string]*filler{
		"empty":      nil,
		"zeros":      {depth: 3},
		"huge texts": {depth: 3, text: strings.Repeat("x", 100_000), number: 1 << 62, count: 2},
		"negative":   {depth: 4, text: "-", number: -1 << 62, count: 1},
		"NUL bytes":  {depth: 4, text: "a\x00b", number: 1, count: 1},
		"odd paths":  {depth: 4, text: "../../../etc/passwd", number: 65536, count: 3},
		"many":       {depth: 2, text: "n", number: 7, count: 40},
	}
	for name, fill := range fillers {
		eachCall(t, func(call, method string, reqType, respType protoreflect.MessageType) {
			req, resp := reqType.New(), respType.New().Interface()
			if fill != nil {
				fill.message(req, fill.depth)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := conn.Invoke(ctx, method, req.Interface(), resp)
			code := status.Code(err)
			switch {
			case !served[call]:
				if code != codes.Unimplemented || !strings.Contains(err.Error(), "Fairlead") {
					t.Errorf("%s: %s: got %v, want a clear Unimplemented", name, call, err)
				}
			case code == codes.Internal, code == codes.Unknown, code == codes.Unavailable, code == codes.DeadlineExceeded:
				t.Errorf("%s: %s: got %v", name, call, err)
			}
		})
	}
	if _, err := cri.NewRuntimeServiceClient(conn).Version(t.Context(), &cri.VersionRequest{}); err != nil {
		t.Errorf("the server has not survived: %v", err)
	}
}

func TestTooLargeARequestIsRefused(t *testing.T) {
	client := cri.NewRuntimeServiceClient(serve(t, newFake().server(t, nil)))
	_, err := client.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: strings.Repeat("x", MaxMessage+1)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v", err)
	}
}

// filler puts the same values into every field of a message.
type filler struct {
	depth  int
	text   string
	number int64
	count  int
}

func (f *filler) message(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if fd.Name() == "windows" { // refused before anything else is looked at
			continue
		}
		switch {
		case fd.IsMap():
			if f.count > 0 && fd.MapValue().Kind() == protoreflect.StringKind {
				m.Mutable(fd).Map().Set(protoreflect.ValueOfString(f.text).MapKey(), protoreflect.ValueOfString(f.text))
			}
		case fd.IsList():
			list := m.Mutable(fd).List()
			for range f.count {
				if fd.Kind() == protoreflect.MessageKind {
					if depth > 0 {
						f.message(list.AppendMutable().Message(), depth-1)
					}
					continue
				}
				list.Append(f.scalar(fd))
			}
		case fd.Kind() == protoreflect.MessageKind:
			if depth > 0 {
				f.message(m.Mutable(fd).Message(), depth-1)
			}
		default:
			m.Set(fd, f.scalar(fd))
		}
	}
}

func (f *filler) scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(f.text)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(f.text))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(f.number != 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(f.number)))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(f.number))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(f.number))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(f.number))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(f.number))
	}
	return protoreflect.ValueOfInt64(f.number)
}

func TestErrorsHaveTheirCodes(t *testing.T) {
	f := newFake()
	client := cri.NewRuntimeServiceClient(serve(t, f.server(t, nil)))
	for err, want := range map[error]codes.Code{
		errdefs.ErrNotFound: codes.NotFound, errdefs.ErrAlreadyExists: codes.AlreadyExists,
		errdefs.ErrInvalidArgument: codes.InvalidArgument, errdefs.ErrPrecondition: codes.FailedPrecondition,
		errdefs.ErrUnavailable: codes.Unavailable, errdefs.ErrExhausted: codes.ResourceExhausted,
		errdefs.ErrUnimplemented: codes.Unimplemented, errdefs.ErrDeadline: codes.DeadlineExceeded,
		errdefs.ErrInternal: codes.Internal, errPlain: codes.Internal,
		context.Canceled: codes.Canceled, context.DeadlineExceeded: codes.DeadlineExceeded,
	} {
		f.err = fmt.Errorf("stop pod x: %w", err)
		_, got := client.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: "x"})
		if status.Code(got) != want || !strings.Contains(got.Error(), "stop pod x: "+err.Error()) {
			t.Errorf("%v: got %v, want code %s", err, got, want)
		}
	}
}

func TestPanicIsAnInternalError(t *testing.T) {
	f := newFake()
	f.sync = func(context.Context) (*cri.ExecSyncResponse, error) { panic("secret detail") }
	client := cri.NewRuntimeServiceClient(serve(t, f.server(t, nil)))
	_, err := client.ExecSync(t.Context(), &cri.ExecSyncRequest{ContainerId: "222", Cmd: []string{"x"}})
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "secret detail") {
		t.Errorf("got %v", err)
	}
}

func TestCallsWaitUntilReady(t *testing.T) {
	f, ready := newFake(), make(chan struct{})
	client := cri.NewRuntimeServiceClient(serve(t, f.server(t, func(c *Config) { c.Ready = ready })))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	st, err := client.Status(ctx, &cri.StatusRequest{})
	if err != nil || st.Status.Conditions[0].Status || st.Status.Conditions[0].Reason != "Starting" {
		t.Errorf("got %v and %v", st, err)
	}
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := client.ListPodSandbox(short, &cri.ListPodSandboxRequest{}); err == nil {
		t.Error("pods were listed before they were read")
	}
	listed := make(chan error, 1)
	go func() {
		_, err := client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		listed <- err
	}()
	close(ready)
	if err := <-listed; err != nil {
		t.Errorf("got %v once ready", err)
	}
}

func TestStatus(t *testing.T) {
	f := newFake()
	s := f.server(t, func(c *Config) {
		c.Details = func(context.Context) map[string]any { return map[string]any{"images": 3} }
	})
	resp, err := s.Status(t.Context(), &cri.StatusRequest{Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range resp.Status.Conditions {
		if !c.Status || c.Reason != "" {
			t.Errorf("condition %v", c)
		}
	}
	var names []string
	for _, h := range resp.RuntimeHandlers {
		names = append(names, fmt.Sprintf("%q rro=%t userns=%t", h.Name, h.Features.RecursiveReadOnlyMounts, h.Features.UserNamespaces))
	}
	want := `"" rro=true userns=false, "crun" rro=true userns=false, "runc" rro=false userns=true`
	if got := strings.Join(names, ", "); got != want {
		t.Errorf("handlers are %s, want %s", got, want)
	}
	for _, key := range []string{"config", "handlers", "version", "network", "images"} {
		if resp.Info[key] == "" {
			t.Errorf("info has no %s: %v", key, resp.Info)
		}
	}
	// crictl shows nothing but objects as JSON.
	var objects map[string]pod.HandlerInfo
	if err := json.Unmarshal([]byte(resp.Info["handlers"]), &objects); err != nil || !objects["crun"].Ready {
		t.Errorf("handlers are no object by name: %v: %s", err, resp.Info["handlers"])
	}
	f.handlers = append(f.handlers, pod.HandlerInfo{Name: "zz", Default: true, Reason: "it is nowhere"})
	resp, _ = s.Status(t.Context(), &cri.StatusRequest{})
	if c := resp.Status.Conditions[0]; !c.Status || c.Reason != "DefaultHandlerNotReady" || !strings.Contains(c.Message, "zz, does not work: it is nowhere") {
		t.Errorf("a default that is nowhere: %v", c)
	}
	f.network = errors.New("conflist is broken")
	f.handlers = f.handlers[:1]
	resp, _ = s.Status(t.Context(), &cri.StatusRequest{})
	for _, c := range resp.Status.Conditions {
		if c.Status || c.Reason == "" || !strings.Contains(c.Message, "conflist is broken") && !strings.Contains(c.Message, "does not start") {
			t.Errorf("condition %v", c)
		}
	}
	if resp.Info != nil {
		t.Error("info without verbose")
	}
}

func TestPodSandboxStatus(t *testing.T) {
	s := newFake().server(t, nil)
	resp, err := s.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: "aaaa", Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	want := &cri.PodSandboxStatus{
		Id: strings.Repeat("a", 64), State: cri.PodSandboxState_SANDBOX_READY, CreatedAt: 1700000000123456789,
		Metadata: &cri.PodSandboxMetadata{Name: "web", Uid: "u1", Namespace: "default", Attempt: 2},
		Network:  &cri.PodSandboxNetworkStatus{Ip: "10.88.0.5", AdditionalIps: []*cri.PodIP{{Ip: "fd00::5"}}},
		Linux:    &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: &cri.NamespaceOption{}}},
		Labels:   map[string]string{"app": "web", "tier": "front"}, Annotations: map[string]string{"note": "kept"}, RuntimeHandler: "native",
	}
	if !proto.Equal(resp.Status, want) {
		t.Errorf("got  %v\nwant %v", resp.Status, want)
	}
	if len(resp.ContainersStatuses) != 4 || resp.Timestamp == 0 {
		t.Errorf("got %d containers at %d; the one being made must not be seen", len(resp.ContainersStatuses), resp.Timestamp)
	}
	for _, part := range []string{`"netnsPath":"/run/netns/x"`, `"runtimeHandler":"crun"`, `"pid":0`} {
		if !strings.Contains(resp.Info["info"], part) {
			t.Errorf("info has no %s: %s", part, resp.Info["info"])
		}
	}
	old, err := s.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: "bbbb"})
	if err != nil || old.Status.State != cri.PodSandboxState_SANDBOX_NOTREADY || old.Status.Network.Ip != "" || old.Info != nil {
		t.Errorf("got %v and %v", old, err)
	}
	for _, id := range []string{"cccc", "dddd"} {
		if _, err := s.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: id}); !errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("%s: got %v", id, err)
		}
	}
}

func TestContainerStatus(t *testing.T) {
	s := newFake().server(t, nil)
	resp, err := s.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: "333", Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	want := &cri.ContainerStatus{
		Id: strings.Repeat("3", 64), Metadata: &cri.ContainerMetadata{Name: "cExited", Attempt: 1}, State: cri.ContainerState_CONTAINER_EXITED,
		CreatedAt: 1700000000123456789, StartedAt: 1700000001123456789, FinishedAt: 1700000060123456789, ExitCode: 137, Reason: "OOMKilled",
		Image: &cri.ImageSpec{Image: "nginx", UserSpecifiedImage: "nginx"}, ImageRef: "docker.io/library/nginx@sha256:def", ImageId: "sha256:abc",
		Labels: map[string]string{"state": "Exited"}, LogPath: "/var/log/pods/web/c/0.log",
		Mounts:     []*cri.Mount{{ContainerPath: "/v", Readonly: true, Image: &cri.ImageSpec{Image: "nginx-data", ImageRef: "sha256:vol"}}},
		Resources:  &cri.ContainerResources{Linux: &cri.LinuxContainerResources{MemoryLimitInBytes: 1 << 20}},
		User:       &cri.ContainerUser{Linux: &cri.LinuxContainerUser{Uid: 7, Gid: 8, SupplementalGroups: []int64{9}}},
		StopSignal: cri.Signal_SIGNAL_SIGRTMINPLUS3,
	}
	if !proto.Equal(resp.Status, want) {
		t.Errorf("got  %v\nwant %v", resp.Status, want)
	}
	run, _ := s.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: "222", Verbose: true})
	if run.Status.FinishedAt != 0 || !strings.Contains(run.Info["info"], `"pid":4711`) {
		t.Errorf("got %v", run)
	}
}

func TestFilters(t *testing.T) {
	s := newFake().server(t, nil)
	ready, exited := cri.PodSandboxState_SANDBOX_READY, cri.ContainerState_CONTAINER_EXITED
	for name, c := range map[string]struct {
		filter *cri.PodSandboxFilter
		want   string
	}{
		"none":            {nil, "web old"},
		"beginning of id": {&cri.PodSandboxFilter{Id: "aa"}, "web"},
		"unknown id":      {&cri.PodSandboxFilter{Id: "zz"}, ""},
		"pod being made":  {&cri.PodSandboxFilter{Id: "cc"}, ""},
		"state":           {&cri.PodSandboxFilter{State: &cri.PodSandboxStateValue{State: ready}}, "web"},
		"labels":          {&cri.PodSandboxFilter{LabelSelector: map[string]string{"app": "web", "tier": "front"}}, "web"},
		"one label wrong": {&cri.PodSandboxFilter{LabelSelector: map[string]string{"app": "web", "tier": "back"}}, ""},
		"empty value":     {&cri.PodSandboxFilter{LabelSelector: map[string]string{"missing": ""}}, ""},
		"all must match":  {&cri.PodSandboxFilter{Id: "bb", State: &cri.PodSandboxStateValue{State: ready}}, ""},
	} {
		resp, err := sent(s.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{Filter: c.filter}))
		var got []string
		for _, p := range resp.GetItems() {
			got = append(got, p.Metadata.Name)
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("pods by %s: got %q and %v, want %q", name, got, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		filter *cri.ContainerFilter
		want   string
	}{
		"none":            {nil, "cCreated cRunning cExited cUnknown"},
		"id":              {&cri.ContainerFilter{Id: strings.Repeat("2", 64)}, "cRunning"},
		"unknown id":      {&cri.ContainerFilter{Id: "zz"}, ""},
		"being made":      {&cri.ContainerFilter{Id: "000"}, ""},
		"state":           {&cri.ContainerFilter{State: &cri.ContainerStateValue{State: exited}}, "cExited"},
		"pod":             {&cri.ContainerFilter{PodSandboxId: "aa"}, "cCreated cRunning cExited cUnknown"},
		"another pod":     {&cri.ContainerFilter{PodSandboxId: "bb"}, ""},
		"id in other pod": {&cri.ContainerFilter{Id: "22", PodSandboxId: "bb"}, ""},
		"label":           {&cri.ContainerFilter{LabelSelector: map[string]string{"state": "Unknown"}}, "cUnknown"},
	} {
		resp, err := sent(s.ListContainers(t.Context(), &cri.ListContainersRequest{Filter: c.filter}))
		var got []string
		for _, p := range resp.GetContainers() {
			got = append(got, p.Metadata.Name)
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("containers by %s: got %q and %v, want %q", name, got, err, c.want)
		}
	}
}

func TestCallsReachTheCore(t *testing.T) {
	f := newFake()
	conn := serve(t, f.server(t, nil))
	r, i := cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn)
	ctx := t.Context()
	id, ctr := strings.Repeat("a", 64), strings.Repeat("2", 64)
	meta := &cri.PodSandboxMetadata{Name: "n", Uid: "u", Namespace: "ns"}
	nginx := &cri.ImageSpec{Image: "docker.io/library/nginx"}
	for want, call := range map[string]func() error{
		`RunPod n on "kata"`: func() error {
			_, err := r.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{Metadata: meta}, RuntimeHandler: "kata"})
			return err
		},
		"StopPod " + id: func() error {
			_, err := r.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: "aaa"})
			return err
		},
		"StopPod unknown": func() error {
			_, err := r.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: "unknown"})
			return err
		},
		"RemovePod " + id: func() error {
			_, err := r.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
			return err
		},
		"StartContainer " + ctr: func() error {
			_, err := r.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: "222"})
			return err
		},
		"StopContainer " + ctr + " after 3s": func() error {
			_, err := r.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: ctr, Timeout: 3})
			return err
		},
		"StopContainer gone after 0s": func() error {
			_, err := r.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: "gone", Timeout: -5})
			return err
		},
		"RemoveContainer " + ctr: func() error {
			_, err := r.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: ctr})
			return err
		},
		"ReopenLog " + ctr: func() error {
			_, err := r.ReopenContainerLog(ctx, &cri.ReopenContainerLogRequest{ContainerId: ctr})
			return err
		},
		"UpdateContainer " + ctr + " to 5": func() error {
			_, err := r.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: ctr, Linux: &cri.LinuxContainerResources{MemoryLimitInBytes: 5}})
			return err
		},
		"CreateContainer c in " + id: func() error {
			_, err := r.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: id, Config: &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "c"}, Image: nginx}})
			return err
		},
		"ExecSync " + ctr + " [ls -l]": func() error {
			_, err := r.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: ctr, Cmd: []string{"ls", "-l"}})
			return err
		},
		"ExecURL " + ctr + " [sh]": func() error {
			_, err := r.Exec(ctx, &cri.ExecRequest{ContainerId: "22", Cmd: []string{"sh"}, Stdout: true})
			return err
		},
		"AttachURL " + ctr: func() error { _, err := r.Attach(ctx, &cri.AttachRequest{ContainerId: ctr, Stdout: true}); return err },
		"PortForwardURL " + id + " [80]": func() error {
			_, err := r.PortForward(ctx, &cri.PortForwardRequest{PodSandboxId: id, Port: []int32{80}})
			return err
		},
		"SetPodCIDR [10.0.0.0/16 fd00::/64]": func() error {
			_, err := r.UpdateRuntimeConfig(ctx, &cri.UpdateRuntimeConfigRequest{RuntimeConfig: &cri.RuntimeConfig{NetworkConfig: &cri.NetworkConfig{PodCidr: "10.0.1.0/16, fd00::/64"}}})
			return err
		},
		"Pull docker.io/library/nginx": func() error { _, err := i.PullImage(ctx, &cri.PullImageRequest{Image: nginx}); return err },
		"Remove sha256:abc":            func() error { _, err := i.RemoveImage(ctx, &cri.RemoveImageRequest{Image: nginx}); return err },
		"Remove other": func() error {
			_, err := i.RemoveImage(ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: "other"}})
			return err
		},
	} {
		f.calls = nil
		if err := call(); err != nil || len(f.calls) != 1 || f.calls[0] != want {
			t.Errorf("got calls %q and %v, want %q", f.calls, err, want)
		}
	}
}

func TestStreamsAreRefusedWhereTheyMakeNoSense(t *testing.T) {
	f := newFake()
	s := f.server(t, nil)
	ctx := t.Context()
	running, exited := "222", "333"
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"exec in an exited container": {second(s.Exec(ctx, &cri.ExecRequest{ContainerId: exited, Cmd: []string{"x"}, Stdout: true})), errdefs.ErrPrecondition},
		"exec without streams":        {second(s.Exec(ctx, &cri.ExecRequest{ContainerId: running, Cmd: []string{"x"}})), errdefs.ErrInvalidArgument},
		"exec with tty and stderr":    {second(s.Exec(ctx, &cri.ExecRequest{ContainerId: running, Cmd: []string{"x"}, Tty: true, Stderr: true})), errdefs.ErrInvalidArgument},
		"exec without command":        {second(s.Exec(ctx, &cri.ExecRequest{ContainerId: running, Stdout: true})), errdefs.ErrInvalidArgument},
		"exec sync without command":   {second(s.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: running})), errdefs.ErrInvalidArgument},
		"exec sync in nothing":        {second(s.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: "zz", Cmd: []string{"x"}})), errdefs.ErrNotFound},
		"attach with another tty":     {second(s.Attach(ctx, &cri.AttachRequest{ContainerId: running, Tty: true, Stdout: true})), errdefs.ErrInvalidArgument},
		"attach to an exited one":     {second(s.Attach(ctx, &cri.AttachRequest{ContainerId: exited, Stdout: true})), errdefs.ErrPrecondition},
		"forward of a stopped pod":    {second(s.PortForward(ctx, &cri.PortForwardRequest{PodSandboxId: "bbb"})), errdefs.ErrPrecondition},
		"forward of port 0":           {second(s.PortForward(ctx, &cri.PortForwardRequest{PodSandboxId: "aaa", Port: []int32{0}})), errdefs.ErrInvalidArgument},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: got %v, want %v", name, c.err, c.want)
		}
	}
	if _, err := s.Attach(ctx, &cri.AttachRequest{ContainerId: running, Stdin: true, Stdout: true}); err != nil || !f.attach.Stdin {
		t.Errorf("got %v and %v", f.attach, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestExecSyncTimeout(t *testing.T) {
	f := newFake()
	f.sync = func(ctx context.Context) (*cri.ExecSyncResponse, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	client := cri.NewRuntimeServiceClient(serve(t, f.server(t, nil)))
	_, err := client.ExecSync(t.Context(), &cri.ExecSyncRequest{ContainerId: "222", Cmd: []string{"x"}, Timeout: 1})
	if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "longer than 1s") {
		t.Errorf("got %v", err)
	}
	f.sync = func(ctx context.Context) (*cri.ExecSyncResponse, error) {
		if _, ok := ctx.Deadline(); ok {
			return nil, errors.New("there is a deadline")
		}
		return &cri.ExecSyncResponse{}, nil
	}
	if _, err := client.ExecSync(t.Context(), &cri.ExecSyncRequest{ContainerId: "222", Cmd: []string{"x"}}); err != nil {
		t.Errorf("timeout 0: %v", err)
	}
}

func TestImages(t *testing.T) {
	f := newFake()
	conn := serve(t, f.server(t, nil))
	c, ctx := cri.NewImageServiceClient(conn), t.Context()
	want := &cri.Image{
		Id: "sha256:abc", RepoTags: []string{"docker.io/library/nginx:latest"}, Size: 99, Uid: &cri.Int64Value{Value: 1000}, Pinned: true,
		Spec: &cri.ImageSpec{Image: "sha256:abc"},
	}
	st, err := c.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: "sha256:abc"}, Verbose: true})
	if err != nil || !proto.Equal(st.Image, want) || st.Info["info"] != `{"x":1}` {
		t.Errorf("got %v and %v", st, err)
	}
	if st, err := c.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: "missing"}}); err != nil || st.Image != nil {
		t.Errorf("a missing image: got %v and %v", st, err)
	}
	if _, err := c.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: "BAD"}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a bad name: got %v", err)
	}
	for filter, n := range map[string]int{"": 1, "sha256:abc": 1, "missing": 0} {
		l, err := c.ListImages(ctx, &cri.ListImagesRequest{Filter: &cri.ImageFilter{Image: &cri.ImageSpec{Image: filter}}})
		if err != nil || len(l.Images) != n {
			t.Errorf("list %q: got %v and %v", filter, l, err)
		}
	}
	resp, err := c.PullImage(ctx, &cri.PullImageRequest{
		Image: &cri.ImageSpec{Image: "x", RuntimeHandler: "runc"}, Auth: &cri.AuthConfig{Username: "u", Password: "p"},
		SandboxConfig: &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: "n"}},
	})
	if err != nil || resp.ImageRef != "sha256:pulled" || f.pull.Auth.Password != "p" || f.pull.Pod.Name != "n" {
		t.Errorf("got %v, %v and %v", resp, err, f.pull)
	}
	_, err = c.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: "x", RuntimeHandler: "kata"}})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "broken, crun, runc") {
		t.Errorf("an unknown handler: got %v", err)
	}
	fs, err := c.ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
	if err != nil || fs.ImageFilesystems[0].FsId.Mountpoint != "/images" || fs.ImageFilesystems[0].UsedBytes.Value != 5 || fs.ImageFilesystems[0].Timestamp == 0 {
		t.Errorf("got %v and %v", fs, err)
	}
	containers := uint64(0)
	for _, p := range f.pods { // in any state: a layer is there until the container is removed
		containers += uint64(len(p.Containers))
	}
	if w := fs.GetContainerFilesystems(); len(w) != 1 || w[0].FsId.Mountpoint != "/layers" || w[0].UsedBytes.Value != 1000*containers || w[0].InodesUsed.Value != containers || w[0].Timestamp != 7e9 {
		t.Errorf("what %d containers have written: %v", containers, w)
	}
}

// What the author of one image wrote into it cannot fill the message that lists
// all of them.
func TestLongAnnotationsAreNotListed(t *testing.T) {
	f := newFake()
	long := map[string]string{"a": strings.Repeat("x", maxListed)}
	f.images = []Image{{ID: "sha256:long", Annotations: long}, {ID: "sha256:short", Annotations: map[string]string{"a": "b"}}}
	s := f.server(t, nil)
	list, err := s.ListImages(t.Context(), &cri.ListImagesRequest{})
	if err != nil || len(list.Images) != 2 || len(list.Images[0].Spec.Annotations) != 0 || list.Images[1].Spec.Annotations["a"] != "b" {
		t.Errorf("%v %v", list, err)
	}
	list, err = s.ListImages(t.Context(), &cri.ListImagesRequest{Filter: &cri.ImageFilter{Image: &cri.ImageSpec{Image: "sha256:long"}}})
	if err != nil || len(list.Images) != 1 || len(list.Images[0].Spec.Annotations) != 0 {
		t.Errorf("%v %v", list, err)
	}
	st, err := s.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: "sha256:long"}})
	if err != nil || len(st.Image.Spec.Annotations["a"]) != maxListed {
		t.Errorf("%v", err)
	}
}

func TestEncodeImageUser(t *testing.T) {
	for user, want := range map[string]string{"": "- ", "0": "0 ", "1000:1000": "1000 ", "web": "- web", "web:www": "- web", "99999999999999999999": "- 99999999999999999999"} {
		i := encodeImage(&Image{User: user})
		got := "-"
		if i.Uid != nil {
			got = fmt.Sprint(i.Uid.Value)
		}
		if got += " " + i.Username; got != want {
			t.Errorf("%q: got %q, want %q", user, got, want)
		}
		if i.Size == 0 {
			t.Error("size is 0, and must be more")
		}
	}
}
