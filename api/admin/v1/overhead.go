package adminv1

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
)

// Bounds of an OverheadRequest. All pods run at once, and a sandbox has some
// 40 MB.
const (
	MaxOverheadPods   = 20
	MaxOverheadWindow = time.Minute
)

// OverheadRequest is the only frame that Overhead is asked with.
type OverheadRequest struct {
	Names    []string `json:"names,omitempty"` // none stands for all that work
	Pods     int      `json:"pods"`            // that are run of each, 1 to MaxOverheadPods
	WindowMS int64    `json:"windowMs"`        // for which their processor time is watched
}

// Overhead is what pods of a handler take without doing anything, beside their
// workload. Memory is in bytes, processors in thousandths.
type Overhead struct {
	Name       string    `json:"name"`
	Reason     string    `json:"reason,omitempty"` // why it was not measured
	MeasuredAt time.Time `json:"measuredAt,omitzero"`
	Pods       int       `json:"pods,omitempty"`
	WindowMS   int64     `json:"windowMs,omitempty"`

	MemoryP50 int64   `json:"memoryP50"`
	MemoryP99 int64   `json:"memoryP99"`
	CPUP50    float64 `json:"cpuP50"`
	CPUP99    float64 `json:"cpuP99"`
	// The monitor's are what it takes more for each pod, outside of the pods.
	MonitorMemory int64   `json:"monitorMemory"`
	MonitorCPU    float64 `json:"monitorCpu"`
}

// OverheadEvent is a frame of Overhead's answer. The last one, and no other, has
// Done.
type OverheadEvent struct {
	Step     string     `json:"step,omitempty"` // that begins now, for people
	Done     bool       `json:"done,omitempty"`
	Handlers []Overhead `json:"handlers,omitempty"`
}

// MeasureOverhead has a daemon measure handlers. It calls step for each step as
// it begins.
func MeasureOverhead(ctx context.Context, conn grpc.ClientConnInterface, req OverheadRequest, step func(string)) ([]Overhead, error) {
	s, err := Open(ctx, conn, "Overhead")
	if err != nil {
		return nil, err
	}
	// io.EOF says that the server is done; its answer says why.
	if err := SendJSON(s, req); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for {
		var e OverheadEvent
		if err := ReceiveJSON(s, &e); err != nil {
			return nil, err
		}
		if e.Done {
			return e.Handlers, nil
		}
		step(e.Step)
	}
}
