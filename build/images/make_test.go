package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What a machine has set for Go, or has newer than go.mod says, is nothing that programs in
// images are made by.
func TestMakeSettlesWhatProgramsAreMadeBy(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile") // so that a change of it is seen
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	release := regexp.MustCompile(`(?m)^go (\S+)$`).FindSubmatch(module)
	if len(makefile) == 0 || release == nil {
		t.Fatal("no Makefile, or no release in go.mod")
	}
	dir := t.TempDir()
	stub := "#!/bin/sh\nenv >>" + dir + "/env\necho \"$@\" >>" + dir + "/args\n"
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(stub), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "make", "-C", "../..", "IMAGES="+dir, "IMAGES_ARCHITECTURES=amd64", dir+"/programs")
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "GOTOOLCHAIN=local", "GOAMD64=v3", "GOARM64=v9.0", "GOEXPERIMENT=arenas", "GOFIPS140=latest")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	env, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"GOTOOLCHAIN=go" + string(release[1]), "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off"} {
		if !strings.Contains("\n"+string(env), "\n"+want+"\n") {
			t.Errorf("programs are not made by %s", want)
		}
	}
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil {
		t.Fatal(err)
	}
	// How many digits git takes by itself depends on how much of the history is there.
	version := regexp.MustCompile(`main\.version=(\S+)`).FindSubmatch(args)
	if version == nil || !regexp.MustCompile(`^(unknown|(.+-g)?[0-9a-f]{12}(-dirty)?|v[0-9.]+[^-]*(-dirty)?)$`).Match(version[1]) {
		t.Errorf("the version is not that of each clone: %s", args)
	}
}
