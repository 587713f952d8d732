package csi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/errdefs"
)

// record is what has to be known to undo Publish. It is beside the target, and is
// written before the driver is called.
type record struct {
	Driver string `json:"driver"`
	Handle string `json:"handle"`
	Inline bool   `json:"inline,omitempty"`
	Staged bool   `json:"staged,omitempty"`
	Done   bool   `json:"done,omitempty"` // it was published once
}

func recordFile(target string) string { return filepath.Join(filepath.Dir(target), "volume.json") }

func readRecord(target string) (record, error) {
	var r record
	data, err := os.ReadFile(recordFile(target))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("read %s: %w", recordFile(target), err)
	}
	return r, nil
}

// stage is the folder of one volume on this node.
type stage struct{ dir string }

func (c *Client) stage(driver, handle string) stage {
	return stage{filepath.Join(c.cfg.Staging, driver, fmt.Sprintf("%x", sha256.Sum256([]byte(handle))))}
}

func (s stage) mount() string { return filepath.Join(s.dir, "globalmount") }
func (s stage) users() string { return filepath.Join(s.dir, "users") }

// user is the file that keeps the volume staged for a target.
func (s stage) user(target string) string {
	return filepath.Join(s.users(), fmt.Sprintf("%x", sha256.Sum256([]byte(target))))
}

// Publish mounts a volume. It may be asked again at any time for what is mounted:
// the driver is then told again, as it is for others that want to be.
func (c *Client) Publish(ctx context.Context, v Volume) (Published, error) {
	unlock, err := c.locks.Lock(ctx, v.Driver+" "+v.Handle)
	if err != nil {
		return Published{}, fmt.Errorf("publish volume %s: %w", v.Handle, err)
	}
	defer unlock()
	a, err := c.abilities(ctx, v.Driver)
	if err != nil {
		return Published{}, err
	}
	r := record{Driver: v.Driver, Handle: v.Handle, Inline: v.Inline, Staged: !v.Inline && a.can(spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)}
	r.Done = c.Holds(v.Target)
	if err := write(v.Target, r); err != nil {
		return Published{}, fmt.Errorf("record volume %s: %w", v.Handle, err)
	}
	s := c.stage(v.Driver, v.Handle)
	if r.Staged {
		if err := c.stageVolume(ctx, v, s, a); err != nil {
			return Published{}, err
		}
	}
	request := &spec.NodePublishVolumeRequest{
		VolumeId: v.Handle, PublishContext: v.Attachment, TargetPath: v.Target, VolumeCapability: v.capability(a),
		Readonly: v.ReadOnly, Secrets: v.PublishSecrets, VolumeContext: v.Attributes,
	}
	if r.Staged {
		request.StagingTargetPath = s.mount()
	}
	err = c.call(ctx, v.Driver, "NodePublishVolume", func(ctx context.Context, node spec.NodeClient) error {
		_, err := node.NodePublishVolume(ctx, request)
		return err
	})
	if err != nil {
		return Published{}, err
	}
	r.Done = true
	if err := write(v.Target, r); err != nil {
		return Published{}, fmt.Errorf("record volume %s: %w", v.Handle, err)
	}
	return Published{GroupSet: v.Group != nil && a.can(spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)}, nil
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

// write records a volume, unless that is done.
func write(target string, r record) error {
	if was, err := readRecord(target); err == nil && was == r {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(recordFile(target), data, 0o600)
}

func (c *Client) stageVolume(ctx context.Context, v Volume, s stage, a abilities) error {
	for _, dir := range []string{s.mount(), s.users()} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return fmt.Errorf("make the folder to stage volume %s in: %w", v.Handle, err)
		}
	}
	if err := os.WriteFile(s.user(v.Target), []byte(v.Target), 0o600); err != nil {
		return fmt.Errorf("record a user of volume %s: %w", v.Handle, err)
	}
	return c.call(ctx, v.Driver, "NodeStageVolume", func(ctx context.Context, node spec.NodeClient) error {
		_, err := node.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{
			VolumeId: v.Handle, PublishContext: v.Attachment, StagingTargetPath: s.mount(),
			VolumeCapability: v.capability(a), Secrets: v.StageSecrets, VolumeContext: v.Attributes,
		})
		return err
	})
}

// Unpublish undoes Publish, by what was recorded; and once nobody uses the volume,
// its staging. It may be called again until it succeeds.
func (c *Client) Unpublish(ctx context.Context, target string) error {
	r, err := readRecord(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the driver was never called
	}
	if err != nil {
		return err
	}
	unlock, err := c.locks.Lock(ctx, r.Driver+" "+r.Handle)
	if err != nil {
		return fmt.Errorf("unpublish volume %s: %w", r.Handle, err)
	}
	defer unlock()
	if err := c.unpublish(ctx, r, target); err != nil {
		return err
	}
	if r.Staged {
		if err := c.unstage(ctx, r, target); err != nil {
			return err
		}
	}
	if err := os.Remove(recordFile(target)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget volume %s: %w", r.Handle, err)
	}
	return nil
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
	err = c.call(ctx, r.Driver, "NodeUnstageVolume", func(ctx context.Context, node spec.NodeClient) error {
		_, err := node.NodeUnstageVolume(ctx, &spec.NodeUnstageVolumeRequest{VolumeId: r.Handle, StagingTargetPath: s.mount()})
		return err
	})
	if err := undone(err, s.mount()); err != nil {
		return err
	}
	for _, empty := range []string{s.users(), s.dir} {
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
// nothing is mounted.
func undone(err error, path string) error {
	if err != nil && !errors.Is(err, errdefs.ErrNotFound) {
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
