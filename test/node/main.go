package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"fairlead.run/test/hostprep"
	"fairlead.run/test/images"
)

// What all tests share: the programs, and a registry with the test images.
var (
	Bin      string // the folder of fairlead and fairlead-monitor
	Registry *images.Registry
	// Busybox is an image that runs sh and most small tools.
	Busybox string
)

// Main is a whole TestMain. It builds the programs, prepares the host for crun,
// and runs the tests in network and mount namespaces of their own. Without root
// it says so and skips them all. Each prepare runs before the tests.
func Main(m *testing.M, prepare ...func() error) {
	hostprep.BecomeSystemd() // if UnderSystemd has asked for it
	// The cgroups are the host's, everything else is gone with the tests.
	release, err := hostprep.Cgroups()
	if err != nil {
		os.Exit(failed("prepare cgroups for crun", err))
	}
	code := hostprep.Isolated(func() int { return run(m, prepare) })
	if err := release(); err != nil {
		code = failed("put the cgroups back", err)
	}
	os.Exit(code)
}

func run(m *testing.M, prepare []func() error) int {
	if os.Geteuid() != 0 {
		fmt.Println("these tests start pods, which needs root; every one of them is skipped")
		return 0
	}
	dir, err := os.MkdirTemp("", "fairlead-test")
	if err != nil {
		return failed("make a folder", err)
	}
	defer os.RemoveAll(dir)
	Bin = filepath.Join(dir, "bin")
	if err := build(Bin); err != nil {
		return failed("build the programs", err)
	}
	Registry = images.NewRegistry()
	defer Registry.Close()
	if err := push(); err != nil {
		return failed("make the test images", err)
	}
	for _, p := range prepare {
		if err := p(); err != nil {
			return failed("prepare the tests", err)
		}
	}
	return m.Run()
}

func failed(what string, err error) int {
	fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
	return 1
}

// built is set in the environment of tests that have no compiler, or a slow one:
// the folder of the programs.
const built = "FAIRLEAD_TEST_PROGRAMS"

// build makes the daemon watch for races where the tests do. The monitor is
// always the static program that users run, because it is the pause program of
// pods too, alone in an empty root file system.
func build(to string) error {
	if from := os.Getenv(built); from != "" {
		return os.CopyFS(to, os.DirFS(from))
	}
	if err := goBuild(to, "fairlead", raceFlags, cgo); err != nil {
		return err
	}
	return goBuild(to, "fairlead-monitor", nil, "0")
}

// plain is the folder of a daemon without the race detector, built when the
// first test asks for it.
var plain = sync.OnceValues(func() (string, error) {
	if raceFlags == nil {
		return Bin, nil
	}
	dir := filepath.Join(filepath.Dir(Bin), "plain")
	if err := goBuild(dir, "fairlead", nil, "0"); err != nil {
		return "", err
	}
	return dir, os.Symlink(filepath.Join(Bin, "fairlead-monitor"), filepath.Join(dir, "fairlead-monitor"))
})

func goBuild(to, program string, flags []string, cgo string) error {
	args := append([]string{"build", "-tags", "grpcnotrace nri_no_wasm", "-ldflags", "-s -w"}, flags...)
	cmd := exec.Command("go", append(args, "-o", to+"/", "fairlead.run/cmd/"+program)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return nil
}

// push makes the image that most tests use.
func push() error {
	var err error
	Busybox, err = PushImage("test/busybox:1", ocispec.ImageConfig{
		Cmd: []string{"sh"}, Env: []string{"PATH=/bin:/usr/bin"},
	})
	return err
}

// busybox is packed once: the race detector makes that slow.
var busybox = sync.OnceValues(func() (images.Layer, error) {
	l, err := images.Busybox()
	if err != nil {
		return images.Layer{}, err
	}
	return l.Packed()
})

// PushImage gives an image on top of busybox to the registry.
func PushImage(name string, config ocispec.ImageConfig, layers ...images.Layer) (string, error) {
	base, err := busybox()
	if err != nil {
		return "", err
	}
	img, err := images.Build(images.Spec{Layers: append([]images.Layer{base}, layers...), Config: config})
	if err != nil {
		return "", err
	}
	return Registry.Push(name, img), nil
}
