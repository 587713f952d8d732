package csi

import (
	"context"
	"fmt"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"fairlead.run/internal/errdefs"
)

// expansion is a call that makes a volume larger.
type expansion struct {
	size   int64
	cancel context.CancelFunc
	done   chan struct{} // closed when the others are set
	did    bool
	err    error
}

// Expand has the driver make what is mounted of a volume as large as the volume itself,
// in bytes. It says whether the driver does that: of others the file system grows by
// itself, or not at all.
//
// A driver may take long over it, and must not be disturbed. When ctx ends first, it goes on, and
// who asks again waits for the same call. Unpublish ends it.
func (c *Client) Expand(ctx context.Context, v Volume, size int64) (bool, error) {
	for {
		e := c.expansion(v, size)
		select {
		case <-e.done:
			c.forgetExpansion(v.Target, e)
			if e.size == size {
				return e.did, e.err
			}
		case <-ctx.Done():
			return false, fmt.Errorf("CSI driver %s: NodeExpandVolume: it is still at it, and is waited for again later; see the log of its node plugin if that goes on: %w", v.Driver, context.Cause(ctx))
		}
	}
}

// expansion begins a call, unless there is one for that target of which nobody has heard how it has
// ended.
func (c *Client) expansion(v Volume, size int64) *expansion {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.growing[v.Target]; e != nil {
		return e
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*c.cfg.Timeout) // of no caller; two calls
	e := &expansion{size: size, cancel: cancel, done: make(chan struct{})}
	c.growing[v.Target] = e
	go func() {
		defer cancel()
		e.did, e.err = c.expand(ctx, v, size)
		close(e.done)
	}()
	return e
}

func (c *Client) forgetExpansion(target string, e *expansion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.growing[target] == e {
		delete(c.growing, target)
	}
}

// endExpansion is for a volume that is to be unmounted.
func (c *Client) endExpansion(target string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.growing[target]; e != nil {
		e.cancel()
		delete(c.growing, target)
	}
}

func (c *Client) expand(ctx context.Context, v Volume, size int64) (bool, error) {
	a, err := c.abilities(ctx, v.Driver)
	if err != nil || !a.can(spec.NodeServiceCapability_RPC_EXPAND_VOLUME) {
		return false, err
	}
	unlock, err := c.locks.Lock(ctx, v.Driver+" "+v.Handle)
	if err != nil {
		return false, fmt.Errorf("grow volume %s: %w", v.Handle, err)
	}
	defer unlock()
	r, err := readRecord(v.Target)
	if err != nil || !r.Done {
		return false, fmt.Errorf("grow volume %s: it is not mounted: %w", v.Handle, errdefs.ErrPrecondition)
	}
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
