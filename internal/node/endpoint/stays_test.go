package endpoint

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

// telling is a daemon that says this of its process.
type telling struct {
	runtimeapi.RuntimeServiceClient
	process string
	err     error
}

func (d telling) Status(context.Context, *runtimeapi.StatusRequest, ...grpc.CallOption) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Info: map[string]string{"process": d.process}}, d.err
}

func TestStays(t *testing.T) {
	for _, tt := range []struct {
		daemon telling
		want   bool
	}{
		{telling{process: `{"pid": 1, "stays": true}`}, true},
		{telling{process: `{"pid": 1, "stays": false}`}, false},
		{telling{process: ""}, false},
		{telling{err: errdefs.ErrUnavailable}, false},
	} {
		if got, err := (&Endpoint{Runtime: tt.daemon}).Stays(t.Context()); got != tt.want || !errors.Is(err, tt.daemon.err) {
			t.Errorf("%+v: %v", tt.daemon, got)
		}
	}
}
