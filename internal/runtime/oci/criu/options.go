package criu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// OptionsFile is in a container's bundle while criu works on the container.
// Annotation names it to the runtime, whose criu then reads it.
const (
	OptionsFile = "criu.conf"
	Annotation  = "org.criu.config"
)

// adminFile is what runc's criu reads where no other file is named.
const adminFile = "/etc/criu/runc.conf"

// Opened are the files of a folder that the processes have open, by what criu calls
// them when they are left out of a checkpoint: file[mount:inode]. The folder is
// outside of the container, and criu would not find them.
func Opened(pids []int, folder string) (map[string]string, error) {
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return nil, fmt.Errorf("look for open files: %w", err)
	}
	out := map[string]string{}
	for _, pid := range pids {
		dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
		entries, err := os.ReadDir(dir)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look for open files: %w", err)
		}
		for _, e := range entries {
			name, file, err := external(dir, e.Name(), folder)
			if err != nil {
				return nil, fmt.Errorf("look at an open file of process %d: %w", pid, err)
			}
			if name != "" {
				out[name] = file
			}
		}
	}
	return out, nil
}

func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// external is one of them and its file's name, or "" for a descriptor of something else, which is not
// looked at: it may be on a file system that hangs.
func external(dir, fd, folder string) (name, file string, err error) {
	path := filepath.Join(dir, fd)
	to, err := os.Readlink(path)
	if gone(err) || err == nil && filepath.Dir(to) != folder {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", "", err
	}
	info, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "fdinfo", fd))
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(string(info)) {
		if value, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			mount, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
			return fmt.Sprintf("file[%x:%x]", mount, st.Ino), filepath.Base(to), err
		}
	}
	return "", "", errors.New("the kernel does not say which mount it is on")
}

// WriteOptions writes the options file of a bundle: what the host's
// administrator says for all containers, then ours, which win.
func WriteOptions(bundle string, options ...string) error {
	admin, err := os.ReadFile(adminFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read criu's configuration: %w", err)
	}
	var b bytes.Buffer
	if len(admin) > 0 {
		b.Write(bytes.TrimSpace(admin))
		b.WriteByte('\n')
	}
	for _, o := range options {
		b.WriteString(o + "\n")
	}
	if err := os.WriteFile(filepath.Join(bundle, OptionsFile), b.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write criu's configuration: %w", err)
	}
	return nil
}

// OutputsFile says in the folder of what criu writes which files of Opened the
// container had, for whoever restores it.
const OutputsFile = "fairlead-outputs.json"

// WriteOutputs writes it into a folder, which it makes if need be.
func WriteOutputs(dir string, opened map[string]string) error {
	data, err := json.Marshal(opened)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, OutputsFile), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("note which output the container has open: %w", err)
	}
	return nil
}

// PrepareDump prepares a bundle for its processes to be captured into a folder,
// without the files of another one that they have open.
func PrepareDump(bundle, without, to string, pids []int) error {
	opened, err := Opened(pids, without)
	if err != nil {
		return err
	}
	options := []string{"manage-cgroups=ignore"}
	for name := range opened {
		options = append(options, "external "+name)
	}
	return errors.Join(WriteOutputs(to, opened), WriteOptions(bundle, options...))
}
