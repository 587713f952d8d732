package agent

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/volume"
	"fairlead.run/internal/node/volume/csi"
)

// full has claims that cannot be attached, as the node has no room for them.
type full struct{}

func (full) Claim(context.Context, string, string) (*corev1.PersistentVolumeClaim, error) {
	return nil, fmt.Errorf("VolumeAttachment a says: no slot: %w", csi.ErrNodeFull)
}

func (full) Volume(context.Context, string) (*corev1.PersistentVolume, error) { return nil, nil }

// TestNodeWithoutRoomForVolumes refuses the pod, as a kubelet does: the scheduler finds another node
// for its successor.
func TestNodeWithoutRoomForVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.around = volume.Around{Claims: full{}}
		p := pod(1, corev1.RestartPolicyAlways, "x")
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		n.boot(t, p)
		if s := n.of("p1"); s.Phase != corev1.PodFailed || s.Reason != "VolumeAttachmentLimitExceeded" || !n.saw("p1 VolumeAttachmentLimitExceeded: Node has reached its volume attachment limit, rejecting pod: ") || len(n.Sandboxes()) > 0 {
			t.Errorf("%s %s %s, events %q", s.Phase, s.Reason, s.Message, n.events)
		}
		n.stop()
	})
}
