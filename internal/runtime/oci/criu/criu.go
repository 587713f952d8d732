// Package criu is about the program criu, with which runtimes make checkpoints:
// whether this host has one that works, what a container has open that criu
// cannot know, and what criu said when it failed.
//
// It captures nothing itself; the runtime calls criu.
package criu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
)

// find is the program in a PATH, or "".
func find(path string) string {
	for _, dir := range filepath.SplitList(path) {
		program := filepath.Join(dir, "criu")
		if info, err := os.Stat(program); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return program
		}
	}
	return ""
}

// Fingerprint changes when another criu is found in the PATH of env, or none.
func Fingerprint(env []string) string {
	program := find(pathOf(env))
	info, err := os.Stat(program)
	if err != nil {
		return ""
	}
	return fmt.Sprint(program, info.Size(), info.ModTime().UnixNano())
}

func pathOf(env []string) string {
	for _, e := range env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			return path
		}
	}
	return ""
}

// Host remembers what the last check found. The zero value is ready for use.
type Host struct {
	mu      sync.Mutex
	checked string // the fingerprint; empty before the first check
	err     error
}

// Check says why this host cannot make checkpoints, or nil. env is the
// environment of runtimes, which look for criu in its PATH. criu check takes some
// 50 ms; ctx bounds it.
func (h *Host) Check(ctx context.Context, env []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := Fingerprint(env)
	if now == "" {
		return fmt.Errorf("there is no program criu in %s; install it: %w", pathOf(env), errdefs.ErrNotFound)
	}
	if now == h.checked {
		return h.err
	}
	err := check(ctx, find(pathOf(env)), env)
	if !errors.Is(err, errdefs.ErrDeadline) { // a busy machine is no answer
		h.checked, h.err = now, err
	}
	return err
}

func check(ctx context.Context, program string, env []string) error {
	cmd := exec.CommandContext(ctx, program, "check")
	var said bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, "/", &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s check did not end in time: %w", program, errdefs.ErrDeadline)
	}
	if text := errorsOf(said.Bytes()); text != "" {
		return fmt.Errorf("%s check says: %s", program, text)
	}
	return fmt.Errorf("run %s check: %w", program, err)
}

// Failure is what criu says in its log file of why it failed, or "".
func Failure(log string) string {
	data, err := os.ReadFile(log)
	if err != nil {
		return ""
	}
	return errorsOf(data)
}

// errorsOf are the first lines that criu calls errors. Some of these are none, and
// the later ones tell of what came of it.
func errorsOf(log []byte) string {
	const most, longest = 3, 512
	var found []string
	for line := range bytes.Lines(log) {
		_, text, isError := strings.Cut(string(line), "Error (")
		if !isError {
			continue
		}
		text = strings.TrimSpace(text)
		if _, rest, ok := strings.Cut(text, "): "); ok { // the place in criu's source
			text = rest
		}
		text = strings.Map(printable, strings.ToValidUTF8(text, "?"))
		if found = append(found, text[:min(len(text), longest)]); len(found) == most {
			break
		}
	}
	return strings.Join(found, "; ")
}

func printable(r rune) rune {
	if r < ' ' {
		return ' '
	}
	return r
}
