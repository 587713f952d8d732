package csi

import (
	"context"
	"fmt"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"fairlead.run/internal/errdefs"
)

// Expand has the driver make what is mounted of a volume as large as the volume itself,
// in bytes. It says whether the driver does that: of others the file system grows by
// itself, or not at all.
func (c *Client) Expand(ctx context.Context, v Volume, size int64) (bool, error) {
	a, err := c.abilities(ctx, v.Driver)
	if err != nil || !a.can(spec.NodeServiceCapability_RPC_EXPAND_VOLUME) {
		return false, err
	}
	r, err := readRecord(v.Target)
	if err != nil || !r.Done {
		return false, fmt.Errorf("grow volume %s: it is not mounted: %w", v.Handle, errdefs.ErrPrecondition)
	}
	unlock, err := c.locks.Lock(ctx, v.Driver+" "+v.Handle)
	if err != nil {
		return false, fmt.Errorf("grow volume %s: %w", v.Handle, err)
	}
	defer unlock()
	q := &spec.NodeExpandVolumeRequest{
		VolumeId: v.Handle, VolumePath: v.Target, CapacityRange: &spec.CapacityRange{RequiredBytes: size},
		VolumeCapability: v.capability(a), Secrets: v.ExpandSecrets,
	}
	if r.Staged {
		q.StagingTargetPath = c.stage(v.Driver, v.Handle).mount()
	}
	return true, c.call(ctx, v.Driver, "NodeExpandVolume", func(ctx context.Context, node spec.NodeClient) error {
		_, err := node.NodeExpandVolume(ctx, q)
		return err
	})
}
