package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/volume/csi"
	"fairlead.run/test/apiserver"
)

var (
	driversOf = apiserver.Resource{Path: "apis/storage.k8s.io/v1/csidrivers", Kind: "CSIDriver"}
	allNodes  = apiserver.Resource{Path: "api/v1/nodes", Kind: "Node"}
	nodesOf   = apiserver.Resource{Path: "apis/storage.k8s.io/v1/csinodes", Kind: "CSINode"}
)

// asking is a node whose drivers say what takes has.
type asking struct {
	*Storage
	*apiserver.Server
	mu    sync.Mutex
	takes map[string]int64
	asked map[string]int
}

// take has a driver say another number; zero is no answer.
func (a *asking) take(driver string, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.takes[driver] = n
}

// times is how often a driver was asked.
func (a *asking) times(driver string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked[driver]
}

func newAsking(t *testing.T, period *int64) *asking {
	server := apiserver.InMemory(t, attachments, driversOf, nodesOf, allNodes)
	client, err := cluster.NewClient(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	a := &asking{
		Storage: New(client, "n", func(error) {}, slog.New(slog.DiscardHandler)), Server: server,
		takes: map[string]int64{"d": 7}, asked: map[string]int{},
	}
	a.Asks(func(_ context.Context, driver string) (csi.NodeInfo, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asked[driver]++
		if a.takes[driver] == 0 {
			return csi.NodeInfo{}, errors.New("no answer")
		}
		return csi.NodeInfo{ID: "1", MaxVolumes: a.takes[driver]}, nil
	})
	server.Put(driversOf, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: storagev1.CSIDriverSpec{NodeAllocatableUpdatePeriodSeconds: period}})
	server.Put(driversOf, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "once"}})
	n := node(nil, nil)
	server.Put(allNodes, n)
	a.See(n)
	return a
}

// count is what the cluster is told that the node takes of a driver.
func (a *asking) count(t *testing.T, driver string) int32 {
	t.Helper()
	text, err := json.Marshal(a.Get(nodesOf, "n"))
	if err != nil {
		t.Fatal(err)
	}
	var has storagev1.CSINode
	if err := json.Unmarshal(text, &has); err != nil {
		t.Fatal(err)
	}
	for _, d := range has.Spec.Drivers {
		if d.Name == driver && d.Allocatable != nil {
			return *d.Allocatable.Count
		}
	}
	return -1
}

// TestDriversAreAskedAnew as often as their objects want it, and one that does not answer keeps what
// it has said.
func TestDriversAreAskedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsking(t, ptr(int64(60)))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		a.Set("d", &csi.NodeInfo{ID: "1", MaxVolumes: 7})
		a.Set("once", &csi.NodeInfo{ID: "1", MaxVolumes: 3})
		expect := func(after time.Duration, count int32, asked int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := a.count(t, "d"); got != count || a.times("d") != asked || a.times("once") != 0 || a.count(t, "once") != 3 {
				t.Errorf("told %d, want %d; asked %d times, want %d", got, count, a.times("d"), asked)
			}
		}
		expect(50*time.Second, 7, 0)
		a.take("d", 5)
		expect(20*time.Second, 5, 1)
		a.take("d", 0)
		expect(time.Minute, 5, 2)
		a.take("d", 6)
		expect(time.Minute, 6, 3)
		a.Set("d", nil)
		expect(5*time.Minute, -1, 3)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func ptr[T any](v T) *T { return &v }

// TestNodeThatIsFull says so once the time for attaching is over, and has the cluster told of what
// the driver says; of drivers that are not asked anew nothing is known for sure.
func TestNodeThatIsFull(t *testing.T) {
	id := csi.ID{Driver: "d", Handle: "h"}
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}}}
	for _, tt := range []struct {
		period *int64
		code   codes.Code
		want   error
	}{
		{ptr(int64(600)), codes.ResourceExhausted, csi.ErrNodeFull},
		{ptr(int64(600)), codes.Internal, errdefs.ErrUnavailable},
		{nil, codes.ResourceExhausted, errdefs.ErrUnavailable},
	} {
		t.Run(fmt.Sprint(tt.code, tt.period == nil), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAsking(t, tt.period)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- a.Run(ctx) }()
				a.Set("d", &csi.NodeInfo{ID: "1", MaxVolumes: 9})
				used := node(nil, nil)
				used.Status.VolumesInUse = []corev1.UniqueVolumeName{UniqueName(id)}
				a.See(used)
				a.Put(attachments, &storagev1.VolumeAttachment{
					ObjectMeta: metav1.ObjectMeta{Name: attachmentName(id, "n")}, Spec: storagev1.VolumeAttachmentSpec{Attacher: "d", NodeName: "n"},
					Status: storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no slot", ErrorCode: ptr(int32(tt.code))}},
				})
				within, end := context.WithTimeout(t.Context(), 2*time.Minute)
				defer end()
				_, err := a.Attached(within, pv)
				synctest.Wait()
				count := map[bool]int32{true: 7, false: 9}[tt.want == csi.ErrNodeFull]
				if !errors.Is(err, tt.want) || a.count(t, "d") != count {
					t.Errorf("%v, want %v; told %d, want %d", err, tt.want, a.count(t, "d"), count)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
