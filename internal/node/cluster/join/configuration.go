package join

import (
	"cmp"
	"net"
	"strconv"
	"time"

	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/cluster/membership"
	"fairlead.run/internal/node/cluster/nodestatus"
	"fairlead.run/internal/node/eviction"
	"fairlead.run/internal/node/plan"
)

// configuration is what holds for the node, under the names of a kubelet's configuration,
// for /configz. What a kubelet has and the node does not is left out.
func (n *Node) configuration() any {
	c := &n.cfg
	address, text, _ := net.SplitHostPort(c.Address)
	port, _ := strconv.Atoi(text) // it was read before
	healthAddress, text, _ := net.SplitHostPort(c.Healthz)
	healthPort, _ := strconv.Atoi(text)
	mode := "Webhook"
	if c.AlwaysAllow {
		mode = "AlwaysAllow"
	}
	out := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": address, "port": port, "healthzBindAddress": healthAddress, "healthzPort": healthPort, "seccompDefault": !c.Node.SeccompUnconfined, "resolvConf": c.Node.DNS().File,
		"enableDebuggingHandlers": !c.Bare, "enableProfilingHandler": c.Profiling, "enableSystemLogHandler": c.NodeLogs.Folder != "", "enableSystemLogQuery": c.NodeLogs.Query, "enableDebugFlagsHandler": c.Level != nil,
		"tlsMinVersion": cmp.Or(c.TLS.MinVersion, "VersionTLS12"), "tlsCipherSuites": c.TLS.CipherSuites,
		"authentication": map[string]any{
			"x509": map[string]any{"clientCAFile": c.ClientCA}, "anonymous": map[string]any{"enabled": c.Anonymous}, "webhook": map[string]any{"enabled": true},
		},
		"authorization": map[string]any{"mode": mode},
		"staticPodPath": c.Static.Folder, "staticPodURL": c.Static.URL,
		"clusterDNS": c.Node.ClusterDNS, "clusterDomain": c.Node.ClusterDomain, "podLogsDir": c.Logs,
		"registerWithTaints": c.Taints, "nodeStatusMaxImages": cmp.Or(c.MaxImages, new(nodestatus.MaxImages)),
		"nodeStatusReportFrequency": cmp.Or(c.Report, membership.StatusReport).String(), "nodeLeaseDurationSeconds": int64(cmp.Or(c.Lease, membership.LeaseDuration) / time.Second),
	}
	out["crashLoopBackOff"] = map[string]string{"maxContainerRestartPeriod": cmp.Or(c.Node.LongestPause, plan.LongestPause).String()}
	n.limits(out)
	n.stocked(out)
	return out
}

// limits are those of pods and of the node.
func (n *Node) limits(out map[string]any) {
	r := &n.cfg.Resources
	hard := r.Eviction.Hard
	if hard == nil {
		hard = eviction.DefaultHard
	}
	out["maxPods"], out["podsPerCore"] = cmp.Or(r.Capacity.MaxPods, capacity.DefaultPods), r.Capacity.PodsPerCPU
	out["systemReserved"], out["kubeReserved"] = r.Capacity.SystemReserved, r.Capacity.KubeReserved
	out["cgroupsPerQOS"], out["cgroupRoot"], out["podPidsLimit"], out["cpuCFSQuota"] = !r.Cgroups.Off, r.Cgroups.Root, r.Cgroups.PodPids, !r.Cgroups.NoQuota
	out["evictionHard"], out["evictionSoft"], out["evictionSoftGracePeriod"], out["evictionMinimumReclaim"] = hard, r.Eviction.Soft, r.Eviction.SoftGrace, r.Eviction.MinimumReclaim
	out["evictionPressureTransitionPeriod"] = r.Eviction.Transition.String()
	out["evictionMaxPodGracePeriod"] = int64(r.Eviction.MaxGrace / time.Second)
	out["shutdownGracePeriod"], out["shutdownGracePeriodCriticalPods"] = r.Shutdown.Period.String(), r.Shutdown.Critical.String()
	var levels []map[string]int64
	for _, l := range r.Shutdown.ByPriority {
		levels = append(levels, map[string]int64{"priority": int64(l.Priority), "shutdownGracePeriodSeconds": int64(l.Period / time.Second)})
	}
	out["shutdownGracePeriodByPodPriority"] = levels
}

// stocked is how images and logs are kept.
func (n *Node) stocked(out map[string]any) {
	s := &n.cfg.Stock
	out["serializeImagePulls"], out["maxParallelImagePulls"] = s.Parallel == 1, s.Parallel
	out["registryPullQPS"], out["registryBurst"] = s.Rate.PerSecond, s.Rate.Burst
	out["imageGCHighThresholdPercent"], out["imageGCLowThresholdPercent"] = s.Images.HighPercent, s.Images.LowPercent
	out["imageMinimumGCAge"], out["imageMaximumGCAge"] = s.Images.MinAge.String(), s.Images.MaxAge.String()
	out["containerLogMaxSize"], out["containerLogMaxFiles"] = s.Logs.MaxSize.String(), s.Logs.MaxFiles
	out["containerLogMaxWorkers"], out["containerLogMonitorInterval"] = s.Logs.Workers, s.Logs.Every.String()
	out["imagePullCredentialsVerificationPolicy"], out["preloadedImagesVerificationAllowlist"] = s.Verify, s.Allowlist
}
