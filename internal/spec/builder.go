package spec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/pod"
)

var (
	volumesMade   = failpoint.Register("bundle.volumes-made")
	folderMade    = failpoint.Register("bundle.folder-made")
	folderRemoved = failpoint.Register("bundle.folder-removed")
)

// configName is the file that the OCI spec has every bundle named by.
const configName = "config.json"

// Builder writes bundles. It keeps nothing between calls but its configuration,
// and its methods may be called at once for different containers.
type Builder struct {
	cfg            Config
	rlimits        []namedRlimit
	warnings       []string
	defaultProfile *appArmorLoader
}

// New checks the configuration.
func New(cfg Config) (*Builder, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	limits, warnings, err := rlimits(cfg.DefaultRlimits, cfg.Host)
	if err != nil {
		return nil, err
	}
	return &Builder{cfg: cfg, rlimits: limits, warnings: warnings, defaultProfile: &appArmorLoader{}}, nil
}

// Warnings are parts of the configuration that this host cannot meet.
func (b *Builder) Warnings() []string { return b.warnings }

// Write makes the bundle of a container: its folder, config.json, the folders
// of the image's volumes, and what is missing on the host and in the root file
// system. Its root file system has to be mounted. It may be called again.
func (b *Builder) Write(ctx context.Context, in pod.BundleRequest) (pod.Bundle, error) {
	id := string(in.Container.ID)
	out, err := b.write(ctx, id, b.newBuild(in), containerSteps)
	if err != nil {
		return pod.Bundle{}, fmt.Errorf("write the bundle of container %s: %w", in.Container.ID.Short(), err)
	}
	return out, nil
}

func (b *Builder) write(ctx context.Context, id string, w *build, steps []step) (pod.Bundle, error) {
	dir, err := b.dir(id)
	if err != nil {
		return pod.Bundle{}, err
	}
	if err := w.run(ctx, steps); err != nil {
		return pod.Bundle{}, err
	}
	if err := failpoint.Hit(volumesMade); err != nil {
		return pod.Bundle{}, err
	}
	if err := w.makeFolder(dir); err != nil {
		return pod.Bundle{}, err
	}
	if err := failpoint.Hit(folderMade); err != nil {
		return pod.Bundle{}, err
	}
	if err := save(dir, w.spec); err != nil {
		return pod.Bundle{}, err
	}
	return pod.Bundle{Path: dir, User: w.user, StopSignal: w.stopSignal, Warnings: w.warnings}, nil
}

func save(dir string, s *specs.Spec) error {
	content, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, configName), content, 0o600)
}

// Update puts the record's resources into the bundle of a container that was
// not started. Nothing else in it changes.
func (b *Builder) Update(_ context.Context, _ *pod.Record, c *pod.Container) error {
	err := b.update(c)
	if err != nil {
		return fmt.Errorf("update the bundle of container %s: %w", c.ID.Short(), err)
	}
	return nil
}

func (b *Builder) update(c *pod.Container) error {
	dir, err := b.dir(string(c.ID))
	if err != nil {
		return err
	}
	content, err := os.ReadFile(filepath.Join(dir, configName))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", err, errdefs.ErrNotFound)
	}
	if err != nil {
		return err
	}
	var s specs.Spec
	if err := json.Unmarshal(content, &s); err != nil {
		return fmt.Errorf("%s: %w: %w", configName, err, errdefs.ErrInternal)
	}
	if s.Linux == nil || s.Process == nil || s.Linux.Resources == nil {
		return fmt.Errorf("%s is not one of ours: %w", configName, errdefs.ErrInternal)
	}
	if _, err := b.limit(&s, c.Limits()); err != nil {
		return err
	}
	if r := c.Limits(); r != nil {
		adj, _, err := clampOOM(r.OOMScoreAdj, b.cfg.Host)
		if err != nil {
			return err
		}
		s.Process.OOMScoreAdj = &adj
	}
	return save(dir, &s)
}

// Remove deletes a bundle and the container's volumes. It refuses as long as
// something is mounted there, whose files it would otherwise delete. It does
// not mind a bundle that is already gone.
func (b *Builder) Remove(_ context.Context, id string) error {
	dir, err := b.dir(id)
	if err == nil {
		err = removeUnmounted(dir)
	}
	if err == nil {
		err = failpoint.Hit(folderRemoved)
	}
	if err == nil {
		err = removeVolumes(b.volumesDir(id))
	}
	if err != nil {
		return fmt.Errorf("remove the bundle of %s: %w", pod.ContainerID(id).Short(), err)
	}
	return nil
}

func removeUnmounted(dir string) error {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range list {
		var st unix.Statx_t
		p := filepath.Join(dir, e.Name())
		err := unix.Statx(unix.AT_FDCWD, p, unix.AT_SYMLINK_NOFOLLOW, 0, &st)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "statx", Path: p, Err: err}
		}
		if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
			return fmt.Errorf("%s is still mounted: %w", p, errdefs.ErrPrecondition)
		}
	}
	return os.RemoveAll(dir)
}

// removeVolumes deletes the volumes, and the container's folder if nobody else
// has anything in it.
func removeVolumes(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	err := os.Remove(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// dir is a bundle's folder. An id that is no single name would lead elsewhere.
func (b *Builder) dir(id string) (string, error) {
	if id == "" || id == "." || id == ".." || filepath.Base(id) != id {
		return "", fmt.Errorf("id %q is no file name: %w", id, errdefs.ErrInvalidArgument)
	}
	return filepath.Join(b.cfg.StateDir, "containers", id), nil
}

func (b *Builder) volumesDir(id string) string {
	return filepath.Join(b.cfg.RootDir, "containers", id, "volumes")
}
