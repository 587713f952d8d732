package installer

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/test/images"
	"fairlead.run/test/node"
)

// pause is the image of sandboxes.
var pause string

func TestMain(m *testing.M) { node.Main(m, pushPause) }

func pushPause() error {
	program, err := os.ReadFile(filepath.Join(node.Bin, "fairlead-monitor"))
	if err != nil {
		return fmt.Errorf("make the pause image: %w", err)
	}
	pause, err = node.PushImage("test/pause:1", ocispec.ImageConfig{Entrypoint: []string{"/pause", "pause"}},
		images.Layer{Files: map[string]images.File{"pause": {Body: program, Mode: 0o755}}})
	return err
}
