package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// fromKubeadm is what kubeadm 1.36 writes for a kubelet, and then what a platform team may
// have added.
const fromKubeadm = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 0s, enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization:
  mode: Webhook
  webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}
cgroupDriver: systemd
clusterDNS: [10.96.0.10, "fd00::10"]
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
imageMinimumGCAge: 0s
logging:
  flushFrequency: 0
  options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}
  verbosity: 0
memorySwap: {}
rotateCertificates: true
staticPodPath: /etc/kubernetes/manifests
syncFrequency: 0s
`

const added = `maxPods: 250
podPidsLimit: 4096
systemReserved: {memory: 1Gi, cpu: 500m}
evictionHard: {nodefs.available: 10%, memory.available: 500Mi}
evictionSoft: {memory.available: 1Gi}
evictionSoftGracePeriod: {memory.available: 1m30s}
registerWithTaints:
- {key: a, value: b, effect: NoSchedule}
- {key: c, effect: NoExecute}
memorySwap: {swapBehavior: LimitedSwap}
containerLogMaxSize: 50Mi
imageMaximumGCAge: 72h
serializeImagePulls: false
seccompDefault: false
serverTLSBootstrap: true
enableSystemLogHandler: true
enableSystemLogQuery: true
enableDebuggingHandlers: false
shutdownGracePeriodByPodPriority: [{priority: 100000, shutdownGracePeriodSeconds: 10}]
tlsMinVersion: VersionTLS13
tlsCipherSuites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]
containerLogMaxWorkers: 3
nodeStatusMaxImages: 0
registryPullQPS: 7
registryBurst: 20
nodeStatusReportFrequency: 1m0s
nodeLeaseDurationSeconds: 60
containerLogMonitorInterval: 30s
cpuManagerPolicy: static
failSwapOn: false
logging: {verbosity: 2}
`

// parsed runs a command with a file and flags.
func parsed(t *testing.T, text string, args ...string) (*nodeFlags, *cobra.Command, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &nodeFlags{}
	cmd := &cobra.Command{RunE: func(cmd *cobra.Command, _ []string) error { return f.file.read(cmd.Flags()) }, SilenceErrors: true, SilenceUsage: true}
	f.add(cmd)
	cmd.SetArgs(append(args, "--kubelet-config", path))
	return f, cmd, cmd.Execute()
}

func TestKubeletConfig(t *testing.T) {
	for name, tt := range map[string]struct {
		text    string
		args    []string
		flags   map[string]string
		ignored []string
	}{
		"kubeadm": {fromKubeadm, nil, map[string]string{
			"anonymous-auth": "false", "client-ca-file": "/etc/kubernetes/pki/ca.crt", "always-allow": "false", "cgroup-driver": "systemd",
			"cluster-dns": "[10.96.0.10,fd00::10]", "pod-manifest-path": "/etc/kubernetes/manifests", "healthz-port": "10248",
			"eviction-pressure-transition-period": "5m0s", "minimum-image-ttl-duration": "2m0s", "container-runtime-endpoint": "", "swap-behavior": "NoSwap",
		}, nil},
		"more": {strings.Replace(strings.Replace(fromKubeadm, "memorySwap: {}\n", "", 1), fromKubeadm[strings.Index(fromKubeadm, "logging:"):strings.Index(fromKubeadm, "memorySwap")], "", 1) + added, nil, map[string]string{
			"max-pods": "250", "pod-max-pids": "4096", "system-reserved": "[cpu=500m,memory=1Gi]", "eviction-hard": "memory.available<500Mi,nodefs.available<10%",
			"eviction-soft": "memory.available<1Gi", "eviction-soft-grace-period": "memory.available=1m30s", "register-with-taints": "[a=b:NoSchedule,c=:NoExecute]",
			"swap-behavior": "LimitedSwap", "container-log-max-size": "50Mi", "container-log-max-files": "5", "container-log-max-workers": "3", "node-status-max-images": "0", "registry-qps": "7", "registry-burst": "20", "node-status-report-frequency": "1m0s", "node-lease-duration": "1m0s", "container-log-monitor-interval": "30s", "image-maximum-gc-age": "72h0m0s",
			"seccomp-default": "false", "rotate-server-certificates": "true", "enable-system-log-handler": "true", "enable-debugging-handlers": "false", "enable-system-log-query": "true", "shutdown-grace-period-by-pod-priority": "[100000=10s]",
			"tls-min-version": "VersionTLS13", "tls-cipher-suites": "[TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]",
		}, []string{"cpuManagerPolicy", "failSwapOn", "logging.verbosity"}},
		"flags win": {fromKubeadm + "maxPods: 250\n", []string{"--max-pods", "30", "--cluster-dns", "10.0.0.1"}, map[string]string{"max-pods": "30", "cluster-dns": "[10.0.0.1]", "cgroup-driver": "systemd"}, nil},
		"pauses":    {strings.Replace(fromKubeadm, "crashLoopBackOff: {}", "crashLoopBackOff: {maxContainerRestartPeriod: 20s}", 1), nil, map[string]string{"max-container-restart-period": "20s"}, nil},
		"evictions beside": {"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmergeDefaultEvictionSettings: true\nevictionHard: {memory.available: 500Mi, pid.available: 5%}\n", nil, map[string]string{
			"eviction-hard": "imagefs.available<15%,imagefs.inodesFree<5%,memory.available<500Mi,nodefs.available<10%,nodefs.inodesFree<5%,pid.available<5%",
		}, nil},
		"evictions instead": {"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmergeDefaultEvictionSettings: false\nevictionHard: {memory.available: 500Mi}\n", nil, map[string]string{
			"eviction-hard": "memory.available<500Mi",
		}, nil},
		"no evictions":       {"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nevictionHard: {}\n", nil, map[string]string{"eviction-hard": ""}, nil},
		"evictions by null":  {"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nevictionHard: null\n", nil, map[string]string{"eviction-hard": hardByDefault()}, nil},
		"evictions of merge": {"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmergeDefaultEvictionSettings: true\nevictionHard: {}\n", nil, map[string]string{"eviction-hard": hardByDefault()}, nil},
		"no health":          {"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nhealthzPort: 0\noomScoreAdj: 0\n", nil, map[string]string{"healthz-port": "0", "oom-score-adj": "0"}, nil},
		"spared":             {"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n", nil, map[string]string{"oom-score-adj": "-999"}, nil},
	} {
		f, cmd, err := parsed(t, tt.text, tt.args...)
		if err != nil || !slices.Equal(f.file.ignored, tt.ignored) {
			t.Errorf("%s: %v, ignored %v", name, err, f.file.ignored)
		}
		for flag, want := range tt.flags {
			got := cmd.Flags().Lookup(flag).Value.String()
			if flag == "system-reserved" && got == "[memory=1Gi,cpu=500m]" { // in any order
				got = want
			}
			if got != want {
				t.Errorf("%s: --%s is %s, want %s", name, flag, got, want)
			}
		}
	}
}

// TestTellable has the values of all flags, those of the file too, and no secret.
func TestTellable(t *testing.T) {
	_, cmd, err := parsed(t, fromKubeadm, "--manifest-url", "http://x", "--manifest-url-header", "Authorization: secret")
	if err != nil {
		t.Fatal(err)
	}
	got := tellable(cmd.Flags())
	if got["manifest-url"] != "http://x" || got["cgroup-driver"] != "systemd" || got["max-pods"] != "110" || strings.Contains(fmt.Sprint(got), "secret") {
		t.Errorf("%v", got)
	}
}

func TestKubeletConfigErrors(t *testing.T) {
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for text, want := range map[string]string{
		"kind: Pod\napiVersion: v1\n":                          "it is a Pod of v1, and not a KubeletConfiguration",
		head + "nodeLeaseDurationSeconds: 1m\n":                "nodeLeaseDurationSeconds: 1m is no number of seconds",
		head + "maxPods: many\n":                               "maxPods: ",
		head + "maxPods: 1\nmaxPods: 2\n":                      `"maxPods" already set`,
		head + "rotateCertificates: false\n":                   "rotateCertificates: false is not possible with this node",
		head + "authentication: {webhook: {enabled: false}}\n": "authentication.webhook.enabled: false is not possible",
		head + "authorization: {mode: Sometimes}\n":            "authorization.mode: Sometimes is neither",
		head + "evictionHard: 5\n":                             "evictionHard: 5 is no object",
		head + "shutdownGracePeriodByPodPriority: 5\n":         "shutdownGracePeriodByPodPriority: 5 is no list of periods",
		head + "registerWithTaints: [a]\n":                     "registerWithTaints: a is no taint",
	} {
		if _, _, err := parsed(t, text); !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	f := kubeletFile{path: "/nowhere"}
	if err := f.read((&cobra.Command{}).Flags()); !errors.As(err, new(usageError)) {
		t.Errorf("got %v", err)
	}
}

// TestKubeletFieldsHaveFlags holds the table against the flags.
func TestKubeletFieldsHaveFlags(t *testing.T) {
	cmd := &cobra.Command{}
	(&nodeFlags{}).add(cmd)
	for field, has := range kubeletFields {
		if has.flag != "" && cmd.Flags().Lookup(has.flag) == nil {
			t.Errorf("%s: there is no flag --%s", field, has.flag)
		}
	}
}
