package cri

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// Programs do inside what they do elsewhere: start threads under the default
// filter, and become the owner of a file with the set-user-ID bit, unless that is
// forbidden.
func TestGVisorRunsPrograms(t *testing.T) {
	n := gvisor(t)
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc")
	}
	shared := t.TempDir()
	program := filepath.Join(shared, "thread")
	if out, err := exec.CommandContext(t.Context(), "gcc", "-static", "-pthread", "-o", program, "testdata/thread.c").CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	if err := os.Chmod(program, os.ModeSetuid|0o755); err != nil {
		t.Fatal(err)
	}
	s := n.RunPod("runsc")
	for _, tt := range []struct {
		noNewPrivileges bool
		want            string
	}{
		{false, "thread: Success, user: 0\n"},
		{true, "thread: Success, user: 1000\n"},
	} {
		c := node.Script("exec /shared/thread")
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{HostPath: shared, ContainerPath: "/shared"})
		security := c.Linux.SecurityContext
		security.RunAsUser, security.NoNewPrivs = &runtimeapi.Int64Value{Value: 1000}, tt.noNewPrivileges
		security.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
		started := s.Start(c)
		if st := started.Wait(); st.ExitCode != 0 || started.Log() != tt.want {
			t.Errorf("no_new_privs %t: code %d, it printed %q and not %q", tt.noNewPrivileges, st.ExitCode, started.Log(), tt.want)
		}
		started.Remove()
	}
	s.Remove()
}
