package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/runtime/oci/cgroup"
	"fairlead.run/internal/threads"
)

// toolError is what a runtime said when it failed. Unwrap is the kind of the
// failure as far as the words tell.
type toolError struct {
	msg string
}

// Error is the runtime's message.
func (e *toolError) Error() string { return e.msg }

// Unwrap classifies the message.
func (e *toolError) Unwrap() error { return kindOf(e.msg) }

// lastError finds the last message of a runtime's log in the JSON form. Lines of
// another form count as messages where there is none of that.
func lastError(log []byte) string {
	var found, plain string
	for line := range bytes.Lines(log) {
		line = bytes.TrimSpace(line)
		var entry struct {
			Level string `json:"level"`
			Msg   string `json:"msg"`
		}
		switch {
		case len(line) == 0:
		case json.Unmarshal(line, &entry) != nil || entry.Msg == "":
			plain = string(line)
		case entry.Level == "error" || entry.Level == "fatal" || entry.Level == "panic":
			found = entry.Msg
		}
	}
	if found == "" {
		found = plain
	}
	return tidy(found)
}

// noise is what runtimes say before they come to the point.
var noise = regexp.MustCompile(`^(OCI runtime \w+ failed: |runc \w+ failed: |exec failed: |unable to start container process: |container_linux\.go:\d+: |starting container process caused: |error during container init: )+`)

func tidy(msg string) string {
	const longest = 2 << 10
	msg = strings.ToValidUTF8(noise.ReplaceAllString(strings.TrimSpace(msg), ""), "?")
	msg = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' ' // a runtime quotes what images contain
		}
		return r
	}, msg)
	if len(msg) > longest {
		msg = msg[:longest] + "..."
	}
	return msg
}

// readLog returns the last error in a runtime's log file, or "".
func readLog(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > errOutput {
		if _, err := f.Seek(-errOutput, io.SeekEnd); err != nil {
			return ""
		}
	}
	log, err := io.ReadAll(io.LimitReader(f, errOutput))
	if err != nil {
		return ""
	}
	return lastError(log)
}

// The ways in which runtimes say the same.
var (
	noProgram = regexp.MustCompile(`executable file .*not found|exec: "?[^"]*"?: stat .*: no such file or directory|exec: "?[^"]*"?: no such file or directory|exec .*: no such file or directory|executable path is empty|failed to load \S+: no such file or directory|no such file or directory: failed to load`)
	noAccess  = regexp.MustCompile(`exec(:|ve|utable)? .*permission denied|open executable: Permission denied|executable file .*: Permission denied`)
	notThere  = regexp.MustCompile(`container .*does not exist|container does not exist|error opening file .*/status.*No such file|cannot open directory .*No such file|container not found|loading container: file does not exist`)
	isThere   = regexp.MustCompile(`(?i)container .*already exists|container with (the )?given ID already exists|container with id exists`)
	notAlive  = regexp.MustCompile(`(?i)cannot exec (in )?a (stopped|container that has stopped)|container .*is not running|container not running|no such process`)
	noSpace   = regexp.MustCompile(`(?i)no space left on device|cannot allocate memory|resource temporarily unavailable|too many open files`)
	readOnly  = regexp.MustCompile(`(?i)read-only file system`)
	badDisk   = regexp.MustCompile(`(?i)input/output error`)
	hybrid    = regexp.MustCompile(`cgroups in hybrid mode not supported`)
	badOCI    = regexp.MustCompile(`(?i)unknown version specified|unsupported (oci|spec).*version|spec version`)
)

// kindOf is the kind of a failure that a message tells of.
func kindOf(msg string) error {
	switch {
	case threads.Tells(msg):
		return errdefs.ErrExhausted
	case noProgram.MatchString(msg), noAccess.MatchString(msg):
		return errdefs.ErrInvalidArgument
	case notThere.MatchString(msg):
		return errdefs.ErrNotFound
	case isThere.MatchString(msg):
		return errdefs.ErrAlreadyExists
	case notAlive.MatchString(msg), readOnly.MatchString(msg):
		return errdefs.ErrPrecondition
	case noSpace.MatchString(msg):
		return errdefs.ErrExhausted
	case hybrid.MatchString(msg), badDisk.MatchString(msg):
		return errdefs.ErrUnavailable
	}
	return errdefs.ErrInternal
}

// explain is the runtime's message, with what to do about it where that is
// known. argv is the command of the container, env its environment.
func explain(msg string, argv, env []string) error {
	program := ""
	if len(argv) > 0 {
		program = argv[0]
	}
	switch {
	case noProgram.MatchString(msg) && strings.Contains(program, "/"):
		msg = fmt.Sprintf("the container has no program %q (it, or the interpreter or loader that it names, is missing; the command comes from the pod or the image): %s", program, msg)
	case noProgram.MatchString(msg):
		msg = fmt.Sprintf("the container has no program %q in its PATH (%s): %s", program, pathOf(env), msg)
	case threads.Tells(msg):
		msg = "the runtime found no process ids; if the machine has some, the limit of the container or pod (pids.max of its cgroup) is reached: " + msg
	case noAccess.MatchString(msg):
		msg = fmt.Sprintf("the container's program %q is not executable for its user: %s", program, msg)
	case badDisk.MatchString(msg):
		msg = "the disk under the container's files fails: " + msg
	case hybrid.MatchString(msg):
		if remedy := cgroup.HybridRemedy(cgroupRoot); remedy != "" {
			msg = remedy + ": " + msg
		}
	}
	return &toolError{msg: msg}
}

func pathOf(env []string) string {
	for _, e := range env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			return path
		}
	}
	return "which is not set"
}

// saysNotThere tells whether an error is that of a container which the runtime
// does not know.
func saysNotThere(err error) bool {
	var t *toolError
	return errors.As(err, &t) && notThere.MatchString(t.msg)
}
