package agent

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/node/volume"
	"fairlead.run/internal/node/volume/csi"
)

// full has claims that cannot be attached, as the node has no room for them.
type full struct{}

func (full) Claim(context.Context, string, string) (*corev1.PersistentVolumeClaim, error) {
	return nil, fmt.Errorf("VolumeAttachment a says: no slot: %w", csi.ErrNodeFull)
}

func (full) Volume(context.Context, string) (*corev1.PersistentVolume, error) { return nil, nil }

// claiming is a pod with a claim.
func claiming(policy corev1.RestartPolicy) *corev1.Pod {
	p := pod(1, policy, "x")
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	return p
}

// TestNodeWithoutRoomForVolumes refuses the pod, as a kubelet does: the scheduler finds another node
// for its successor.
func TestNodeWithoutRoomForVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.around = volume.Around{Claims: full{}}
		n.boot(t, claiming(corev1.RestartPolicyAlways))
		if s := n.of("p1"); s.Phase != corev1.PodFailed || s.Reason != "VolumeAttachmentLimitExceeded" || !n.saw("p1 VolumeAttachmentLimitExceeded: the node takes no more volumes of a CSI driver of the pod; ") || len(n.Sandboxes()) > 0 {
			t.Errorf("%s %s %s, events %q", s.Phase, s.Reason, s.Message, n.events)
		}
		n.stop()
	})
}

// hanging has a claim of a CSI driver, about which nobody answers while it hangs.
type hanging struct {
	volume.Growth
	hangs, asked atomic.Bool
	late         bool // what hangs is to say that the volume is larger
}

func (h *hanging) wait(ctx context.Context) error {
	if !h.hangs.Load() {
		return nil
	}
	h.asked.Store(true)
	<-ctx.Done()
	return ctx.Err()
}

func (h *hanging) Claim(ctx context.Context, _, _ string) (*corev1.PersistentVolumeClaim, error) {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: "claim"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
	c.Status.Phase, c.Status.Capacity = corev1.ClaimBound, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	if h.late && h.hangs.Load() {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
		return c, nil
	}
	return c, h.wait(ctx)
}

func (h *hanging) Done(ctx context.Context, _ *corev1.PersistentVolumeClaim, _ resource.Quantity) error {
	return h.wait(ctx)
}

func (h *hanging) Tell(*corev1.Pod, *corev1.PersistentVolumeClaim, string, string) {}

func (h *hanging) Volume(context.Context, string) (*corev1.PersistentVolume, error) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	if h.late && h.hangs.Load() {
		pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	}
	pv.Spec.ClaimRef = &corev1.ObjectReference{UID: "claim"}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}
	return pv, nil
}

func (h *hanging) Publish(context.Context, csi.Volume) (csi.Published, error) {
	return csi.Published{}, nil
}
func (h *hanging) Unpublish(context.Context, string) error { return nil }
func (h *hanging) Holds(string) bool                       { return true }

func (h *hanging) Size(string) int64 { return 0 }

func (h *hanging) NoteSize(string, int64) error { return nil }

func (h *hanging) Expand(context.Context, csi.Volume, int64) (bool, error) { return true, nil }

// TestClaimOfAServerThatHangs has containers restarted, and told of, while nobody says whether a
// volume has become larger, or takes that it has.
func TestClaimOfAServerThatHangs(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n, h := newNode(t), &hanging{late: late}
			n.around = volume.Around{Claims: h, CSI: h, Growth: h, Pods: t.TempDir()}
			n.boot(t, claiming(corev1.RestartPolicyAlways))
			n.expect(t, "p1", corev1.PodRunning, true)
			h.hangs.Store(true)
			for !h.asked.Load() {
				time.Sleep(time.Second)
				synctest.Wait()
			}
			n.Exit("p1/x", 3)
			time.Sleep(8 * time.Second)
			synctest.Wait()
			n.expect(t, "p1", corev1.PodRunning, true)
			if s := n.of("p1"); s.ContainerStatuses[0].RestartCount != 1 {
				t.Errorf("late %t: %+v", late, s.ContainerStatuses)
			}
			n.stop()
		})
	}
}

// TestClaimOfAPodThatGoes tells of no failure when a pod is deleted whose volumes are being made.
func TestClaimOfAPodThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, h := newNode(t), &hanging{}
		n.around = volume.Around{Claims: h, CSI: h, Growth: h, Pods: t.TempDir()}
		h.hangs.Store(true)
		p := claiming(corev1.RestartPolicyAlways)
		n.boot(t, p)
		if !h.asked.Load() {
			t.Fatal("nobody has asked for the claim")
		}
		p = p.DeepCopy()
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, new(int64(30))
		n.Set([]*corev1.Pod{p})
		time.Sleep(time.Minute)
		synctest.Wait()
		if !n.wentAway("p1") || n.saw("FailedMount") || n.saw("context canceled") {
			t.Errorf("gone %t, events %q", n.wentAway("p1"), n.events)
		}
		n.stop()
	})
}
