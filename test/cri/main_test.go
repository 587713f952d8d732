package cri

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"fairlead.run/test/hostprep"
	"fairlead.run/test/images"
)

// What all tests share: the programs, and a registry with the test images.
var (
	bin      string
	registry *images.Registry
	// busybox runs sh and most small tools.
	busybox string
)

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
		fmt.Println("test/cri needs root; every test in it is skipped")
		return 0
	}
	dir, err := os.MkdirTemp("", "fairlead-cri")
	if err != nil {
		return failed("make a folder", err)
	}
	defer os.RemoveAll(dir)
	bin = filepath.Join(dir, "bin")
	if err := build(bin); err != nil {
		return failed("build the programs", err)
	}
	registry = images.NewRegistry()
	defer registry.Close()
	if err := push(); err != nil {
		return failed("make the test images", err)
	}
	return m.Run()
}

func failed(what string, err error) int {
	fmt.Fprintf(os.Stderr, "test/cri: %s: %v\n", what, err)
	return 1
}

// build makes the daemon watch for races where the tests do. The monitor is
// always the static program that users run, because it is the pause program of
// pods too, alone in an empty root file system.
func build(to string) error {
	if err := goBuild(to, "fairlead", raceFlags, cgo); err != nil {
		return err
	}
	return goBuild(to, "fairlead-monitor", nil, "0")
}

func goBuild(to, program string, flags []string, cgo string) error {
	args := append([]string{"build", "-tags", "grpcnotrace", "-ldflags", "-s -w"}, flags...)
	cmd := exec.Command("go", append(args, "-o", to+"/", "../../cmd/"+program)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return nil
}
