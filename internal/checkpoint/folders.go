package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Folders are ROOT/checkpoints/ID, one for each container of which a checkpoint
// is being made. They are on disk because a container's memory goes into them.
type Folders struct {
	base    string
	restore bool // checkpoints may be restored
}

// New returns the folders of a root directory. Without restore Read refuses.
func New(root string, restore bool) *Folders {
	return &Folders{base: filepath.Join(root, "checkpoints"), restore: restore}
}

func (f *Folders) dir(id pod.ContainerID) (string, error) {
	if !pod.IsID(string(id)) {
		return "", fmt.Errorf("container id %q cannot be a folder's name: %w", id, errdefs.ErrInvalidArgument)
	}
	return filepath.Join(f.base, string(id)), nil
}

// Make makes an empty folder for a container. What an earlier attempt has left
// in it goes.
func (f *Folders) Make(id pod.ContainerID) (string, error) {
	dir, err := f.dir(id)
	if err == nil {
		err = errors.Join(os.MkdirAll(f.base, 0o700), os.RemoveAll(dir))
	}
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return "", fmt.Errorf("make a folder for the checkpoint: %w", err)
	}
	return dir, nil
}

// Remove deletes the folder of a container. It does not mind that there is none.
func (f *Folders) Remove(id pod.ContainerID) error {
	dir, err := f.dir(id)
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return fmt.Errorf("remove the folder of a checkpoint: %w", err)
	}
	return nil
}

// Left are the containers that have a folder.
func (f *Folders) Left() ([]pod.ContainerID, error) {
	entries, err := os.ReadDir(f.base)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for folders of checkpoints: %w", err)
	}
	var out []pod.ContainerID
	for _, e := range entries {
		if pod.IsID(e.Name()) {
			out = append(out, pod.ContainerID(e.Name()))
		}
	}
	return out, nil
}

// EndWriters kills the programs that an earlier daemon has started to write a
// checkpoint of the container, and waits for their end. They would freeze it again
// when they are done. Each is the first of a process group and names the container.
func (f *Folders) EndWriters(ctx context.Context, id pod.ContainerID) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		found, err := writers(string(id))
		if err != nil || len(found) == 0 {
			return err
		}
		for _, pid := range found {
			if err := unix.Kill(-pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("end process %d, which writes a checkpoint: %w", pid, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes %v, which write a checkpoint, were killed and do not end: %w", found, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// writers are the leaders of process groups whose command is a runtime's
// "checkpoint" and ends with the id.
func writers(id string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for processes that write checkpoints: %w", err)
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		args := bytes.Split(bytes.TrimSuffix(line, []byte{0}), []byte{0})
		if err != nil || string(args[len(args)-1]) != id || !contains(args, "checkpoint") {
			continue // a zombie has no command line any more
		}
		if group, err := unix.Getpgid(pid); err == nil && group == pid {
			out = append(out, pid)
		}
	}
	return out, nil
}

func contains(args [][]byte, word string) bool {
	for _, a := range args {
		if string(a) == word {
			return true
		}
	}
	return false
}
