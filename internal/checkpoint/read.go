package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/inroot"
	"fairlead.run/internal/pod"
)

// maxDescription bounds the files that describe a container, in bytes.
const maxDescription = 4 << 20

// Read lists the containers in the folder of a pod's checkpoint.
func (f *Folders) Read(ctx context.Context, folder string) ([]pod.Captured, error) {
	if !f.restore {
		return nil, fmt.Errorf("checkpoints are not restored on this node; the key checkpoints.restore of the configuration allows it: %w", errdefs.ErrUnimplemented)
	}
	return hostpath.Look(ctx, folder, func() ([]pod.Captured, error) {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return nil, fmt.Errorf("read checkpoint: %w: %w", err, errdefs.ErrInvalidArgument)
		}
		var out []pod.Captured
		for _, e := range entries {
			var d description
			err := readJSON(folder, filepath.Join(e.Name(), configFile), &d)
			if errors.Is(err, fs.ErrNotExist) || err != nil && !e.IsDir() {
				continue
			}
			if err != nil {
				return nil, err
			}
			out = append(out, pod.Captured{Name: d.Name, Dir: filepath.Join(folder, e.Name())})
		}
		if len(out) == 0 {
			return nil, fmt.Errorf("read checkpoint %s: there is no container in it: %w", folder, errdefs.ErrInvalidArgument)
		}
		return out, nil
	})
}

func readJSON(root, name string, into any) error {
	data, err := inroot.ReadFile(root, name, maxDescription)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("read %s of checkpoint %s: %w", name, root, err)
	}
	return nil
}

// process is what cannot be changed by restoring a process.
type process struct {
	Process     *specs.Process    `json:"process"`
	Annotations map[string]string `json:"annotations"`
	Linux       struct {
		UIDMappings []struct{} `json:"uidMappings"`
	} `json:"linux"`
}

// imageName is the annotation in a bundle that names the container's image.
const imageName = "run.fairlead.image"

// Fits says why a bundle does not describe the process that was captured into a
// folder, or nil.
func (f *Folders) Fits(dir, bundle string) error {
	var was, is process
	if err := errors.Join(readJSON(dir, specFile, &was), readJSON(bundle, "config.json", &is)); err != nil {
		return err
	}
	if was.Process == nil || is.Process == nil {
		return fmt.Errorf("checkpoint %s is of no process: %w", dir, errdefs.ErrInvalidArgument)
	}
	if len(is.Linux.UIDMappings) > 0 {
		return fmt.Errorf("nothing can be restored into a pod with a user namespace: %w", errdefs.ErrUnimplemented)
	}
	for _, c := range []struct {
		what    string
		was, is any
	}{
		{"image", was.Annotations[imageName], is.Annotations[imageName]},
		{"command", was.Process.Args, is.Process.Args},
		{"working directory", was.Process.Cwd, is.Process.Cwd},
		{"environment", was.Process.Env, is.Process.Env},
		{"user", was.Process.User, is.Process.User},
		{"terminal", was.Process.Terminal, is.Process.Terminal},
	} {
		if !reflect.DeepEqual(c.was, c.is) {
			return fmt.Errorf("the %s of the process in the checkpoint is %v, and of the one that is asked for %v: %w", c.what, c.was, c.is, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}
