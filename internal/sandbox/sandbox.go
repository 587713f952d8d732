package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/undo"
	"fairlead.run/internal/userns"
)

var (
	folderMade    = failpoint.Register("sandbox.folder-made")
	shmMounted    = failpoint.Register("sandbox.shm-mounted")
	cgroupMade    = failpoint.Register("sandbox.cgroup-made")
	unmounted     = failpoint.Register("sandbox.unmounted")
	filesRemoved  = failpoint.Register("sandbox.files-removed")
	folderRemoved = failpoint.Register("sandbox.folder-removed")
	cgroupRemoved = failpoint.Register("sandbox.cgroup-removed")
)

// defaultShmSize is the size of a pod's /dev/shm, in bytes, as everywhere.
const defaultShmSize = 64 << 20

// Config is what a Driver works with.
type Config struct {
	StateDir string // pods/<id> below it are the sandboxes
	// RootDir has pods/<id> for the files that containers share. It is on disk:
	// containers may write into them, and would fill the memory of a tmpfs that
	// the state of all pods is in.
	RootDir string
	// SystemdCgroups has systemd make the cgroups of pods that name no parent.
	SystemdCgroups bool
	// Cgroup holds the cgroups of pods that name no parent, and nothing else.
	// Each state folder needs one of its own, so that what is in it can be told
	// from what others have. Empty means DefaultCgroup.
	Cgroup string
	// ShmSize is the size of /dev/shm in bytes; zero means 64 MiB.
	ShmSize int64
	// Waiter is a program with its arguments that waits until it is killed. User
	// namespaces are made around it.
	Waiter []string
	// Sysctls are set in every pod that has the namespace for them and does not
	// set them itself.
	Sysctls map[string]string
	Log     *slog.Logger // nil is the default one
}

// UnprivilegedSysctls let the processes of a pod with a network of its own use
// every port and ping, whoever they run as. Peers set them by default.
func UnprivilegedSysctls() map[string]string {
	return map[string]string{
		"net.ipv4.ip_unprivileged_port_start": "0",
		"net.ipv4.ping_group_range":           "0 2147483647",
	}
}

// Driver makes and removes sandboxes. Its methods may be called at once for
// different pods; for one pod, the caller takes turns.
type Driver struct {
	cfg Config
}

// New checks the configuration.
func New(cfg Config) (*Driver, error) {
	if !filepath.IsAbs(cfg.StateDir) {
		return nil, fmt.Errorf("configure sandboxes: state folder %q is not an absolute path: %w", cfg.StateDir, errdefs.ErrInvalidArgument)
	}
	if !filepath.IsAbs(cfg.RootDir) {
		return nil, fmt.Errorf("configure sandboxes: root folder %q is not an absolute path: %w", cfg.RootDir, errdefs.ErrInvalidArgument)
	}
	if cfg.ShmSize < 0 {
		return nil, fmt.Errorf("configure sandboxes: a /dev/shm of %d bytes: %w", cfg.ShmSize, errdefs.ErrInvalidArgument)
	}
	if cfg.ShmSize == 0 {
		cfg.ShmSize = defaultShmSize
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Cgroup == "" {
		cfg.Cgroup = DefaultCgroup
	}
	if strings.ContainsAny(cfg.Cgroup, "/\x00") {
		return nil, fmt.Errorf("configure sandboxes: cgroup %q is not a name: %w", cfg.Cgroup, errdefs.ErrInvalidArgument)
	}
	for name := range cfg.Sysctls {
		if _, err := scopeOf(name); err != nil {
			return nil, fmt.Errorf("configure sandboxes: %w", err)
		}
	}
	return &Driver{cfg: cfg}, nil
}

// Create makes the sandbox. It is idempotent: what a sandbox already has, it
// keeps, and what a crash left unfinished is made anew.
func (d *Driver) Create(ctx context.Context, id pod.ID, c *pod.Config) (_ pod.Sandbox, err error) {
	fail := func(err error) (pod.Sandbox, error) {
		return pod.Sandbox{}, fmt.Errorf("create the sandbox of pod %s: %w", id.Short(), err)
	}
	dir, err := d.dir(id)
	if err != nil {
		return fail(err)
	}
	p, err := d.plan(c)
	if err != nil {
		return fail(err)
	}
	out := pod.Sandbox{Dir: dir, Files: d.files(id)}
	var u undo.Stack
	defer u.Rollback(ctx, &err)
	u.Push("remove the sandbox", func(ctx context.Context) error { return d.Remove(ctx, id) })
	if err := os.MkdirAll(filepath.Join(dir, nsFolder), 0o700); err != nil {
		return fail(err)
	}
	if err := failpoint.Hit(folderMade); err != nil {
		return fail(err)
	}
	if err := d.admit(dir, c); err != nil {
		return fail(err)
	}
	if err := p.pin(filepath.Join(dir, nsFolder), d.cfg.Waiter); err != nil {
		return fail(err)
	}
	for _, n := range p.kinds {
		*n.field(&out) = filepath.Join(dir, nsFolder, n.name)
	}
	if c.Security.Namespaces.IPC == pod.NamespacePod {
		out.Shm = filepath.Join(dir, shmFolder)
		if err := d.mountShm(out.Shm, c); err != nil {
			return fail(err)
		}
		if err := failpoint.Hit(shmMounted); err != nil {
			return fail(err)
		}
	}
	if out.Cgroup, err = d.createCgroup(ctx, id, c); err != nil {
		return fail(err)
	}
	if err := failpoint.Hit(cgroupMade); err != nil {
		return fail(err)
	}
	return out, nil
}

// admit lets root of a pod with a user namespace through to the pod's folder.
func (d *Driver) admit(dir string, c *pod.Config) error {
	if c.UserNamespace() == nil {
		return nil
	}
	_, gid := c.Root()
	return userns.Admit(dir, gid, d.cfg.StateDir, filepath.Dir(dir))
}

// Stop unpins the namespaces and frees /dev/shm. The kernel drops a namespace
// when the last process in it is gone too.
func (d *Driver) Stop(_ context.Context, id pod.ID) error {
	dir, err := d.dir(id)
	if err == nil {
		err = unmountAll(dir)
	}
	if err != nil {
		return fmt.Errorf("stop the sandbox of pod %s: %w", id.Short(), err)
	}
	return nil
}

// Remove deletes everything. Its cgroup has to be empty of processes.
func (d *Driver) Remove(ctx context.Context, id pod.ID) error {
	dir, err := d.dir(id)
	if err == nil {
		err = unmountAll(dir)
	}
	if err == nil {
		err = os.RemoveAll(d.files(id))
	}
	if err == nil {
		err = failpoint.Hit(filesRemoved)
	}
	if err == nil {
		err = os.RemoveAll(dir) // last: it tells of a pod without a record
	}
	if err == nil {
		err = failpoint.Hit(folderRemoved)
	}
	if err == nil {
		err = d.removeCgroup(ctx, id)
	}
	if err == nil {
		err = failpoint.Hit(cgroupRemoved)
	}
	if err != nil {
		return fmt.Errorf("remove the sandbox of pod %s: %w", id.Short(), err)
	}
	return nil
}

// dir is a pod's folder. An id that is no single name would lead elsewhere.
func (d *Driver) dir(id pod.ID) (string, error) {
	s := string(id)
	if s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/\x00") {
		return "", fmt.Errorf("id %q is no file name: %w", s, errdefs.ErrInvalidArgument)
	}
	return filepath.Join(d.cfg.StateDir, podsFolder, s), nil
}

// files is the folder of the files that a pod's containers share, for an id that
// dir has accepted.
func (d *Driver) files(id pod.ID) string { return filepath.Join(d.cfg.RootDir, podsFolder, string(id)) }

// Leftovers are pods that have files on disk and are not live: those outlive the
// boot, and the record of the pod does not.
func (d *Driver) Leftovers(live func(pod.ID) bool) ([]pod.ID, error) {
	entries, err := os.ReadDir(filepath.Join(d.cfg.RootDir, podsFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the files of pods: %w", err)
	}
	var out []pod.ID
	for _, e := range entries {
		if id := pod.ID(e.Name()); !live(id) {
			out = append(out, id)
		}
	}
	return out, nil
}

const (
	podsFolder = "pods" // in StateDir and in RootDir
	nsFolder   = "ns"
	shmFolder  = "shm"
)

// mountShm mounts a tmpfs, unless there is one from an earlier call.
func (d *Driver) mountShm(at string, c *pod.Config) error {
	if err := os.MkdirAll(at, 0o700); err != nil {
		return err
	}
	mounted, err := mountPoint(at)
	if err != nil || mounted {
		return err
	}
	uid, gid := c.Root()
	options := fmt.Sprintf("mode=1777,size=%d,uid=%d,gid=%d", d.cfg.ShmSize, uid, gid)
	if err := unix.Mount("shm", at, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount the pod's /dev/shm on %s: %w", at, err)
	}
	return nil
}

func mountPoint(p string) (bool, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, p, unix.AT_SYMLINK_NOFOLLOW, 0, &st); err != nil {
		return false, &fs.PathError{Op: "statx", Path: p, Err: err}
	}
	return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
}

// unmountAll takes away what this package mounts below a pod's folder.
func unmountAll(dir string) error {
	targets := []string{filepath.Join(dir, shmFolder)}
	for _, n := range kinds {
		targets = append(targets, filepath.Join(dir, nsFolder, n.name))
	}
	for _, t := range targets {
		if err := unmount(t); err != nil {
			return err
		}
		if err := failpoint.Hit(unmounted); err != nil {
			return err
		}
	}
	return nil
}

// unmount takes away every mount on a path, of which a crash may have left
// more than one. Users of a mount keep it until they are done.
func unmount(p string) error {
	for {
		err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil:
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR): // not mounted, or not there
			return nil
		default:
			return &fs.PathError{Op: "unmount", Path: p, Err: err}
		}
	}
}
