package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
)

// spare is what is left free beside the payload, in bytes.
const spare = 16 << 20

// Room says why the payload cannot be put below the folder, or nil. The folder
// need not be there yet.
func (s Stager) Room() error {
	at := s.Base
	for {
		_, err := os.Stat(at)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || at == "/" {
			return fmt.Errorf("look at %s: %w", at, err)
		}
		at = filepath.Dir(at)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		return fmt.Errorf("look at the file system of %s: %w", at, err)
	}
	if st.Flags&unix.ST_RDONLY != 0 || unix.Access(at, unix.W_OK) != nil {
		return fault.New(payload.ReadOnlyTarget, "%s is read-only; choose another folder as binaryPath, such as /opt or /var/bin", at)
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		return fault.New(payload.UnsupportedNode, "no program can run from %s, which is mounted with noexec; choose another folder as binaryPath", at)
	}
	need := int64(spare)
	if s.Check(false) == nil {
		return nil
	}
	for _, f := range s.files() {
		need += f.Size
	}
	if free := int64(st.Bavail) * st.Bsize; free < need {
		return fault.New(payload.NoSpace, "the file system of %s has %d MiB left, and the payload takes %d; make room there or choose another binaryPath", at, free>>20, need>>20)
	}
	return nil
}

// Configs writes the configs into a folder, which is named by their content and
// therefore never changes. It does nothing if they are there.
func Configs(dir string, all []payload.Config) error {
	if configsThere(dir, all) {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("write configs: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("write configs: %w", err)
	}
	for _, c := range all {
		if err := writeSync(filepath.Join(dir, c.Path), []byte(c.Content)); err != nil {
			return fmt.Errorf("write config %s: %w", c.Path, err)
		}
	}
	return nil
}

// configsThere says whether all configs are in the folder as they should be.
func configsThere(dir string, all []payload.Config) bool {
	for _, c := range all {
		data, err := os.ReadFile(filepath.Join(dir, c.Path))
		if err != nil || string(data) != c.Content {
			return false
		}
	}
	return len(all) > 0
}

// CheckConfigs says whether the configs are as they should be.
func CheckConfigs(dir string, all []payload.Config) error {
	if len(all) > 0 && !configsThere(dir, all) {
		return fmt.Errorf("check %s: a config is missing or was changed", dir)
	}
	return nil
}
