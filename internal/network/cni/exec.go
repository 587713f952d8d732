package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/stage"
)

// runner starts plugins. Unlike libcni's own it also ends what a plugin has
// started, never waits for a descriptor that somebody else holds open, and
// says in its errors which plugin did what.
type runner struct {
	version.PluginDecoder
	reaper reaper
}

var _ invoke.Exec = (*runner)(nil)

const (
	maxOutput = 1 << 20 // bytes of a plugin's answer
	maxStderr = 4 << 10 // bytes of a plugin's complaint that are kept
	busyTries = 10      // for a binary that is being replaced
	busyPause = 100 * time.Millisecond
)

// FindInPath finds a plugin's binary.
func (r *runner) FindInPath(plugin string, paths []string) (string, error) {
	return findPlugin(plugin, paths)
}

func findPlugin(plugin string, dirs []string) (string, error) {
	path, err := invoke.FindInPath(plugin, dirs)
	if err != nil {
		return "", fmt.Errorf("plugin %q is not in %s: install it there: %w", plugin, strings.Join(dirs, " or "), errdefs.ErrUnavailable)
	}
	return path, nil
}

// ExecPlugin runs a plugin once.
func (r *runner) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	for try := 1; ; try++ {
		out, err := r.once(ctx, path, stdin, environ)
		if !errors.Is(err, unix.ETXTBSY) || try == busyTries {
			return out, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(busyPause):
		}
	}
}

func (r *runner) once(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	stage.Enter(ctx, fmt.Sprintf("network plugin %s %s", filepath.Base(path), command(environ)))
	start := time.Now()
	stdout, stderr, err := r.process(ctx, path, stdin, environ)
	if err == nil || errors.Is(err, unix.ETXTBSY) {
		return stdout, err
	}
	failure := fmt.Sprintf("plugin %s %s", filepath.Base(path), command(environ))
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s was ended after %s without an answer: %w%s: %w",
			failure, time.Since(start).Round(time.Millisecond), context.Cause(ctx), said(stderr), errdefs.ErrDeadline)
	}
	var answer types.Error
	if json.Unmarshal(stdout, &answer) == nil && (answer.Msg != "" || answer.Code != 0) {
		return nil, fmt.Errorf("%s: %w%s%w", failure, &answer, said(stderr), kindOf(answer.Code))
	}
	return nil, fmt.Errorf("%s: %w%s", failure, err, said(append(stdout, stderr...)))
}

func command(environ []string) string {
	for _, e := range environ {
		if c, ok := strings.CutPrefix(e, "CNI_COMMAND="); ok {
			return c
		}
	}
	return ""
}

func said(output []byte) string {
	text := strings.TrimSpace(string(output[:min(len(output), maxStderr)]))
	if text == "" {
		return ""
	}
	return fmt.Sprintf(" (it printed %q)", text)
}

// silentKind adds a kind to an error without adding to its text.
type silentKind struct{ kind error }

func (silentKind) Error() string   { return "" }
func (k silentKind) Unwrap() error { return k.kind }

// kindOf maps the well-known error codes of the CNI specification.
func kindOf(code uint) error {
	switch code {
	case types.ErrTryAgainLater, 50, 51: // 50, 51: STATUS says not available, limited
		return silentKind{errdefs.ErrUnavailable}
	case types.ErrUnsupportedField, types.ErrIncompatibleCNIVersion:
		return silentKind{errdefs.ErrUnimplemented}
	}
	return silentKind{errdefs.ErrInternal}
}

// nsPath is the path for CNI_NETNS. DEL and GC allow it to be empty once the
// namespace is gone.
func nsPath(path string) string {
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}
