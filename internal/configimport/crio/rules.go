package crio

import "fairlead.run/internal/configimport/plan"

// Reasons that several keys share.
const (
	ownFolder = "Fairlead keeps its files in folders of its own: root and state"
	ownSpec   = "what a container gets follows from its pod and image alone"
	monitor   = "one fairlead-monitor has all containers of the node"
	noPause   = "pods have no pause container here, and no image is pulled for one"
	plain     = "streams are not encrypted: the kubelet is on the same node"
	ownMeter  = "Fairlead tells metrics of its own, by other names: metrics.address"
	ownStats  = "what containers use is measured when somebody asks for it"
	messages  = "the size of messages is fixed, to 16 MiB"
	unmapped  = "ids of a pod with a user namespace come from the kubelet"
	noDevices = "a container gets the devices that its request names, by path or by CDI"
	classes   = "there are no blockio and RDT classes, and interrupts are not moved"
	artifacts = "what is no image cannot be pulled"
	handlerOf = "crio/runtime/runtimes/*/"
)

// rules say why the keys that convert does not take have no counterpart. The
// first that fits a key counts. The values are CRI-O's own defaults.
var rules = []plan.Rule{
	{Path: "crio/root", Why: ownFolder, Default: []any{"/var/lib/containers/storage", ""}},
	{Path: "crio/runroot", Why: ownFolder, Default: []any{"/run/containers/storage", ""}},
	{Path: "crio/imagestore", Why: ownFolder},
	{Path: "crio/storage_driver", Why: "layers are mounted by overlayfs", Default: []any{"overlay", ""}},
	{Path: "crio/storage_option", Why: "what the mounts of layers look like follows from the kernel"},
	{Path: "crio/log_dir", Why: "the kubelet says where the log of a container is", Default: []any{"/var/log/crio/pods", ""}},
	{Path: "crio/version_file", Why: ""},
	{Path: "crio/version_file_persist", Why: ""},
	{Path: "crio/clean_shutdown_file", Why: ""},
	{Path: "crio/internal_wipe", Default: []any{true}, Why: "the record of pods ends with the boot in any case"},
	{Path: "crio/internal_repair", Default: []any{true, false}, Why: ""},

	{Path: "crio/api/listen", Why: "Fairlead serves the CRI on a socket of its own: listen", Default: []any{"/var/run/crio/crio.sock", "/run/crio/crio.sock", ""}},
	{Path: "crio/api/grpc_max_send_msg_size", Why: messages, Default: []any{80 << 20, 0}},
	{Path: "crio/api/grpc_max_recv_msg_size", Why: messages, Default: []any{80 << 20, 0}},
	{Path: "crio/api/tls_min_version", Why: plain, Default: []any{"VersionTLS12", ""}},
	{Path: "crio/api/*", Why: plain},

	{Path: "crio/runtime/no_pivot", Why: "the root file system is always changed by pivot_root"},
	{Path: "crio/runtime/selinux", Default: []any{true, false}, Why: ""},
	{Path: "crio/runtime/log_to_journald", Why: "output of containers goes to the log that the kubelet names"},
	{Path: "crio/runtime/drop_infra_ctr", Default: []any{true}, Why: noPause},
	{Path: "crio/runtime/infra_ctr_cpuset", Why: noPause},
	{Path: "crio/runtime/conmon", Why: monitor, Default: []any{"", "/usr/bin/conmon", "/usr/libexec/crio/conmon"}},
	{Path: "crio/runtime/conmon_cgroup", Why: monitor, Default: []any{"", "pod", "system.slice"}},
	{Path: "crio/runtime/conmon_env", Why: monitor, Default: []any{"[]", "[PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin]"}},
	{Path: "crio/runtime/container_exits_dir", Why: ""},
	{Path: "crio/runtime/container_attach_socket_dir", Why: ""},
	{Path: "crio/runtime/namespaces_dir", Why: ""},
	{Path: "crio/runtime/pinns_path", Why: ""},
	{Path: "crio/runtime/read_only", Why: ownSpec + ": readOnlyRootFilesystem"},
	{Path: "crio/runtime/hooks_dir", Default: []any{"[]", "[/usr/share/containers/oci/hooks.d]"}, Why: "there are no OCI hooks; NRI plugins may add them"},
	{Path: "crio/runtime/add_inheritable_capabilities", Why: "no capability is inheritable"},
	{Path: "crio/runtime/default_env", Why: ownSpec},
	{Path: "crio/runtime/min_injected_gomaxprocs", Why: ownSpec},
	{Path: "crio/runtime/default_sysctls", Why: "sysctls are those of the pod; net.ipv4.ip_unprivileged_port_start and ping_group_range are open"},
	{Path: "crio/runtime/default_mounts_file", Why: ownSpec},
	{Path: "crio/runtime/allowed_devices", Default: []any{"[]", "[/dev/fuse /dev/net/tun]"}, Why: noDevices},
	{Path: "crio/runtime/additional_devices", Why: noDevices},
	{Path: "crio/runtime/device_ownership_from_security_context", Why: "devices belong to the users to whom they belong on the node"},
	{Path: "crio/runtime/decryption_keys_path", Default: []any{"/etc/crio/keys/", ""}, Why: "encrypted images are refused"},
	{Path: "crio/runtime/additional_artifact_stores", Why: artifacts},
	{Path: "crio/runtime/seccomp_profile", Why: "the default profile of seccomp is built in"},
	{Path: "crio/runtime/seccomp_use_default_when_empty", Why: "a container that names no profile runs unconfined; the kubelet's seccompDefault changes that"},
	{Path: "crio/runtime/privileged_seccomp_profile", Why: "a privileged container has no seccomp profile"},
	{Path: "crio/runtime/apparmor_profile", Default: []any{"crio-default", ""}, Why: "the default profile of AppArmor is built in"},
	{Path: "crio/runtime/blockio_config_file", Why: classes},
	{Path: "crio/runtime/blockio_reload", Why: classes},
	{Path: "crio/runtime/rdt_config_file", Why: classes},
	{Path: "crio/runtime/irqbalance_config_file", Default: []any{"/etc/sysconfig/irqbalance", ""}, Why: classes},
	{Path: "crio/runtime/irqbalance_config_restore_file", Default: []any{"/etc/sysconfig/orig_irq_banned_cpus", "", "disable"}, Why: classes},
	{Path: "crio/runtime/bind_mount_prefix", Why: "mounts are of the node as the daemon sees it"},
	{Path: "crio/runtime/uid_mappings", Why: unmapped},
	{Path: "crio/runtime/gid_mappings", Why: unmapped},
	{Path: "crio/runtime/minimum_mappable_uid", Why: unmapped, Default: []any{-1}},
	{Path: "crio/runtime/minimum_mappable_gid", Why: unmapped, Default: []any{-1}},
	{Path: "crio/runtime/log_filter", Why: "the log has no filter beside its level"},
	{Path: "crio/runtime/enable_criu_support", Default: []any{true}, Why: "checkpoints are made where criu is installed and somebody asks for them"},
	{Path: "crio/runtime/pids_limit", Default: []any{-1, 0}, Why: "the kubelet limits the processes of a pod: podPidsLimit"},
	{Path: "crio/runtime/log_size_max", Default: []any{-1}, Why: "the kubelet rotates logs: containerLogMaxSize"},
	{Path: "crio/runtime/ctr_stop_timeout", Default: []any{30, 0}, Why: "a container may take as long to end as its pod says"},
	{Path: "crio/runtime/separate_pull_cgroup", Why: "images are pulled by the daemon, in its own cgroup"},
	{Path: "crio/runtime/shared_cpuset", Why: "no processors are shared beside those that a pod has"},
	{Path: "crio/runtime/absent_mount_sources_to_reject", Why: "a source of a mount that is missing becomes a folder"},
	{Path: "crio/runtime/enable_pod_events", Default: []any{true, false}, Why: ""},
	{Path: "crio/runtime/hostnetwork_disable_selinux", Default: []any{true}, Why: "a pod on the node's network is labelled as any other"},
	{Path: "crio/runtime/disable_hostport_mapping", Why: "host ports are the built-in network's, or the portmap plugin's"},
	{Path: "crio/runtime/timezone", Why: ownSpec},
	{Path: "crio/runtime/manage_ns_lifecycle", Default: []any{true, false}, Why: ""},
	{Path: "crio/runtime/workloads/**", Why: "no annotation changes what a container may use"},

	{Path: handlerOf + "runtime_root", Default: []any{"", "/run/runc", "/run/crun", "/run/runsc", "/run/vc"}, Why: "each handler keeps its state in a folder of Fairlead's, so that no other runtime's containers are in it"},
	{Path: handlerOf + "runtime_config_path", Why: "only shims read a file of their own; what runsc is to know goes into args"},
	{Path: handlerOf + "monitor_path", Why: monitor, Default: []any{"", "/usr/bin/conmon", "/usr/libexec/crio/conmon", "/usr/bin/conmonrs", "/usr/libexec/crio/conmonrs"}},
	{Path: handlerOf + "monitor_cgroup", Why: monitor, Default: []any{"", "pod", "system.slice"}},
	{Path: handlerOf + "monitor_exec_cgroup", Why: "what is executed in a container is in its cgroup anyway", Default: []any{"", "container"}},
	{Path: handlerOf + "monitor_env", Why: monitor, Default: []any{"[]", "[PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin]"}},
	{Path: handlerOf + "platform_runtime_paths/*", Why: ""},
	{Path: handlerOf + "runtime_pull_image", Why: "images are pulled on the node"},
	{Path: handlerOf + "container_min_memory", Default: []any{"", "12MiB", "12 MiB", "500KiB", "500 KiB"}, Why: "the least limit of memory is the kernel's"},
	{Path: handlerOf + "no_sync_log", Default: []any{true, false}, Why: ""},
	{Path: handlerOf + "default_annotations/*", Why: "a handler adds no annotations"},
	{Path: handlerOf + "stream_websockets", Default: []any{true, false}, Why: ""},
	{Path: handlerOf + "exec_cpu_affinity", Why: "what is executed in a container may use all of its processors"},
	{Path: handlerOf + "seccomp_profile", Why: "the default profile of seccomp is built in, the same for all handlers"},
	{Path: handlerOf + "container_create_timeout", Default: []any{0, 240}, Why: "an operation that stays at one stage for four minutes is ended"},
	{Path: handlerOf + "privileged_without_host_devices_all_devices_allowed", Why: "a privileged container that gets no host devices may use those that it asks for, and no others"},

	{Path: "crio/checkpoint_restore/**", Default: []any{"", "checkpoint-restore", "checkpoint_restore"}, Why: "checkpoints are made where criu is installed; checkpoints.restore says whether pods may be made of them"},

	{Path: "crio/image/default_transport", Default: []any{"docker://", ""}, Why: "images are pulled from registries"},
	{Path: "crio/image/global_auth_file", Why: "no credentials are kept here: they come with each pull, from the kubelet's imagePullSecrets and credential providers"},
	{Path: "crio/image/namespaced_auth_dir", Default: []any{"", "/etc/crio/auth"}, Why: "no credentials are kept here: they come with each pull"},
	{Path: "crio/image/pause_image", Default: pauses(), Why: noPause},
	{Path: "crio/image/pause_image_auth_file", Why: noPause},
	{Path: "crio/image/pause_command", Default: []any{"/pause", ""}, Why: noPause},
	{Path: "crio/image/signature_policy", Why: "signatures of images are not looked at"},
	{Path: "crio/image/signature_policy_dir", Default: []any{"/etc/crio/policies", ""}, Why: "signatures of images are not looked at"},
	{Path: "crio/image/image_volumes", Default: []any{"mkdir", "bind", ""}, Why: "volumes that an image declares are made for every container"},
	{Path: "crio/image/big_files_temporary_dir", Why: ownFolder},
	{Path: "crio/image/auto_reload_registries", Default: []any{true, false}, Why: ""},
	{Path: "crio/image/oci_artifact_mount_support", Default: []any{true, false}, Why: artifacts},
	{Path: "crio/image/short_name_mode", Default: []any{"enforcing", "", "disabled"}, Why: "a name without a registry is one of docker.io"},
	{Path: "crio/image/registries", Why: "a name without a registry is one of docker.io"},

	{Path: "crio/network/cni_default_network", Why: "of several CNI configurations the first in lexical order is used"},
	{Path: "crio/network/cni_status_grace_period", Why: "the network is ready when its plugins say so"},

	{Path: "crio/metrics/enable_metrics", Why: ownMeter},
	{Path: "crio/metrics/**", Why: ""},
	{Path: "crio/tracing/tracing_sampling_rate_per_million", Default: []any{0, 1000000}, Why: "a span is made wherever its parent is sampled, and for every operation without one"},
	{Path: "crio/stats/included_pod_metrics", Why: "stats.metrics has the groups of metrics, by other names"},
	{Path: "crio/stats/**", Why: ownStats},
	{Path: "crio/nri/nri_disable_connections", Why: "plugins may connect wherever NRI is on; nri.disable switches all of it off"},
	{Path: "crio/nri/default_validator/**", Why: "there is no default validator of what plugins do"},
	{Path: "crio/nri/*", Why: "there is no default validator of what plugins do"},
}

// pauses are the images of which nobody expects anything.
func pauses() []any {
	out := []any{""}
	for _, v := range []string{"3.1", "3.2", "3.5", "3.6", "3.7", "3.8", "3.9", "3.10", "3.10.1", "3.10.2"} {
		out = append(out, "registry.k8s.io/pause:"+v, "k8s.gcr.io/pause:"+v)
	}
	return out
}

// registryRules are the same for registries.conf.
var registryRules = []plan.Rule{
	{Path: "registry/*", Why: "hosts.toml has no such key"},
	{Path: "registry/mirror/*", Why: "hosts.toml has no such key"},
	{Path: "unqualified-search-registries", Default: []any{"[]", "[docker.io]"}, Why: "a name without a registry is one of docker.io"},
	{Path: "short-name-mode", Default: []any{"", "enforcing", "permissive", "disabled"}, Why: ""},
	{Path: "aliases/**", Why: "a name without a registry is one of docker.io"},
	{Path: "credential-helpers", Default: []any{"[]", "[containers-auth.json]"}, Why: "no credentials are kept here: they come with each pull"},
	{Path: "additional-layer-store-auth-helper", Why: "there are no layer stores beside the node's own"},
	{Path: "registries/**", Why: "this is the first version of registries.conf, which has other keys; write it in the second"},
}
