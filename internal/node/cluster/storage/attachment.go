package storage

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/cluster/pace"
	"fairlead.run/internal/node/volume/csi"
)

// askEvery is how often the attachment is asked for why it takes so long.
const askEvery = 5 * time.Second

// Attached waits until a volume is attached to this node, and returns what the driver is
// to be told of that. The node's status has to say by then that it uses the volume.
//
// One version of the Node has to have both: that the volume is in use, which keeps it
// from being detached, and that it is attached. Who detaches it takes the second away
// first, and then looks at the first.
func (s *Storage) Attached(ctx context.Context, pv *corev1.PersistentVolume) (map[string]string, error) {
	id := csi.ID{Driver: pv.Spec.CSI.Driver, Handle: pv.Spec.CSI.VolumeHandle}
	is := detached{why: "its node does not say yet that it uses it"}
	for {
		node, changed := s.now()
		inUse := node != nil && slices.Contains(node.Status.VolumesInUse, UniqueName(id))
		if inUse && isAttached(node, id) {
			break
		}
		if inUse {
			is = s.whyNot(ctx, id, is)
		}
		timer := time.NewTimer(askEvery)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if is.full && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				s.askAgain(context.WithoutCancel(ctx), id.Driver) // so that the scheduler knows
				return nil, fmt.Errorf("%s: %w", is.why, csi.ErrNodeFull)
			}
			return nil, fmt.Errorf("%s: %w: %w", is.why, errdefs.ErrUnavailable, context.Cause(ctx))
		}
		timer.Stop()
	}
	return s.metadata(ctx, id)
}

// metadata is what the driver is told of a volume that is attached.
func (s *Storage) metadata(ctx context.Context, id csi.ID) (map[string]string, error) {
	var p pace.Pace
	for why := error(nil); ; {
		a, err := s.attachment(ctx, id)
		switch {
		case err == nil && a.Status.Attached && a.DeletionTimestamp == nil:
			return a.Status.AttachmentMetadata, nil
		case err == nil:
			why = fmt.Errorf("%s: %w", describe(a), errdefs.ErrUnavailable)
		case ctx.Err() == nil || why == nil: // what was cut off tells nothing
			why = err
		}
		if !pace.Sleep(ctx, p.After(why)) {
			return nil, why
		}
	}
}

func isAttached(node *corev1.Node, id csi.ID) bool {
	return slices.ContainsFunc(node.Status.VolumesAttached, func(v corev1.AttachedVolume) bool { return v.Name == UniqueName(id) })
}

// detached is why a volume is not attached, and whether it is that the node takes no more.
type detached struct {
	why  string
	full bool
}

// whyNot says why the volume is not attached, as far as that is known, or else what was
// known before.
func (s *Storage) whyNot(ctx context.Context, id csi.ID, before detached) detached {
	within, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	a, err := s.attachment(within, id)
	switch {
	case ctx.Err() != nil:
		return before
	case apierrors.IsNotFound(err):
		return detached{why: "nobody has begun to attach it; does the controller manager run?"}
	case err != nil:
		return detached{why: err.Error()}
	}
	return detached{describe(a), s.isFull(a)}
}

func describe(a *storagev1.VolumeAttachment) string {
	switch {
	case a.DeletionTimestamp != nil:
		return "it is being detached from an earlier use, by VolumeAttachment " + a.Name
	case a.Status.AttachError != nil:
		return "VolumeAttachment " + a.Name + " says: " + a.Status.AttachError.Message
	case a.Status.Attached:
		return "VolumeAttachment " + a.Name + " is attached, and the node's status does not say so yet"
	}
	return "VolumeAttachment " + a.Name + " is not attached yet; does the controller of CSI driver " + a.Spec.Attacher + " run?"
}

// attachment is what says that the volume is attached. A node may read it by its name
// alone, which follows from what it is of.
func (s *Storage) attachment(ctx context.Context, id csi.ID) (*storagev1.VolumeAttachment, error) {
	name := attachmentName(id, s.node)
	out := &storagev1.VolumeAttachment{}
	err := s.client.REST(storagev1.SchemeGroupVersion).Get().Resource("volumeattachments").Name(name).MaxRetries(0).Do(ctx).Into(out)
	if err != nil {
		return nil, fmt.Errorf("get VolumeAttachment %s: %w", name, err)
	}
	return out, nil
}

func attachmentName(id csi.ID, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(id.Handle+id.Driver+node)))
}
