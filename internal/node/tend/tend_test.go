package tend

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/probe"
	"fairlead.run/internal/node/removal"
)

// runtime has one container, in which commands do what exec says.
type runtime struct {
	runtimeapi.RuntimeServiceClient
	exec  func(ctx context.Context, command string) (int32, error)
	mu    sync.Mutex
	ended bool
	stops []int64
}

func (r *runtime) ExecSync(ctx context.Context, in *runtimeapi.ExecSyncRequest, _ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	code, err := r.exec(ctx, in.GetCmd()[0])
	return &runtimeapi.ExecSyncResponse{ExitCode: code}, err
}

func (r *runtime) ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest, ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	if r.ended {
		s.State = runtimeapi.ContainerState_CONTAINER_EXITED
	}
	return &runtimeapi.ContainerStatusResponse{Status: s}, nil
}

func (r *runtime) StopContainer(_ context.Context, in *runtimeapi.StopContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stops = append(r.stops, in.GetTimeout())
	return &runtimeapi.StopContainerResponse{}, nil
}

// patient is a pod of that runtime, and what it was told.
func patient(r *runtime) (*Pod, *[]Note) {
	var mu sync.Mutex
	notes := &[]Note{}
	return &Pod{
		Spec: &podspec.Context{Pod: &corev1.Pod{}}, Runtime: r, Slots: probe.NewSlots(4), Wake: func() {},
		Told: func(n Note) {
			mu.Lock()
			defer mu.Unlock()
			*notes = append(*notes, n)
		},
	}, notes
}

func command(name string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{name}}}
}

// TestPostStartOfWhatHasEnded holds that a hook has not failed if it was its container
// that ended, though nobody has seen that yet. One that has is told of.
func TestPostStartOfWhatHasEnded(t *testing.T) {
	for _, ended := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := &runtime{exec: func(context.Context, string) (int32, error) { return 1, nil }, ended: ended}
			p, notes := patient(r)
			c := p.Begin(t.Context(), Attempt{Container: &corev1.Container{Name: "c", Lifecycle: &corev1.Lifecycle{PostStart: command("post")}}, ID: "c"})
			synctest.Wait()
			var seen plan.Container
			if c.Tell(&seen); (seen.Sick != "") == ended || seen.Ready != ended {
				t.Errorf("ended %v: %+v", ended, seen)
			}
			c.Abandon()
			p.Wait()
			want := []Note{{"c", "FailedPostStartHook", "its postStart hook failed: the command ended with exit code 1"}}
			if ended {
				want = nil
			}
			if !slices.Equal(*notes, want) {
				t.Errorf("ended %v: told %+v", ended, *notes)
			}
		})
	}
}

// TestFound does nothing anew that whoever started a container has done.
func TestFound(t *testing.T) {
	r := &runtime{exec: func(context.Context, string) (int32, error) { return 0, errors.New("it is called") }}
	p, _ := patient(r)
	c := p.Begin(t.Context(), Attempt{Container: &corev1.Container{Lifecycle: &corev1.Lifecycle{PostStart: command("post")}}, ID: "c", Found: true})
	var seen plan.Container
	if c.Tell(&seen); !seen.Ready || seen.Starting || c.Lacks() != "" {
		t.Errorf("%+v", seen)
	}
}

// TestDeadlineMovesForward ends a hook when the time of its pod is cut, and gives the
// container what is left.
func TestDeadlineMovesForward(t *testing.T) {
	for name, tt := range map[string]struct {
		sooner int64
		took   time.Duration
		stops  []int64
	}{
		"nobody waits":  {0, 3 * time.Second, []int64{0}},
		"less":          {5, 8 * time.Second, []int64{2}},
		"no less, more": {500, 30 * time.Second, []int64{2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &runtime{exec: func(ctx context.Context, _ string) (int32, error) {
					<-ctx.Done()
					return 0, ctx.Err()
				}}
				p, _ := patient(r)
				c := p.Begin(t.Context(), Attempt{Container: &corev1.Container{Lifecycle: &corev1.Lifecycle{PreStop: command("pre")}}, ID: "c"})
				by, began := removal.In(30), time.Now()
				time.AfterFunc(3*time.Second, func() { by.Sooner(tt.sooner) })
				if err := c.End(t.Context(), by); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != tt.took || !slices.Equal(r.stops, tt.stops) {
					t.Errorf("it took %s, timeouts %v", took, r.stops)
				}
				c.Abandon()
				p.Wait()
			})
		})
	}
}

// TestUnhealthy tells of each probe that fails.
func TestUnhealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runtime{exec: func(context.Context, string) (int32, error) { return 3, nil }}
		p, notes := patient(r)
		probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ready"}}}, PeriodSeconds: 1, FailureThreshold: 2}
		c := p.Begin(t.Context(), Attempt{Container: &corev1.Container{Name: "c", ReadinessProbe: probe}, ID: "c", Began: time.Now()})
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		c.Release()
		p.Wait()
		if len(*notes) != 2 || (*notes)[0].Reason != Unhealthy || (*notes)[0].Container != "c" {
			t.Errorf("%+v", *notes)
		}
		if c.Lacks() == "" {
			t.Error("it is ready")
		}
	})
}

// TestProbeThatCannotBeMade is told of, and counts neither for the container nor against it.
func TestProbeThatCannotBeMade(t *testing.T) {
	for name, tt := range map[string]struct {
		ask  corev1.ProbeHandler
		want string
	}{
		"command": {corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ready"}}}, "its readiness probe cannot be made, and counts neither way: the command cannot be run: no such container"},
		"port":    {corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")}}, `its readiness probe cannot be made, and counts neither way: container c has no port "web"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &runtime{exec: func(context.Context, string) (int32, error) { return 0, errors.New("no such container") }}
				p, notes := patient(r)
				probe := &corev1.Probe{ProbeHandler: tt.ask, PeriodSeconds: 1}
				c := p.Begin(t.Context(), Attempt{Container: &corev1.Container{Name: "c", ReadinessProbe: probe}, ID: "c", Began: time.Now(), Found: true, Ready: true, Started: true})
				time.Sleep(1500 * time.Millisecond)
				synctest.Wait()
				var seen plan.Container
				c.Tell(&seen)
				c.Release()
				p.Wait()
				if len(*notes) != 2 || (*notes)[0] != (Note{"c", Unhealthy, tt.want}) || !seen.Ready {
					t.Errorf("%+v, ready %v", *notes, seen.Ready)
				}
			})
		})
	}
}
