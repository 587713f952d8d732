// Command packimage packs one static program into an image and writes it as an
// OCI archive, without a registry and without a container engine.
//
//	packimage NAME PROGRAM ARCHIVE
package main

import (
	"fmt"
	"os"
	"path/filepath"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/test/images"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: packimage NAME PROGRAM ARCHIVE")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "packimage:", err)
		os.Exit(1)
	}
}

func pack(name, program, archive string) error {
	body, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	img, err := images.Build(images.Spec{
		Layers: []images.Layer{{Files: map[string]images.File{filepath.Base(program): {Body: body, Mode: 0o755}}}},
		Config: ocispec.ImageConfig{Entrypoint: []string{"/" + filepath.Base(program)}},
	})
	if err != nil {
		return err
	}
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	if err := images.WriteOCI(f, images.Named{Image: img, Names: []string{name}}); err != nil {
		return err
	}
	return f.Close()
}
