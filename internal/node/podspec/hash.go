package podspec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// hashed are the names of the fields that count, wherever they are. A field that a
// later release of the API brings, and fills with a default, is not among them: a
// container is not made anew because of it.
var hashed = words(`
	name image command args workingDir env envFrom value valueFrom prefix optional key
	fieldRef fieldPath resourceFieldRef containerName resource divisor configMapKeyRef secretKeyRef configMapRef secretRef fileKeyRef volumeName path
	volumeMounts mountPath subPath subPathExpr readOnly recursiveReadOnly mountPropagation bindMountOptions volumeDevices devicePath
	securityContext capabilities add drop privileged seLinuxOptions user role type level runAsUser runAsGroup runAsNonRoot readOnlyRootFilesystem
	allowPrivilegeEscalation procMount seccompProfile localhostProfile appArmorProfile supplementalGroups supplementalGroupsPolicy fsGroup
	terminationMessagePath stdin stdinOnce tty stopSignal claims request`)

func words(text string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(text) {
		out[w] = true
	}
	return out
}

// defaults are what the API server writes for nothing, where it is not empty.
var defaults = map[string]string{
	"terminationMessagePath": corev1.TerminationMessagePathDefault,
	"procMount":              string(corev1.DefaultProcMount),
	"divisor":                "0",
}

// Hash is of what a container is made from and cannot change in place: its image,
// command, environment, mounts and security, and the resources that are given out
// when it is made. CPU and memory are not in it, which change in place, nor are
// probes and hooks, which are the agent's.
func Hash(pod *corev1.Pod, ct *corev1.Container) string {
	c := *ct
	c.Ports, c.Resources = nil, corev1.ResourceRequirements{Claims: ct.Resources.Claims}
	tree := map[string]any{"container": prune(generic(&c)), "devices": devices(ct)}
	if pod.Spec.SecurityContext != nil {
		tree["pod"] = prune(generic(pod.Spec.SecurityContext))
	}
	if ct.Lifecycle != nil && ct.Lifecycle.StopSignal != nil {
		tree["stopSignal"] = *ct.Lifecycle.StopSignal
	}
	if claims := prune(generic(ct.Resources.Claims)); claims != nil {
		tree["claims"] = claims
	}
	text, err := json.Marshal(tree) // sorts the names
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// devices are the limits that a container is made with. They are whole numbers, and
// written as such, as 1024Mi is 1Gi.
func devices(ct *corev1.Container) map[string]int64 {
	out := map[string]int64{}
	for name, q := range ct.Resources.Limits {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		default:
			out[string(name)] = q.Value()
		}
	}
	return out
}

func generic(v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	var out any
	if json.Unmarshal(text, &out) != nil {
		return nil
	}
	return out
}

// prune leaves out what is empty, what is as by default, and what does not count.
// False and 0 stay: they are not the same as nothing where a field is a pointer.
func prune(v any) any {
	switch v := v.(type) {
	case string:
		if v == "" {
			return nil
		}
	case []any:
		var out []any
		for _, item := range v {
			out = append(out, prune(item))
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for name, field := range v {
			if kept := prune(field); hashed[name] && kept != nil && (defaults[name] == "" || kept != any(defaults[name])) {
				out[name] = kept
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	}
	return v
}
