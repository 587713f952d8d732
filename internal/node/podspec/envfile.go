package podspec

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
)

// MaxEnvFile bounds a file of variables in bytes; a container has written it.
const MaxEnvFile = 64 << 10

// fromFile is a variable of a file in a volume (KEP-3721).
func fromFile(c *Context, r *corev1.FileKeySelector) (value string, skip bool, err error) {
	where := fmt.Sprintf("file %s of volume %s", r.Path, r.VolumeName)
	if c.File == nil {
		return "", false, fmt.Errorf("%s: variables of files are not supported here: %w", where, errdefs.ErrUnimplemented)
	}
	text, err := c.File(r.VolumeName, r.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isTrue(r.Optional):
		return "", true, nil
	case err != nil:
		return "", false, fmt.Errorf("read %s: %w", where, err)
	case len(text) > MaxEnvFile:
		return "", false, fmt.Errorf("%s is larger than %d bytes: %w", where, MaxEnvFile, errdefs.ErrInvalidArgument)
	}
	vars, err := ParseEnvFile(string(text))
	if err != nil {
		return "", false, fmt.Errorf("%s: %w", where, err)
	}
	value, ok := vars[r.Key]
	if !ok && !isTrue(r.Optional) {
		return "", false, fmt.Errorf("%s has no key %q: %w", where, r.Key, errdefs.ErrNotFound)
	}
	return value, !ok, nil
}

// ParseEnvFile reads a file of variables: NAME='value', with a value that may go on
// over lines and is taken as it is. Lines that begin with # are comments. The last
// of a name counts.
func ParseEnvFile(text string) (map[string]string, error) {
	out := map[string]string{}
	for line := 1; text != ""; line++ {
		first, rest, _ := strings.Cut(text, "\n")
		trimmed := strings.TrimSpace(first)
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			text = rest
			continue
		}
		name, _, ok := strings.Cut(first, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, envError(line, "it is not of the form NAME='value'")
		}
		_, after, _ := strings.Cut(text, "=")
		after, ok = strings.CutPrefix(strings.TrimLeft(after, " \t"), "'")
		if !ok {
			return nil, envError(line, "the value of "+name+" does not begin with a single quote")
		}
		value, after, ok := strings.Cut(after, "'")
		if !ok {
			return nil, envError(line, "the value of "+name+" does not end with a single quote")
		}
		tail, rest, _ := strings.Cut(after, "\n")
		if tail = strings.TrimSpace(tail); tail != "" && !strings.HasPrefix(tail, "#") {
			return nil, envError(line, "there is something behind the value of "+name)
		}
		out[name] = value
		line += strings.Count(value, "\n")
		text = rest
	}
	return out, nil
}

func envError(line int, why string) error {
	return fmt.Errorf("line %d: %s: %w", line, why, errdefs.ErrInvalidArgument)
}
