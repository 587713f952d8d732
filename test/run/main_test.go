package run

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/test/hostprep"
	"fairlead.run/test/images"
)

// What all tests share: the programs, and an archive with a busybox image.
var bin, archive string

// image is the name of the image in the archive.
const image = "localhost/busybox:test"

func TestMain(m *testing.M) {
	// The cgroups are the host's, everything else is gone with the tests.
	release, err := hostprep.Cgroups()
	if err != nil {
		os.Exit(failed("prepare cgroups for crun", err))
	}
	code := hostprep.Isolated(func() int { return run(m) })
	if err := release(); err != nil {
		code = failed("put the cgroups back", err)
	}
	os.Exit(code)
}

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Println("test/run needs root; every test in it is skipped")
		return 0
	}
	dir, err := os.MkdirTemp("", "fairlead-run")
	if err != nil {
		return failed("make a folder", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	archive = filepath.Join(dir, "busybox.tar")
	if bin = os.Getenv("FAIRLEAD_TEST_PROGRAMS"); bin == "" { // in a guest they are there
		bin = filepath.Join(dir, "bin")
		if err := build(); err != nil {
			return failed("build the programs", err)
		}
	}
	if err := pack(); err != nil {
		return failed("make the image", err)
	}
	return m.Run()
}

func build() error {
	cmd := exec.Command("go", "build", "-tags", "grpcnotrace nri_no_wasm", "-o", bin+"/", "../../cmd/...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func failed(what string, err error) int {
	fmt.Fprintf(os.Stderr, "test/run: %s: %v\n", what, err)
	return 1
}

func pack() error {
	layer, err := images.Busybox()
	if err != nil {
		return err
	}
	img, err := images.Build(images.Spec{Layers: []images.Layer{layer}, Config: ocispec.ImageConfig{Env: []string{"PATH=/bin"}}})
	if err != nil {
		return err
	}
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	if err := images.WriteOCI(f, images.Named{Image: img, Names: []string{image}}); err != nil {
		return err
	}
	return f.Close()
}
