package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// checkFile looks at what -o was given; "-" is standard output.
func (a *app) checkFile(file, what string) error {
	if file == "" {
		return usageError{errors.New("say where to with -o FILE, or -o - for standard output")}
	}
	if _, tty := terminal(a.out); file == "-" && tty {
		return usageError{fmt.Errorf("%s is not for a terminal; use -o FILE", what)}
	}
	return nil
}

// writeFile writes a new file under its name only when it is complete.
func (a *app) writeFile(file string, write func(io.Writer) error) (err error) {
	if file == "-" {
		return write(a.out)
	}
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := errors.Join(write(f), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
