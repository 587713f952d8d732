package containerd

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
	"fairlead.run/internal/installer/process"
)

// dumpTimeout is how long containerd may take to read its configuration.
const dumpTimeout = 30 * time.Second

// Dump has containerd's own program read the configuration: one of the node, whose root
// directory is seen at root. It returns a warning where it cannot be run from here; ""
// is a program that is not seen.
func (c *Config) Dump(ctx context.Context, root, program string) (warning string, err error) {
	if len(c.Dangling) > 0 {
		return "", fault.New(payload.UnsupportedNode, "containerd's configuration imports %s, which is not there", c.Dangling[0])
	}
	if program == "" {
		return "containerd's program is not seen from here, so that it did not read the configuration before the restart", nil
	}
	ctx, cancel := context.WithTimeout(ctx, dumpTimeout)
	defer cancel()
	cmd := process.Command(ctx, root, program, "--config", c.Main, "config", "dump")
	var said strings.Builder
	cmd.Stderr = &said
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", nil
	case errors.As(err, &exit):
		return "", fault.New(payload.InternalError, "containerd does not take its configuration: %s", lastLine(said.String()))
	}
	return fmt.Sprintf("containerd could not be asked to read its configuration: %v", err), nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
