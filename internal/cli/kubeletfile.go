package cli

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"fairlead.run/internal/node/eviction"
)

// kubeletFile is the configuration file of a kubelet. What it says holds as if the flags
// said it, which win. It is what a node has that a kubelet was on before.
type kubeletFile struct {
	path    string
	ignored []string // fields that say something, and are not honoured
}

// What a kubelet calls such a file.
const (
	kubeletKind    = "KubeletConfiguration"
	kubeletVersion = "kubelet.config.k8s.io/v1beta1"
)

// kubeletFields are the fields that are honoured, each with its flag, and how its value is
// written there; nil is as it is.
var kubeletFields = map[string]struct {
	flag string
	as   func(any) (string, error)
}{
	"address": {"address", nil}, "port": {"port", nil}, "healthzBindAddress": {"healthz-bind-address", nil}, "healthzPort": {"healthz-port", nil},
	"tlsCertFile": {"tls-cert-file", nil}, "tlsPrivateKeyFile": {"tls-private-key-file", nil}, "serverTLSBootstrap": {"rotate-server-certificates", nil},
	"authentication.x509.clientCAFile": {"client-ca-file", nil}, "authentication.anonymous.enabled": {"anonymous-auth", nil},
	"authentication.webhook.enabled": {"", only("true")}, "authorization.mode": {"always-allow", alwaysAllow}, "rotateCertificates": {"", only("true")},
	"enableDebuggingHandlers": {"enable-debugging-handlers", nil}, "enableProfilingHandler": {"enable-profiling", nil}, "enableSystemLogHandler": {"enable-system-log-handler", nil},
	"enableSystemLogQuery": {"enable-system-log-query", nil},
	"tlsMinVersion":        {"tls-min-version", nil}, "tlsCipherSuites": {"tls-cipher-suites", nil},
	"staticPodPath": {"pod-manifest-path", nil}, "staticPodURL": {"manifest-url", nil}, "httpCheckFrequency": {"http-check-frequency", nil},
	"clusterDNS": {"cluster-dns", nil}, "clusterDomain": {"cluster-domain", nil}, "resolvConf": {"resolv-conf", nil}, "podLogsDir": {"pod-logs-dir", nil},
	"containerRuntimeEndpoint": {"container-runtime-endpoint", nil}, "imageServiceEndpoint": {"image-service-endpoint", nil},
	"providerID": {"provider-id", nil}, "registerWithTaints": {"register-with-taints", taints},
	"nodeStatusMaxImages": {"node-status-max-images", nil}, "nodeStatusReportFrequency": {"node-status-report-frequency", nil}, "nodeLeaseDurationSeconds": {"node-lease-duration", seconds},
	"crashLoopBackOff.maxContainerRestartPeriod": {"max-container-restart-period", nil}, "oomScoreAdj": {"oom-score-adj", nil},
	"maxPods": {"max-pods", nil}, "podsPerCore": {"pods-per-core", nil}, "podPidsLimit": {"pod-max-pids", nil},
	"systemReserved": {"system-reserved", nil}, "kubeReserved": {"kube-reserved", nil},
	"cgroupsPerQOS": {"cgroups-per-qos", nil}, "cgroupRoot": {"cgroup-root", nil}, "cgroupDriver": {"cgroup-driver", nil}, "cpuCFSQuota": {"cpu-cfs-quota", nil},
	"memorySwap.swapBehavior": {"swap-behavior", nil}, "seccompDefault": {"seccomp-default", nil}, "allowedUnsafeSysctls": {"allowed-unsafe-sysctls", nil},
	"evictionHard": {"eviction-hard", thresholds}, "evictionSoft": {"eviction-soft", thresholds}, "evictionSoftGracePeriod": {"eviction-soft-grace-period", nil},
	"evictionMinimumReclaim": {"eviction-minimum-reclaim", nil}, "evictionMaxPodGracePeriod": {"eviction-max-pod-grace-period", nil},
	"evictionPressureTransitionPeriod": {"eviction-pressure-transition-period", nil},
	"shutdownGracePeriod":              {"shutdown-grace-period", nil}, "shutdownGracePeriodCriticalPods": {"shutdown-grace-period-critical-pods", nil},
	"shutdownGracePeriodByPodPriority": {byPriorityFlag, priorities},
	"serializeImagePulls":              {"serialize-image-pulls", nil}, "maxParallelImagePulls": {"max-parallel-image-pulls", nil},
	"imagePullCredentialsVerificationPolicy": {"image-pull-credentials-verification-policy", nil}, "preloadedImagesVerificationAllowlist": {"preloaded-images-verification-allowlist", nil},
	"registryPullQPS": {"registry-qps", nil}, "registryBurst": {"registry-burst", nil},
	"imageGCHighThresholdPercent": {"image-gc-high-threshold", nil}, "imageGCLowThresholdPercent": {"image-gc-low-threshold", nil},
	"imageMinimumGCAge": {"minimum-image-ttl-duration", nil}, "imageMaximumGCAge": {"image-maximum-gc-age", nil},
	"containerLogMaxSize": {"container-log-max-size", nil}, "containerLogMaxFiles": {"container-log-max-files", nil},
	"containerLogMaxWorkers": {"container-log-max-workers", nil}, "containerLogMonitorInterval": {"container-log-monitor-interval", nil},
}

// read has flags say what the file says, but for those that were given.
func (k *kubeletFile) read(flags *pflag.FlagSet) error {
	if k.path == "" {
		return nil
	}
	text, err := os.ReadFile(k.path)
	if err != nil {
		return usageError{fmt.Errorf("--kubelet-config: %w", err)}
	}
	content := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &content); err != nil {
		return usageError{fmt.Errorf("--kubelet-config %s: %w", k.path, err)}
	}
	if content["kind"] != kubeletKind || content["apiVersion"] != kubeletVersion {
		return usageError{fmt.Errorf("--kubelet-config %s: it is a %v of %v, and not a %s of %s", k.path, content["kind"], content["apiVersion"], kubeletKind, kubeletVersion)}
	}
	delete(content, "kind")
	delete(content, "apiVersion")
	given := map[string]bool{}
	flags.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	mergeEvictions(content)
	if err := k.take(flags, given, "", content); err != nil {
		return usageError{fmt.Errorf("--kubelet-config %s: %w", k.path, err)}
	}
	return nil
}

// mergeEvictions has hard thresholds of evictions stand beside those that a kubelet has by itself,
// and not in the place of all, if the file wants that.
func mergeEvictions(content map[string]any) {
	const merge, hard = "mergeDefaultEvictionSettings", "evictionHard"
	wants, is := content[merge].(bool)
	if !is {
		return
	}
	delete(content, merge)
	if own, said := content[hard].(map[string]any); said && wants {
		for signal, value := range eviction.DefaultHard {
			if _, has := own[signal]; !has {
				own[signal] = value
			}
		}
	}
}

// take sets the flags of an object's fields.
func (k *kubeletFile) take(flags *pflag.FlagSet, given map[string]bool, path string, object map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		at, value := path+name, object[name]
		field, known := kubeletFields[at]
		inner, deeper := value.(map[string]any)
		switch {
		case unsaid(value) && !(zeros[at] && value != nil):
			continue
		case !known && deeper:
			if err := k.take(flags, given, at+".", inner); err != nil {
				return err
			}
			continue
		case !known:
			k.ignored = append(k.ignored, at)
			continue
		}
		as := field.as
		if as == nil {
			as = flagText
		}
		text, err := as(value)
		if err == nil && field.flag != "" && !given[field.flag] {
			err = flags.Set(field.flag, text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

// zeros are the fields of which 0, or an object of nothing, says something.
var zeros = map[string]bool{"evictionHard": true, "healthzPort": true, "nodeStatusMaxImages": true, "registryPullQPS": true, "oomScoreAdj": true}

// unsaid says whether a value is one that leaves the matter to the kubelet: kubeadm writes
// many of those. False is none.
func unsaid(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == "" || v == "0" || v == "0s"
	case float64:
		return v == 0
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, inner := range v {
			if !unsaid(inner) {
				return false
			}
		}
		return true
	}
	return false
}

// flagText writes a value as flags have it: A,B for a list, and K=V for an object.
func flagText(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case []any:
		return joined(v, func(i int) (string, error) { return flagText(v[i]) })
	case map[string]any:
		return pairs(v, "=")
	}
	return "", fmt.Errorf("%v has a form that no field has", value)
}

func joined(list []any, text func(int) (string, error)) (string, error) {
	var out []string
	for i := range list {
		one, err := text(i)
		if err != nil {
			return "", err
		}
		out = append(out, one)
	}
	return strings.Join(out, ","), nil
}

func pairs(object map[string]any, operator string) (string, error) {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(object)) {
		text, err := flagText(object[name])
		if err != nil {
			return "", err
		}
		out = append(out, name+operator+text)
	}
	return strings.Join(out, ","), nil
}

// thresholds are those of evictions: SIGNAL<QUANTITY.
func thresholds(value any) (string, error) {
	object, ok := value.(map[string]any)
	if !ok {
		return "", fmt.Errorf("%v is no object of signals and quantities", value)
	}
	return pairs(object, "<")
}

// taints are written KEY=VALUE:EFFECT.
func taints(value any) (string, error) {
	list, ok := value.([]any)
	if !ok {
		return "", fmt.Errorf("%v is no list of taints", value)
	}
	return joined(list, func(i int) (string, error) {
		taint, ok := list[i].(map[string]any)
		if !ok {
			return "", fmt.Errorf("%v is no taint", list[i])
		}
		part := func(name string) string { text, _ := taint[name].(string); return text }
		return part("key") + "=" + part("value") + ":" + part("effect"), nil
	})
}

// priorities are periods of a shutdown by the priority of pods.
func priorities(value any) (string, error) {
	list, ok := value.([]any)
	if !ok {
		return "", fmt.Errorf("%v is no list of periods", value)
	}
	return joined(list, func(i int) (string, error) {
		level, ok := list[i].(map[string]any)
		if !ok {
			return "", fmt.Errorf("%v is no period of a priority", list[i])
		}
		number := func(name string) int64 { n, _ := level[name].(float64); return int64(n) }
		return fmt.Sprintf("%d=%ds", number("priority"), number("shutdownGracePeriodSeconds")), nil
	})
}

// seconds is a duration that is written as their number.
func seconds(value any) (string, error) {
	n, ok := value.(float64)
	if !ok {
		return "", fmt.Errorf("%v is no number of seconds", value)
	}
	return strconv.FormatFloat(n, 'f', -1, 64) + "s", nil
}

// alwaysAllow is what the mode of authorization comes to.
func alwaysAllow(value any) (string, error) {
	switch value {
	case "Webhook":
		return "false", nil
	case "AlwaysAllow":
		return "true", nil
	}
	return "", fmt.Errorf("%v is neither Webhook nor AlwaysAllow", value)
}

// only is for what cannot be otherwise.
func only(text string) func(any) (string, error) {
	return func(value any) (string, error) {
		if got, err := flagText(value); err != nil || got != text {
			return "", fmt.Errorf("%v is not possible with this node, which has %s always", value, text)
		}
		return text, nil
	}
}
