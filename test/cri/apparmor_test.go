package cri

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// localProfile is what an administrator might load: it lets a process do
// everything but change one folder.
const localProfile = `profile fairlead-test flags=(attach_disconnected, mediate_deleted) {
  capability,
  file,
  mount,
  umount,
  network,
  signal,
  ptrace,
  deny /tmp/kept/** w,
}
`

// confinement is what the kernel holds a process to.
const confinement = "cat /proc/self/attr/current"

// kernelHasAppArmor says whether the kernel confines processes, and shows it.
func kernelHasAppArmor() bool {
	enabled, _ := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	_, err := os.Stat("/sys/kernel/security/apparmor/profiles")
	return strings.TrimSpace(string(enabled)) == "Y" && err == nil
}

// needAppArmor skips the test where no profile can be loaded.
func needAppArmor(t *testing.T) {
	t.Helper()
	if !kernelHasAppArmor() {
		t.Skip("needs a kernel with AppArmor, and securityfs mounted")
	}
	if _, err := exec.LookPath("apparmor_parser"); err != nil {
		t.Skip("needs apparmor_parser: nothing else compiles a profile")
	}
}

func appArmorParser(t *testing.T, flag, profile string) {
	t.Helper()
	cmd := exec.Command("apparmor_parser", flag)
	cmd.Stdin = strings.NewReader(profile)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("apparmor_parser %s: %v: %s", flag, err, out)
	}
}

func appArmor(p runtimeapi.SecurityProfile_ProfileType, ref string) func(*containerConfig) {
	return secure(func(s *runtimeapi.LinuxContainerSecurityContext) {
		s.Apparmor = &runtimeapi.SecurityProfile{ProfileType: p, LocalhostRef: ref}
		s.Capabilities = &runtimeapi.Capability{AddCapabilities: []string{"SYS_ADMIN"}}
	})
}

func TestAppArmorWhereThereIsNone(t *testing.T) {
	if kernelHasAppArmor() {
		t.Skip("this test is for kernels without AppArmor")
	}
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		must(t, n.Inside(h, "echo ok", appArmor(runtimeapi.SecurityProfile_RuntimeDefault, "")), "ok")
		s := n.RunPod(h)
		cfg := node.Script("true")
		appArmor(runtimeapi.SecurityProfile_Localhost, "mine")(cfg)
		if _, err := s.TryCreate(cfg); err == nil || !strings.Contains(strings.ToLower(err.Error()), "apparmor") {
			t.Errorf("a profile that cannot be applied must be refused: %v", err)
		}
	})
}

// TestAppArmorWithoutParser: a node that cannot load the default profile runs
// pods without it, and says so.
func TestAppArmorWithoutParser(t *testing.T) {
	if !kernelHasAppArmor() {
		t.Skip("needs a kernel with AppArmor, and securityfs mounted")
	}
	n := node.Start(t, "", node.WithEnv("PATH="+pathWithout(t, "apparmor_parser")))
	n.Pull(node.Busybox)
	for _, h := range node.Handlers {
		must(t, n.Inside(h, confinement, nil), "unconfined")
	}
	for _, want := range []string{"load the AppArmor profile fairlead-default", "the process is not confined"} {
		if !strings.Contains(n.DaemonLog(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}

// pathWithout is a PATH with all programs of the tests' own but one.
func pathWithout(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	for _, from := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(from) // one that is not there has none
		for _, e := range entries {
			if e.Name() == program {
				continue
			}
			err := os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name()))
			if err != nil && !errors.Is(err, os.ErrExist) {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func TestAppArmorDefault(t *testing.T) {
	needAppArmor(t)
	const (
		confined = "fairlead-default (enforce)"
		mount    = "; mkdir /m; mount -t tmpfs none /m 2>/dev/null && echo mounted || echo refused"
	)
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		must(t, n.Inside(h, confinement+mount, appArmor(runtimeapi.SecurityProfile_RuntimeDefault, "")), confined+"\nrefused")
		must(t, n.Inside(h, confinement, nil), confined)
		must(t, n.Inside(h, confinement+mount, appArmor(runtimeapi.SecurityProfile_Unconfined, "")), "unconfined\nmounted")
		must(t, n.Inside(h, confinement, secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = true }), privilegedPod), "unconfined")
		// Processes under it may signal and trace each other.
		must(t, n.Inside(h, "exec 2>/dev/null; sleep 1000 & readlink /proc/$!/ns/net >/dev/null && kill $! && wait $!; echo $?", nil), "143")
	})
}

// TestAppArmorOfCommands: what is executed in a container is confined as it is,
// and a confined container can be told to end.
func TestAppArmorOfCommands(t *testing.T) {
	needAppArmor(t)
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		c := s.Start(node.Script("trap 'exit 7' TERM; while :; do sleep 0.1; done"))
		must(t, c.Exec("sh", "-c", confinement), "fairlead-default (enforce)")
		must(t, c.Exec("sh", "-c", "kill -0 1 && echo reached"), "reached")
		c.Stop(30)
		if st := c.Wait(); st.ExitCode != 7 {
			t.Errorf("the container ended with %d (%s), not by what SIGTERM makes it do", st.ExitCode, st.Reason)
		}
		s.Remove()
	})
}

func TestAppArmorLocalhost(t *testing.T) {
	needAppArmor(t)
	appArmorParser(t, "-Kr", localProfile)
	t.Cleanup(func() { appArmorParser(t, "-R", localProfile) })
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		must(t, n.Inside(h, confinement+"; mkdir -p /tmp/kept /tmp/other; touch /tmp/other/x && echo wrote; touch /tmp/kept/x 2>/dev/null || echo kept",
			appArmor(runtimeapi.SecurityProfile_Localhost, "fairlead-test")), "fairlead-test (enforce)\nwrote\nkept")
		//lint:ignore SA1019 old callers send only this
		old := secure(func(s *runtimeapi.LinuxContainerSecurityContext) { s.ApparmorProfile = "localhost/fairlead-test" })
		must(t, n.Inside(h, confinement, old), "fairlead-test (enforce)")
		s := n.RunPod(h)
		cfg := node.Script("true")
		appArmor(runtimeapi.SecurityProfile_Localhost, "fairlead-no-such")(cfg)
		if _, err := s.TryCreate(cfg); err == nil || !strings.Contains(err.Error(), "fairlead-no-such is not loaded") {
			t.Errorf("missing profile: %v", err)
		}
		s.Remove()
	})
}
