package rootfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/threads"
)

// layers are what overlay stacks. Without upper the result is read-only.
type layers struct {
	lower       []string // topmost first
	upper, work string
	label       string
}

// errMethod says that this kernel or these paths need another method.
var errMethod = errors.New("this way of mounting does not work here")

// refusal is what the kernel said about a mount that another method may still
// make possible.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// mountAny mounts by the first method that works here.
func (l layers) mountAny(target string) error {
	var said *refusal
	for _, mount := range methods {
		err := mount(l, target)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errMethod) && said == nil {
			return err
		}
		if said == nil {
			errors.As(err, &said)
		}
	}
	if said == nil {
		return errMethod
	}
	return said.error // mount(2) fails for the same reason, but cannot tell it
}

// methods are the ways to mount overlay, best first. The first one, from Linux
// 6.13 on, takes descriptors: no limit on the length or number of paths and
// nothing to escape. The second, from 6.8 on, takes one path at a time, of at
// most 255 bytes. The last is mount(2), whose options fit in one page.
var methods = []func(l layers, target string) error{mountByDescriptor, mountByPath, mountByOptions}

// options that every mount gets. An index would tie layers to one mount.
// Volatile leaves out all flushes of the writable layer, which would only
// protect data that nobody reads after a power cut: containers do not outlive
// the boot.
func (l layers) volatile() bool { return l.upper != "" }

func mountByDescriptor(l layers, target string) error {
	return mountByContext(l, target, setByDescriptor)
}

func setByDescriptor(fsfd int, key, path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.FsconfigSetFd(fsfd, key, fd); err != nil {
		return errors.Join(errMethod, err)
	}
	return nil
}

func mountByPath(l layers, target string) error {
	return mountByContext(l, target, func(fsfd int, key, path string) error {
		if len(path) > 255 || strings.ContainsAny(path, `\`) {
			return errMethod
		}
		if err := unix.FsconfigSetString(fsfd, key, path); err != nil {
			return errors.Join(errMethod, err)
		}
		return nil
	})
}

// mountByContext mounts by the calls that Linux 5.2 brought. set tells overlay
// one directory.
func mountByContext(l layers, target string, set func(fsfd int, key, path string) error) error {
	fsfd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return errors.Join(errMethod, fmt.Errorf("fsopen overlay: %w", err))
	}
	defer func() { _ = unix.Close(fsfd) }()
	for _, dir := range l.lower {
		if err := set(fsfd, "lowerdir+", dir); err != nil {
			return err
		}
	}
	if l.upper != "" {
		if err := set(fsfd, "upperdir", l.upper); err != nil {
			return err
		}
		if err := set(fsfd, "workdir", l.work); err != nil {
			return err
		}
	}
	if err := setFlags(fsfd, l); err != nil {
		return err
	}
	if err := unix.FsconfigCreate(fsfd); err != nil {
		err = kernelSays(fsfd, fmt.Errorf("overlay: %w", err))
		if errors.Is(err, unix.EINVAL) { // before Linux 6.5 unknown options are noticed only here
			return errors.Join(errMethod, &refusal{err})
		}
		return err
	}
	attr := 0
	if l.upper == "" {
		attr = unix.MOUNT_ATTR_RDONLY
	}
	mfd, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, attr)
	if err != nil {
		return kernelSays(fsfd, fmt.Errorf("fsmount overlay: %w", err))
	}
	defer func() { _ = unix.Close(mfd) }()
	if err := unix.MoveMount(mfd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("move mount to %s: %w", target, err)
	}
	return nil
}

func setFlags(fsfd int, l layers) error {
	if err := unix.FsconfigSetString(fsfd, "index", "off"); err != nil {
		return kernelSays(fsfd, fmt.Errorf("overlay option index=off: %w", err))
	}
	if l.label != "" {
		if err := unix.FsconfigSetString(fsfd, "context", l.label); err != nil {
			return kernelSays(fsfd, fmt.Errorf("overlay option context=%s: %w", l.label, err))
		}
	}
	if !l.volatile() {
		return nil
	}
	if err := unix.FsconfigSetFlag(fsfd, "volatile"); err != nil {
		return kernelSays(fsfd, fmt.Errorf("overlay option volatile: %w", err))
	}
	return nil
}

// kernelSays adds what the kernel wrote about the failure into the context.
func kernelSays(fsfd int, err error) error {
	buf := make([]byte, 1024)
	var said []string
	for {
		n, rerr := unix.Read(fsfd, buf)
		if rerr != nil || n <= 0 {
			break
		}
		said = append(said, string(bytes.TrimSpace(buf[:n])))
	}
	if len(said) == 0 {
		return err
	}
	return fmt.Errorf("%w (the kernel says: %s)", err, strings.Join(said, "; "))
}

// mountByOptions is mount(2), for older kernels.
func mountByOptions(l layers, target string) error {
	opts := l.options(l.lower)
	if len(opts) < os.Getpagesize() {
		return mountOverlay(opts, target)
	}
	// Too long for the page that options have to fit in: name the layers
	// relative to what their paths have in common.
	base := commonParent(l.lower)
	short := make([]string, len(l.lower))
	for i, dir := range l.lower {
		rel, err := filepath.Rel(base, dir)
		if err != nil {
			return err
		}
		short[i] = rel
	}
	if opts = l.options(short); len(opts) >= os.Getpagesize() {
		return fmt.Errorf("the image has %d layers, more than this kernel can mount; use one of Linux 6.8 or later, or build the image with fewer layers: %w",
			len(l.lower), errdefs.ErrUnimplemented)
	}
	return inDirectory(base, func() error { return mountOverlay(opts, target) })
}

func mountOverlay(opts, target string) error {
	var flags uintptr
	if !strings.Contains(opts, "upperdir=") {
		flags = unix.MS_RDONLY
	}
	err := unix.Mount("overlay", target, "overlay", flags, opts)
	if errors.Is(err, unix.EINVAL) && strings.HasSuffix(opts, ",volatile") { // Linux before 5.10
		err = unix.Mount("overlay", target, "overlay", flags, strings.TrimSuffix(opts, ",volatile"))
	}
	if err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	return nil
}

var (
	escapeLower = strings.NewReplacer(`\`, `\\`, `:`, `\:`, `,`, `\,`)
	escapeUpper = strings.NewReplacer(`\`, `\\`, `,`, `\,`)
)

func (l layers) options(lower []string) string {
	escaped := make([]string, len(lower))
	for i, dir := range lower {
		escaped[i] = escapeLower.Replace(dir)
	}
	opts := "index=off,lowerdir=" + strings.Join(escaped, ":")
	if l.upper != "" {
		opts += ",upperdir=" + escapeUpper.Replace(l.upper) + ",workdir=" + escapeUpper.Replace(l.work)
	}
	if l.label != "" {
		opts += `,context="` + l.label + `"` // a level has commas
	}
	if l.volatile() {
		opts += ",volatile"
	}
	return opts
}

func commonParent(paths []string) string {
	base := filepath.Dir(paths[0])
	for _, p := range paths[1:] {
		for base != "/" && !strings.HasPrefix(p, base+"/") {
			base = filepath.Dir(base)
		}
	}
	return base
}

// elsewhere are threads with a working directory of their own.
var elsewhere threads.Aside

// inDirectory calls f with another working directory, which otherwise belongs to
// the whole process.
func inDirectory(dir string, f func() error) (err error) {
	elsewhere.Run(func() {
		if err = unix.Unshare(unix.CLONE_FS); err != nil {
			return
		}
		if err = unix.Chdir(dir); err == nil {
			err = errors.Join(f(), unix.Chdir("/"))
		}
	})
	return err
}
