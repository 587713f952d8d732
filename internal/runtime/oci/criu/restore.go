package criu

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fairlead.run/internal/errdefs"
)

// Folder is where criu writes its log when it restores, in the bundle.
const Folder = "criu"

// inheritFile tells criu its descriptors, in Folder. It goes by the environment:
// criu reads the file that a runtime names twice, and takes each descriptor away
// at the first time.
const inheritFile = "inherit.conf"

// RestoreEnv is what the environment of a runtime that restores a bundle has more.
func RestoreEnv(bundle string) string {
	return "CRIU_CONFIG_FILE=" + filepath.Join(bundle, Folder, inheritFile)
}

// descriptors are those by which a runtime has the monitor's FIFOs.
var descriptors = []string{"stdin", "stdout", "stderr"}

// PrepareRestore prepares a bundle for its process to go on from a folder, and
// returns where criu is to work. input says whether the process gets one.
func PrepareRestore(bundle, from string, input bool) (work string, err error) {
	data, err := os.ReadFile(filepath.Join(from, OutputsFile))
	if err != nil {
		return "", fmt.Errorf("read which output the container had open: %w", err)
	}
	var opened map[string]string
	if err := json.Unmarshal(data, &opened); err != nil {
		return "", fmt.Errorf("read which output the container had open: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	var inherit strings.Builder
	for name, file := range opened {
		fd := slices.Index(descriptors, file)
		if fd < 0 || fd == 0 && !input {
			return "", fmt.Errorf("the container had a %s when it was captured, and is to have none: %w", file, errdefs.ErrInvalidArgument)
		}
		fmt.Fprintf(&inherit, "inherit-fd fd[%d]:%s\n", fd, name)
	}
	work = filepath.Join(bundle, Folder)
	if err := errors.Join(os.RemoveAll(work), os.Mkdir(work, 0o700)); err != nil {
		return "", err
	}
	// Connections are those of another address.
	return work, errors.Join(
		WriteOptions(bundle, "manage-cgroups=ignore", "tcp-close"),
		os.WriteFile(filepath.Join(work, inheritFile), []byte(inherit.String()), 0o600),
	)
}

// RestoreFailure is what criu says in a bundle of why it failed, or "".
func RestoreFailure(bundle string) string {
	return Failure(filepath.Join(bundle, Folder, "restore.log"))
}
