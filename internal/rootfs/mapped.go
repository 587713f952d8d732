package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/failpoint"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/userns"
)

var volumeMapped = failpoint.Register("rootfs.volume-mapped")

// Mapping gives the files of an image to the ids of a pod's user namespace. The
// layers stay as they are, as other pods have them too: they are mapped where
// they are mounted. What the container writes belongs to the pod's ids.
type Mapping struct {
	UserNS string // file of the namespace
	IDs    *pod.UserNamespace
}

// mappingOf is that of a pod, or nil.
func mappingOf(r *pod.Record) *Mapping {
	if u := r.Config.UserNamespace(); u != nil {
		return &Mapping{UserNS: r.Sandbox.UserNS, IDs: u}
	}
	return nil
}

// owner is whom a file of those ids belongs to in the container; root's where
// they are not mapped. A nil Mapping changes nothing.
func (m *Mapping) owner(uid, gid uint32) (int, int) {
	if m == nil {
		return int(uid), int(gid)
	}
	u, ok := m.IDs.HostUID(uid)
	if !ok {
		u, _ = m.IDs.HostUID(0)
	}
	g, ok := m.IDs.HostGID(gid)
	if !ok {
		g, _ = m.IDs.HostGID(0)
	}
	return int(u), int(g)
}

// mountMapped mounts with mapped layers.
func (l layers) mountMapped(target, ns string) error {
	err := l.mountTrees(target, ns)
	if !errors.Is(err, errMethod) {
		return err
	}
	if l.upper != "" { // the attempt may have left the mark of a volatile mount
		if err := errors.Join(os.RemoveAll(l.work), os.Mkdir(l.work, 0o700)); err != nil {
			return err
		}
	}
	old := l.mountApart(target, ns)
	if errors.Is(old, unix.EINVAL) && !errors.Is(old, errdefs.ErrUnimplemented) {
		return fmt.Errorf("overlay does not take layers with mapped owners; it takes Linux 5.19 or later: %w: %w", old, errdefs.ErrUnimplemented)
	}
	return old
}

// mountTrees gives overlay copies of the layers that are mounted nowhere. It
// takes Linux 6.15.
func (l layers) mountTrees(target, ns string) error {
	var trees []*userns.Tree
	defer func() { // a copy that is closed is gone before overlay has it
		for _, t := range trees {
			t.Close()
		}
	}()
	return mountByContext(l, target, func(fsfd int, key, path string) error {
		if key != "lowerdir+" {
			return setByDescriptor(fsfd, key, path)
		}
		tree, err := userns.Copy(path, ns, userns.Options{})
		if err != nil {
			return err
		}
		trees = append(trees, tree)
		if err := unix.FsconfigSetFd(fsfd, key, tree.FD()); err != nil {
			return errors.Join(errMethod, err)
		}
		return nil
	})
}

// mountApart does it in a mount namespace that ends with the call: older kernels
// want the layers mounted where overlay is, and nobody is to see them there.
func (l layers) mountApart(target, ns string) error {
	var made int
	err := onThreadOfItsOwn(func() (err error) {
		made, err = l.makeApart(target, ns)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(made) }()
	if err := unix.MoveMount(made, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("move mount to %s: %w", target, err)
	}
	return nil
}

// makeApart changes the thread that it runs on for good.
func (l layers) makeApart(target, ns string) (int, error) {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return -1, os.NewSyscallError("unshare", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return -1, fmt.Errorf("keep mounts from the host: %w", err)
	}
	if err := unix.Mount("layers", target, "tmpfs", 0, ""); err != nil {
		return -1, fmt.Errorf("make a place for layers: %w", err)
	}
	// Short names, so that as many as possible fit in the options.
	if err := unix.Chdir(target); err != nil {
		return -1, &fs.PathError{Op: "chdir", Path: target, Err: err}
	}
	names := make([]string, len(l.lower))
	for i, layer := range l.lower {
		names[i] = strconv.Itoa(i)
		if err := os.Mkdir(names[i], 0o755); err != nil {
			return -1, err
		}
		tree, err := userns.Copy(layer, ns, userns.Options{})
		if err != nil {
			return -1, err
		}
		err = tree.Attach(names[i])
		tree.Close()
		if err != nil {
			return -1, err
		}
	}
	const merged = "merged"
	if err := os.Mkdir(merged, 0o755); err != nil {
		return -1, err
	}
	opts := l.options(names)
	if len(opts) >= os.Getpagesize() {
		return -1, fmt.Errorf("the image has %d layers, more than this kernel can mount with mapped owners; use one of Linux 6.15 or later, or build the image with fewer layers: %w", len(l.lower), errdefs.ErrUnimplemented)
	}
	if err := mountOverlay(opts, merged); err != nil {
		return -1, err
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, merged, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	return fd, os.NewSyscallError("open_tree", err)
}

// onThreadOfItsOwn runs f on a thread that ends with it, unless it is the
// process's first, which cannot: that one is held until another has done it.
func onThreadOfItsOwn(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			done <- onThreadOfItsOwn(f)
			return
		}
		done <- f() // not unlocked: the thread is of no more use
	}()
	return <-done
}

// CanMap says why root file systems with layers below dir cannot have mapped
// owners on this kernel, or nil. It mounts one for a moment. ns is the file of a
// user namespace in which root is the user and group of IDs.
func CanMap(ctx context.Context, dir string, m *Mapping) (err error) {
	base := filepath.Join(dir, "mapping-trial")
	clear := func() error {
		return errors.Join(Unmount(ctx, filepath.Join(base, "root")), os.RemoveAll(base))
	}
	if err := clear(); err != nil { // an earlier one was cut off
		return err
	}
	defer func() { err = errors.Join(err, clear()) }()
	s := Spec{Lower: []string{filepath.Join(base, "layer")}, Dir: base, Target: filepath.Join(base, "root"), Mapping: m, trial: true}
	if err := os.MkdirAll(s.Lower[0], 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.Lower[0], "file"), nil, 0o600); err != nil {
		return err
	}
	if err := Mount(ctx, s); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(s.Target, "file"), &st); err != nil {
		return &fs.PathError{Op: "stat", Path: s.Target, Err: err}
	}
	if uid, gid := m.owner(0, 0); int(st.Uid) != uid || int(st.Gid) != gid {
		return fmt.Errorf("a file of root in a mapped root file system belongs to %d:%d and not to %d:%d: %w", st.Uid, st.Gid, uid, gid, errdefs.ErrUnimplemented)
	}
	return nil
}

// Map mounts a copy of the source, in which files have the owners that the user
// namespace maps theirs to, and returns where. Unmount takes it away again. It is
// idempotent.
func (r *Roots) Map(_ context.Context, m pod.MapRequest) (string, error) {
	if err := checkID(m.Container); err != nil {
		return "", err
	}
	at := r.mountTarget(m.Container, m.Index)
	info, err := os.Stat(m.Source)
	if err != nil {
		return "", err
	}
	if err := makeTarget(at, info.IsDir()); err != nil {
		return "", err
	}
	mounted, err := isMounted(at)
	if err != nil || mounted {
		return at, err
	}
	o := userns.Options{Below: true, Propagation: unix.MS_PRIVATE}
	if m.Follow {
		o.Propagation = unix.MS_SLAVE
	}
	tree, err := userns.Copy(m.Source, m.UserNS, o)
	if err != nil {
		return "", err
	}
	defer tree.Close()
	if err := tree.Attach(at); err != nil {
		return "", err
	}
	return at, failpoint.Hit(volumeMapped)
}

// makeTarget makes what a file or a folder can be mounted on.
func makeTarget(at string, folder bool) error {
	if folder {
		return os.MkdirAll(at, 0o700)
	}
	f, err := os.OpenFile(at, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}
