package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

type podSecurity = runtimeapi.LinuxSandboxSecurityContext

func securePod(f func(*podSecurity)) func(*runtimeapi.PodSandboxConfig) {
	return func(p *runtimeapi.PodSandboxConfig) { f(p.Linux.SecurityContext) }
}

func localProfileAt(path string) *runtimeapi.SecurityProfile {
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: path}
}

// podProcess is what the kernel says of the process that holds a pod together,
// which a container sees as its process 1.
func podProcess(t *testing.T, n *node.Node, h string, change func(*podSecurity)) (fields string, s *node.Sandbox) {
	t.Helper()
	s = n.RunPod(h, node.SharedPID, securePod(change))
	cfg := node.Script("sleep 1000")
	cfg.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
	c := s.Start(cfg)
	out := c.Exec("sh", "-c", `while read -r key a b c d; do case $key in Uid:|Gid:|Groups:|Seccomp:) echo "$key $a $b $c $d";; esac; done </proc/1/status`)
	return strings.Join(strings.Fields(out), " "), s
}

// The process of a pod is who the pod says, and filtered as the pod says.
func TestPodSecurity(t *testing.T) {
	profile := filepath.Join(t.TempDir(), "profile.json")
	if err := os.WriteFile(profile, []byte(`{"defaultAction":"SCMP_ACT_LOG","syscalls":[{"names":["acct"],"action":"SCMP_ACT_ERRNO"}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		for name, tt := range map[string]struct {
			change func(*podSecurity)
			want   string
			filter string // in the bundle
		}{
			"nothing said": {func(*podSecurity) {}, "Uid: 65535 65535 65535 65535 Gid: 65535 65535 65535 65535 Groups: 65535 Seccomp: 2", "SCMP_ACT_ERRNO"},
			"privileged":   {func(s *podSecurity) { s.Privileged = true }, "Uid: 65535 65535 65535 65535 Gid: 65535 65535 65535 65535 Groups: 65535 Seccomp: 2", "SCMP_ACT_ERRNO"},
			"somebody": {func(s *podSecurity) {
				s.RunAsUser, s.RunAsGroup = &runtimeapi.Int64Value{Value: 1234}, &runtimeapi.Int64Value{Value: 2345}
				s.SupplementalGroups = []int64{3456}
			}, "Uid: 1234 1234 1234 1234 Gid: 2345 2345 2345 2345 Groups: 2345 3456 Seccomp: 2", "SCMP_ACT_ERRNO"},
			"unfiltered": {func(s *podSecurity) {
				s.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
			}, "Uid: 65535 65535 65535 65535 Gid: 65535 65535 65535 65535 Groups: 65535 Seccomp: 0", ""},
			"a profile of the node's": {
				func(s *podSecurity) { s.Seccomp = localProfileAt(profile) },
				"Uid: 65535 65535 65535 65535 Gid: 65535 65535 65535 65535 Groups: 65535 Seccomp: 2", "SCMP_ACT_LOG",
			},
		} {
			got, s := podProcess(t, n, h, tt.change)
			if got != tt.want {
				t.Errorf("%s: %s, want %s", name, got, tt.want)
			}
			bundle, err := os.ReadFile(filepath.Join(n.State, "containers", s.ID, "config.json"))
			if err != nil {
				t.Fatal(err)
			}
			if action := fmt.Sprintf(`"defaultAction":%q`, tt.filter); strings.Contains(string(bundle), action) != (tt.filter != "") {
				t.Errorf("%s: the bundle has not the filter with %s", name, action)
			}
			s.Remove()
		}
	})
}

// What a pod's process cannot have is refused by field, also in a pod that has none.
func TestPodSecurityRefused(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.json")
	if err := os.WriteFile(broken, []byte(`{"syscalls":[]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	node.UnderAll(t, func(t *testing.T, n *node.Node, h string) {
		for _, share := range []func(*runtimeapi.PodSandboxConfig){node.SharedPID, func(*runtimeapi.PodSandboxConfig) {}} {
			for what, tt := range map[string]struct {
				change func(*podSecurity)
				words  string
			}{
				"no profile": {func(s *podSecurity) { s.Seccomp = localProfileAt("/nonexistent/profile.json") }, "seccomp.localhost_ref /nonexistent/profile.json: the node has no such file"},
				//lint:ignore SA1019 old callers send only this
				"the old field":    {func(s *podSecurity) { s.SeccompProfilePath = "localhost//nonexistent/old.json" }, "/nonexistent/old.json"},
				"no path":          {func(s *podSecurity) { s.Seccomp = localProfileAt("profile.json") }, "seccomp.localhost_ref"},
				"a broken profile": {func(s *podSecurity) { s.Seccomp = localProfileAt(broken) }, "defaultAction"},
				"no such AppArmor": {func(s *podSecurity) { s.Apparmor = localProfileAt("nope") }, "linux.security_context.apparmor"},
			} {
				_, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: n.PodConfig(share, securePod(tt.change)), RuntimeHandler: h})
				if c := status.Code(err); c != codes.InvalidArgument && c != codes.Unimplemented || !strings.Contains(err.Error(), tt.words) {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		if left := n.OfPods(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// TestAppArmorOfPod: the process of a pod is confined as the pod says.
func TestAppArmorOfPod(t *testing.T) {
	needAppArmor(t)
	appArmorParser(t, "-Kr", localProfile)
	defer appArmorParser(t, "-R", localProfile)
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		for want, profile := range map[string]*runtimeapi.SecurityProfile{
			"fairlead-default (enforce)": nil,
			"fairlead-test (enforce)":    localProfileAt("fairlead-test"),
			"unconfined":                 {ProfileType: runtimeapi.SecurityProfile_Unconfined},
		} {
			s := n.RunPod(h, node.SharedPID, securePod(func(s *podSecurity) { s.Apparmor = profile }))
			cfg := node.Script("sleep 1000")
			cfg.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
			cfg.Linux.SecurityContext.Apparmor = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
			must(t, s.Start(cfg).Exec("cat", "/proc/1/attr/current"), want)
			s.Remove()
		}
	})
}
