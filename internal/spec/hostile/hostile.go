// Package hostile refuses images that have something else where a runtime
// expects what every honest image has, or more of it than a runtime gets
// through. It changes nothing.
package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/inroot"
)

const (
	// maxUserFile is how many bytes /etc/passwd and /etc/group may have. A
	// runtime looks into them for every process, whoever it runs as.
	maxUserFile = 16 << 20
	// maxArguments is what the kernel gives to the arguments and variables of a
	// program at most, in bytes, with a pointer to each of them.
	maxArguments = 6 << 20
	// maxVolumes is how many VOLUMEs there may be; each is made and mounted for
	// every container.
	maxVolumes = 1000
)

func refused(format string, args ...any) error {
	return fmt.Errorf("the image "+format+": %w", append(args, errdefs.ErrInvalidArgument)...)
}

// Rootfs looks at the folders that the kernel's file systems are mounted on, and
// at the files that say which users there are.
func Rootfs(rootfs string, folders []string) error {
	for _, dir := range folders {
		// Some versions of runc follow a link there, out of the container.
		info, err := os.Lstat(filepath.Join(rootfs, dir))
		if err == nil && !info.IsDir() {
			return refused("has no folder at %s but something else (%s), over which nothing can be mounted", dir, info.Mode())
		}
	}
	for _, name := range []string{"/etc/passwd", "/etc/group"} {
		if err := userFile(rootfs, name); err != nil {
			return err
		}
	}
	return nil
}

func userFile(rootfs, name string) error {
	at, err := inroot.OpenPath(rootfs, name)
	if err != nil {
		return nil // there is nothing to read
	}
	defer func() { _ = at.Close() }()
	info, err := at.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("look at %s in %s: %w", name, rootfs, err)
	case !info.Mode().IsRegular() && !info.IsDir():
		return refused("has %s in %s, which is not a regular file (%s)", name, rootfs, info.Mode())
	case info.Mode().IsRegular() && info.Size() > maxUserFile:
		return refused("has %s in %s, which is larger than %d bytes", name, rootfs, maxUserFile)
	}
	return nil
}

// Arguments looks at arguments and variables, some of which may be the request's.
// Where no program can be started with them, a runtime would find out too late
// to say so.
func Arguments(args, env []string) error {
	longest, total := 32*os.Getpagesize()-1, 0 // MAX_ARG_STRLEN without the zero byte
	for _, s := range slices.Concat(args, env) {
		if len(s) > longest {
			return refused("or the request has an argument or a variable that is too long, %.60q...: %d bytes, and the kernel takes %d", s, len(s), longest)
		}
		total += len(s) + 1 + 8
	}
	if total > maxArguments {
		return refused("and the request have arguments and variables that are too long together: %d bytes, and the kernel has %d for them", total, maxArguments)
	}
	return nil
}

// Volumes looks at how many there are.
func Volumes(all []string) error {
	if n := len(all); n > maxVolumes {
		return refused("has %d volumes, the limit is %d", n, maxVolumes)
	}
	return nil
}
