package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/hostpath"
)

// checkHostPath sees that a path is of the type that is asked for, and makes it
// where the type says so.
func checkHostPath(ctx context.Context, h *corev1.HostPathVolumeSource) error {
	if !filepath.IsAbs(h.Path) || slices.Contains(strings.Split(h.Path, "/"), "..") {
		return fmt.Errorf("hostPath %q is not an absolute path without ..: %w", h.Path, errdefs.ErrInvalidArgument)
	}
	if h.Type == nil || *h.Type == corev1.HostPathUnset {
		return nil
	}
	return look(ctx, h.Path, func() error { return checkType(h.Path, *h.Type) })
}

// look does something at a path that may hang, and is left behind if it does.
func look(ctx context.Context, path string, do func() error) error {
	_, err := hostpath.Look(ctx, path, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func checkType(path string, kind corev1.HostPathType) error {
	switch kind {
	case corev1.HostPathDirectoryOrCreate:
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("create folder: %w", err)
		}
	case corev1.HostPathFileOrCreate:
		if err := createFile(path); err != nil {
			return fmt.Errorf("create file: %w", err)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("hostPath of type %s: %w", kind, err)
	}
	mode, fits := info.Mode(), false
	switch kind {
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		fits = mode.IsDir()
	case corev1.HostPathFile, corev1.HostPathFileOrCreate:
		fits = mode.IsRegular()
	case corev1.HostPathSocket:
		fits = mode&os.ModeSocket != 0
	case corev1.HostPathCharDev:
		fits = mode&os.ModeCharDevice != 0
	case corev1.HostPathBlockDev:
		fits = mode&os.ModeDevice != 0 && mode&os.ModeCharDevice == 0
	}
	if !fits {
		return fmt.Errorf("hostPath %s is not a %s: %w", path, kind, errdefs.ErrPrecondition)
	}
	return nil
}

// createFile makes a file that is missing. Opening what is there could do things:
// it may be a pipe or a device.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if os.IsExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}
