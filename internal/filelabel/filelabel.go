// Package filelabel sets the SELinux label of one file. Which label that is,
// others work out.
package filelabel

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Set labels a file; links are not followed. With an empty label it does
// nothing. It is no error that a file system keeps no labels: then they all
// have the one that the policy gives the file system.
func Set(path, label string) error {
	if label == "" {
		return nil
	}
	for {
		err := unix.Lsetxattr(path, "security.selinux", []byte(label), 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil, errors.Is(err, unix.ENOTSUP):
			return nil
		default:
			return &fs.PathError{Op: "label for SELinux", Path: path, Err: err}
		}
	}
}
