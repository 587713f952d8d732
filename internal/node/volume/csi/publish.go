package csi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
)

// stage is the folder of one volume on this node.
type stage struct{ dir string }

func (c *Client) stage(driver, handle string) stage {
	return stage{filepath.Join(c.cfg.Staging, driver, fmt.Sprintf("%x", sha256.Sum256([]byte(handle))))}
}

func (s stage) mount() string { return filepath.Join(s.dir, "globalmount") }
func (s stage) users() string { return filepath.Join(s.dir, "users") }

// foreignRecord is what a kubelet has written beside a volume that it has staged. It is left where
// the node was a kubelet's before, and that ended with the volume staged.
const foreignRecord = "vol_data.json"

// user is the file that keeps the volume staged for a target.
func (s stage) user(target string) string {
	return filepath.Join(s.users(), fmt.Sprintf("%x", sha256.Sum256([]byte(target))))
}

// Publish mounts a volume. It may be asked again at any time for what is mounted:
// the driver is then told again, as it is for others that want to be.
func (c *Client) Publish(ctx context.Context, v Volume) (Published, error) {
	a, err := c.abilities(ctx, v.Driver)
	if err != nil {
		return Published{}, err
	}
	r := record{
		Driver: v.Driver, Handle: v.Handle, Inline: v.Inline, Attached: v.Attach != nil,
		Staged: !v.Inline && a.can(spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME),
	}
	if was, err := readRecord(v.Target); err == nil && was.Begun {
		if was.Driver != v.Driver || was.Handle != v.Handle {
			return Published{}, fmt.Errorf("volume %s of CSI driver %s has its place, and the pod's is another one now; create the pod anew: %w", was.Handle, was.Driver, errdefs.ErrPrecondition)
		}
		if r.Begun, r.Done = true, c.Holds(v.Target); r.Done {
			r.Size = was.Size
		}
	}
	if err := c.write(v.Target, r); err != nil {
		return Published{}, fmt.Errorf("record volume %s: %w", v.Handle, err)
	}
	attachment, err := v.attachment(ctx, r.Done)
	if err != nil {
		return Published{}, fmt.Errorf("wait until it is attached: %w", err)
	}
	unlock, err := c.turn(ctx, v, r.Done)
	if err != nil {
		return Published{}, fmt.Errorf("publish volume %s: %w", v.Handle, err)
	}
	defer unlock()
	if err := c.alone(v); err != nil {
		return Published{}, err
	}
	r.Begun = true
	if err := c.write(v.Target, r); err != nil {
		return Published{}, fmt.Errorf("record volume %s: %w", v.Handle, err)
	}
	if err := c.stats.timed(v.Driver, mounts, func() error { return c.mount(ctx, v, request{attachment, a, r.Staged}) }); err != nil {
		return Published{}, err
	}
	r.Done = true
	if err := c.write(v.Target, r); err != nil {
		return Published{}, fmt.Errorf("record volume %s: %w", v.Handle, err)
	}
	return Published{GroupSet: v.Group != nil && a.can(spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)}, nil
}

// again is how long an attachment is waited for of a volume that is mounted, and so was
// attached, and how long until its driver is at nothing else: its pod runs, and is not to be held up.
const again = 5 * time.Second

// turn waits until nothing else is done with a volume.
func (c *Client) turn(ctx context.Context, v Volume, mounted bool) (unlock func(), err error) {
	if mounted {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, again)
		defer cancel()
	}
	return c.locks.Lock(ctx, v.Driver+" "+v.Handle)
}

func (v *Volume) attachment(ctx context.Context, mounted bool) (map[string]string, error) {
	if v.Attach == nil {
		return nil, nil
	}
	if mounted {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, again)
		defer cancel()
	}
	return v.Attach(ctx)
}

// alone refuses a volume that one pod alone may use, if another one has it. The caller
// holds its lock.
func (c *Client) alone(v Volume) error {
	if !slices.Contains(v.AccessModes, corev1.ReadWriteOncePod) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for target, r := range c.records {
		if target != v.Target && r.Begun && r.Driver == v.Driver && r.Handle == v.Handle {
			return fmt.Errorf("volume %s is ReadWriteOncePod, and another pod on this node has it: %w", v.Handle, errdefs.ErrPrecondition)
		}
	}
	return nil
}

// request is what calls for one volume have in common.
type request struct {
	attachment map[string]string
	abilities  abilities
	staged     bool
}

// mount has the driver stage the volume, if it does that, and publish it.
func (c *Client) mount(ctx context.Context, v Volume, q request) error {
	told := map[string]string{}
	maps.Copy(told, v.Attributes)
	maps.Copy(told, v.PodInfo)
	r := &spec.NodePublishVolumeRequest{
		VolumeId: v.Handle, PublishContext: q.attachment, TargetPath: v.Target, VolumeCapability: v.capability(q.abilities),
		Readonly: v.ReadOnly, Secrets: v.PublishSecrets, VolumeContext: told,
	}
	if q.staged {
		s := c.stage(v.Driver, v.Handle)
		if err := c.stageVolume(ctx, v, s, q); err != nil {
			return err
		}
		r.StagingTargetPath = s.mount()
	}
	err := c.call(ctx, v.Driver, "NodePublishVolume", func(ctx context.Context, node spec.NodeClient) error {
		_, err := node.NodePublishVolume(ctx, r)
		return err
	})
	if err != nil && q.staged { // the driver may have lost it
		c.setStaged(c.stage(v.Driver, v.Handle), false)
	}
	return err
}

// isStaged says whether the driver has staged a volume already, for whatever pod. An earlier
// agent's word does not count: the machine may have been started anew.
func (c *Client) isStaged(s stage) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.staged[s.dir]
}

func (c *Client) setStaged(s stage, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is {
		c.staged[s.dir] = true
	} else {
		delete(c.staged, s.dir)
	}
}

// Holds says whether a volume was published and is still mounted. No driver is
// asked.
func (c *Client) Holds(target string) bool {
	r, err := readRecord(target)
	if err != nil || !r.Done {
		return false
	}
	there, err := mounted(target)
	return err == nil && there
}

// stageVolume has the driver stage a volume, once for all pods of the node. The caller holds the
// volume's lock.
func (c *Client) stageVolume(ctx context.Context, v Volume, s stage, q request) error {
	for _, dir := range []string{s.mount(), s.users()} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return fmt.Errorf("make the folder to stage volume %s in: %w", v.Handle, err)
		}
	}
	if err := os.WriteFile(s.user(v.Target), []byte(v.Target), 0o600); err != nil {
		return fmt.Errorf("record a user of volume %s: %w", v.Handle, err)
	}
	if c.isStaged(s) {
		return nil
	}
	err := c.call(ctx, v.Driver, "NodeStageVolume", func(ctx context.Context, node spec.NodeClient) error {
		_, err := node.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{
			VolumeId: v.Handle, PublishContext: q.attachment, StagingTargetPath: s.mount(),
			VolumeCapability: v.capability(q.abilities), Secrets: v.StageSecrets, VolumeContext: v.Attributes,
		})
		return err
	})
	if err == nil {
		c.setStaged(s, true)
	}
	return err
}

// Unpublish undoes Publish, by what was recorded; and once nobody uses the volume,
// its staging. It may be called again until it succeeds.
func (c *Client) Unpublish(ctx context.Context, target string) error {
	r, err := readRecord(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the driver was never called
	}
	if err != nil {
		return c.forgetLost(target, err)
	}
	c.endExpansion(target)
	unlock, err := c.locks.Lock(ctx, r.Driver+" "+r.Handle)
	if err != nil {
		return fmt.Errorf("unpublish volume %s: %w", r.Handle, err)
	}
	defer unlock()
	if r.Begun {
		if err := c.stats.timed(r.Driver, unmounts, func() error { return c.unpublish(ctx, r, target) }); err != nil {
			return err
		}
	}
	if r.Begun && r.Staged {
		if err := c.unstage(ctx, r, target); err != nil {
			return err
		}
	}
	if err := c.forget(target); err != nil {
		return fmt.Errorf("forget volume %s: %w", r.Handle, err)
	}
	return nil
}

// forgetLost is for a record that cannot be read, as after a power cut, which has taken
// the mounts with it. Where something is mounted, nobody knows whom to ask.
func (c *Client) forgetLost(target string, lost error) error {
	if there, err := mounted(target); err != nil || there {
		return errors.Join(err, fmt.Errorf("nobody knows who has mounted %s; unmount it, and remove the record: %w", target, lost))
	}
	return c.forget(target)
}

func (c *Client) unpublish(ctx context.Context, r record, target string) error {
	err := c.call(ctx, r.Driver, "NodeUnpublishVolume", func(ctx context.Context, node spec.NodeClient) error {
		_, err := node.NodeUnpublishVolume(ctx, &spec.NodeUnpublishVolumeRequest{VolumeId: r.Handle, TargetPath: target})
		return err
	})
	return undone(err, target)
}

func (c *Client) unstage(ctx context.Context, r record, target string) error {
	s := c.stage(r.Driver, r.Handle)
	if err := os.Remove(s.user(target)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record that volume %s has a user less: %w", r.Handle, err)
	}
	used, err := s.inUse()
	if err != nil {
		return fmt.Errorf("list the users of volume %s: %w", r.Handle, err)
	}
	if used {
		return nil
	}
	c.setStaged(s, false)
	err = c.stats.timed(r.Driver, unstages, func() error {
		err := c.call(ctx, r.Driver, "NodeUnstageVolume", func(ctx context.Context, node spec.NodeClient) error {
			_, err := node.NodeUnstageVolume(ctx, &spec.NodeUnstageVolumeRequest{VolumeId: r.Handle, StagingTargetPath: s.mount()})
			return err
		})
		return undone(err, s.mount())
	})
	if err != nil {
		return err
	}
	for _, empty := range []string{s.users(), filepath.Join(s.dir, foreignRecord), s.dir} {
		if err := os.Remove(empty); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the staging folder of volume %s: %w", r.Handle, err)
		}
	}
	return nil
}

// inUse says whether a target still has the volume. One whose record is gone was
// taken away by somebody else.
func (s stage) inUse() (bool, error) {
	users, err := os.ReadDir(s.users())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for _, u := range users {
		file := filepath.Join(s.users(), u.Name())
		target, err := os.ReadFile(file)
		if err != nil {
			return false, err
		}
		if _, err := os.Lstat(recordFile(string(target))); !errors.Is(err, fs.ErrNotExist) {
			return true, err
		}
		if err := os.Remove(file); err != nil {
			return false, err
		}
	}
	return false, nil
}

// undone sees that a driver has unmounted a path, and removes the empty folder if
// the driver did not. A volume that the driver does not know is unmounted if
// nothing is mounted. It has to be the driver that says so: one that is not registered
// (yet) may have more to undo than a mount, as a device that it has opened.
func undone(err error, path string) error {
	if err != nil && status.Code(err) != codes.NotFound {
		return err
	}
	there, lookErr := mounted(path)
	if lookErr != nil {
		return lookErr
	}
	if there {
		return errors.Join(err, fmt.Errorf("%s is still mounted, though its driver has answered: %w", path, errdefs.ErrUnavailable))
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the mount point: %w", err)
	}
	return nil
}

// mounted asks the mount table and not the path, which may hang.
func mounted(path string) (bool, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(filepath.Join(parent, filepath.Base(path))))
	if err != nil {
		return false, fmt.Errorf("list mounts: %w", err)
	}
	return len(mounts) > 0, nil
}
