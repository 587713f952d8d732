package main

import (
	"fmt"
	"os"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/test/bench/peer"
	"fairlead.run/test/images"
)

// The names of the images, with the registry that each daemon has for itself.
const (
	workloadImage = peer.RegistryAddress + "/bench/idle:1"
	pauseImage    = peer.RegistryAddress + "/bench/pause:1"
)

// serveWorkload puts the workload and containerd's pause program into the
// registry. The two are the same program; only the names tell them apart.
func serveWorkload(r *images.Registry, idle string) error {
	program, err := os.ReadFile(idle)
	if err != nil {
		return fmt.Errorf("read the workload; build it with \"make bench\": %w", err)
	}
	busybox, err := images.Busybox()
	if err != nil {
		return err
	}
	work, err := images.Build(images.Spec{
		Layers: []images.Layer{busybox, {Files: map[string]images.File{"bin/idle": {Body: program, Mode: 0o755}}}},
		Config: ocispec.ImageConfig{Entrypoint: []string{"/bin/idle"}, Env: []string{"PATH=/bin"}},
	})
	if err != nil {
		return fmt.Errorf("build the image of the workload: %w", err)
	}
	pause, err := images.Build(images.Spec{
		Layers: []images.Layer{{Files: map[string]images.File{"pause": {Body: program, Mode: 0o755}}}},
		Config: ocispec.ImageConfig{Entrypoint: []string{"/pause"}},
	})
	if err != nil {
		return fmt.Errorf("build the pause image: %w", err)
	}
	r.Push("bench/idle:1", work)
	r.Push("bench/pause:1", pause)
	return nil
}
