// Package request checks what callers ask of the monitor, and fills in defaults.
// It looks at nothing but the request: whether a path exists or an id is free is
// found out by those who need it.
package request

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
)

// CheckStart validates a request and fills in defaults.
func CheckStart(r *monitorv1.StartRequest) error {
	if r.LogMaxLine == 0 {
		r.LogMaxLine = monitorv1.DefaultLogMaxLine
	}
	if r.Timeout == 0 {
		r.Timeout = monitorv1.DefaultTimeout
	}
	err := checkCommand(r.ID, r.Command, r.TTY, r.Timeout)
	switch {
	case err != nil:
		return err
	case r.LogMaxLine < monitorv1.MinLogMaxLine || r.LogMaxLine > monitorv1.MaxLogMaxLine:
		return wrong(r.ID, "logMaxLine %d is not from %d to %d bytes", r.LogMaxLine, monitorv1.MinLogMaxLine, monitorv1.MaxLogMaxLine)
	case r.Cgroup != "" && filepath.Clean(r.Cgroup) != r.Cgroup:
		return wrong(r.ID, "cgroup %q is not in its shortest form", r.Cgroup)
	case !r.TTY && r.IODir == "":
		return wrong(r.ID, "ioDir is empty")
	}
	return checkPaths(r.ID, map[string]string{"pidFile": r.PIDFile}, map[string]string{
		"ioDir": r.IODir, "logPath": r.LogPath, "logDir": r.LogDir, "runtimeLog": r.RuntimeLog, "cgroup": r.Cgroup,
	})
}

// CheckExec does so for a process in a container.
func CheckExec(r *monitorv1.ExecRequest) error {
	if r.Timeout == 0 {
		r.Timeout = monitorv1.DefaultTimeout
	}
	if err := checkCommand(r.ID, r.Command, r.TTY, r.Timeout); err != nil {
		return err
	}
	if r.TTY && r.Stdio != [3]bool{} {
		return wrong(r.ID, "descriptors come with a terminal")
	}
	if s := r.OOMScoreAdj; s != nil && (*s < -1000 || *s > 1000) {
		return wrong(r.ID, "oomScoreAdj %d is not from -1000 to 1000", *s)
	}
	// A number that others have, too, would have them killed.
	if r.Mark != 0 && (r.Mark < monitorv1.MinMark || r.Mark >= 2*monitorv1.MinMark) {
		return wrong(r.ID, "mark %d is not from %d to %d", r.Mark, uint64(monitorv1.MinMark), uint64(2*monitorv1.MinMark-1))
	}
	return checkPaths(r.ID, map[string]string{"pidFile": r.PIDFile}, map[string]string{"runtimeLog": r.RuntimeLog})
}

func checkCommand(id string, argv []string, tty bool, timeout time.Duration) error {
	if err := checkID(id); err != nil {
		return err
	}
	named := slices.ContainsFunc(argv, func(arg string) bool { return strings.Contains(arg, monitorv1.ConsoleSocket) })
	switch {
	case len(argv) == 0 || !filepath.IsAbs(argv[0]):
		return wrong(id, "command does not begin with an absolute path")
	case slices.ContainsFunc(argv, func(arg string) bool { return strings.ContainsRune(arg, 0) }):
		return wrong(id, "command has a NUL byte")
	case timeout < 0:
		return wrong(id, "timeout is negative")
	case tty && !named:
		return wrong(id, "a terminal is asked for, and command has no %s", monitorv1.ConsoleSocket)
	case !tty && named:
		return wrong(id, "command has %s, and no terminal is asked for", monitorv1.ConsoleSocket)
	}
	return nil
}

// checkID keeps ids fit for file names.
func checkID(id string) error {
	const more = "_.-"
	bad := strings.IndexFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(more, r))
	})
	if id == "" || len(id) > monitorv1.MaxID || bad >= 0 || strings.HasPrefix(id, ".") {
		return wrong(id, "the id is not of 1 to %d letters, digits and %s, not beginning with a dot", monitorv1.MaxID, more)
	}
	return nil
}

func checkPaths(id string, required, optional map[string]string) error {
	for _, paths := range []map[string]string{required, optional} {
		for name, path := range paths {
			if path != "" && (!filepath.IsAbs(path) || strings.ContainsRune(path, 0)) {
				return wrong(id, "%s %q is not an absolute path", name, path)
			}
		}
	}
	for name, path := range required {
		if path == "" {
			return wrong(id, "%s is empty", name)
		}
	}
	return nil
}

func wrong(id, format string, args ...any) error {
	return fmt.Errorf("check request for process %.140q: %s: %w", id, fmt.Sprintf(format, args...), errdefs.ErrInvalidArgument)
}
