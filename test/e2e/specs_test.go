package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/test/e2e/results"
)

// TestSpecs runs upstream's own specs, and writes what became of each of them to
// specs.json, which keeps the last result of those that do not run now.
func TestSpecs(t *testing.T) {
	if *focus == "" {
		t.Skip("no -focus says which specs to run")
	}
	passSpecs(t, *focus)
}

// passSpecs runs the specs that a regular expression fits.
func passSpecs(t *testing.T, focus string) {
	t.Helper()
	raw := filepath.Join(*output, "ginkgo.json")
	args := []string{
		"--procs", strconv.Itoa(*procs), "--focus", focus, "--no-color", "--timeout", limit.String(),
		"--output-dir", *output, "--json-report", filepath.Base(raw),
	}
	if *skip != "" {
		args = append(args, "--skip", *skip)
	}
	args = append(args, filepath.Join(*programs, *specs), "--",
		"--provider", "local", "--kubeconfig", node.Kubeconfig, "--kubectl-path", filepath.Join(*programs, "kubectl"),
		"--num-nodes", "1", "--allowed-not-ready-nodes", "0", "--dump-logs-on-failure=false", "--disable-log-dump")
	runErr := runSpecs(t.Context(), args)
	all, err := results.Read(raw)
	if err != nil {
		t.Fatalf("%v (the specs: %v; what they said is in %s)", err, runErr, *output)
	}
	if err := all.Add(filepath.Join(*output, "specs.json")); err != nil {
		t.Error(err)
	}
	ran := 0
	for _, s := range all {
		if s.State != results.Skipped {
			ran++
		}
		t.Logf("%-8s %6.1fs %s", s.State, s.Seconds, s.Name)
		if s.State == results.Failed {
			t.Errorf("%s\n%s", s.Name, s.Why)
		}
	}
	if ran == 0 {
		t.Errorf("-focus %q fits no spec that ran", focus)
	}
	if runErr != nil && !t.Failed() {
		t.Errorf("the specs ended with %v; what they said is in %s", runErr, *output)
	}
}

func runSpecs(ctx context.Context, args []string) error {
	out, err := os.Create(filepath.Join(*output, "specs.log"))
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, filepath.Join(*programs, "ginkgo"), args...)
	// It asks go for the module it is in, which would wait for a network that is not there.
	cmd.Dir = "/"
	cmd.Env, cmd.Stdout, cmd.Stderr = append(node.Environment(), "GOPROXY=off"), out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	return cmd.Run()
}
