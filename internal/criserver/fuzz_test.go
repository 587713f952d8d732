package criserver

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// callersFault are the codes that may answer a request nobody should send.
var callersFault = map[codes.Code]bool{
	codes.OK: true, codes.InvalidArgument: true, codes.NotFound: true, codes.FailedPrecondition: true,
	codes.AlreadyExists: true, codes.Unimplemented: true, codes.ResourceExhausted: true,
}

// FuzzRequests sends any message to any call: the converters of all of them get
// through without a panic, and what they refuse is told as the caller's fault.
func FuzzRequests(f *testing.F) {
	type call struct {
		name string
		req  protoreflect.MessageType
	}
	var calls []call
	eachCall(f, func(name, _ string, req, _ protoreflect.MessageType) {
		for _, id := range []string{"", "aaaa", "2222"} { // of nobody, a pod and a container
			m := req.New()
			fill(m)
			for _, field := range []protoreflect.Name{"pod_sandbox_id", "container_id"} {
				if fd := m.Descriptor().Fields().ByName(field); fd != nil && id != "" {
					m.Set(fd, protoreflect.ValueOfString(id))
				}
			}
			b, err := proto.Marshal(m.Interface())
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(len(calls)), b)
		}
		calls = append(calls, call{name, req})
	})
	quiet := func(c *Config) { c.Log = slog.New(slog.DiscardHandler) }
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		c := calls[int(which)%len(calls)]
		req := c.req.New().Interface()
		if proto.Unmarshal(b, req) != nil {
			return
		}
		server := reflect.ValueOf(newFake().server(t, quiet))
		out := server.MethodByName(c.name).Call([]reflect.Value{reflect.ValueOf(t.Context()), reflect.ValueOf(req)})
		err, _ := out[1].Interface().(error)
		st := status.Convert(statusOf(err))
		if !callersFault[st.Code()] || err != nil && st.Message() == "" || !utf8.ValidString(st.Message()) || len(st.Message()) > 2*maxErrorText {
			t.Errorf("%s: %s %q of %v", c.name, st.Code(), st.Message(), req)
		}
		if resp, ok := out[0].Interface().(proto.Message); err == nil && ok {
			if _, err := proto.Marshal(resp); err != nil {
				t.Errorf("%s answers with what is no message: %v", c.name, err)
			}
		}
		if err != nil && strings.Contains(st.Message(), "panic") {
			t.Errorf("%s: %s", c.name, st.Message())
		}
	})
}
