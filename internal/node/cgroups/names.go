package cgroups

import (
	"context"
	"fmt"
	"path"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/priority"
)

// Driver says who makes cgroups, and so how they are called.
type Driver string

// The drivers that a runtime may have.
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// ParseDriver reads the name of a driver.
func ParseDriver(text string) (Driver, error) {
	switch d := Driver(text); d {
	case Cgroupfs, Systemd:
		return d, nil
	}
	return "", fmt.Errorf("cgroup driver %q is unknown; use %s or %s", text, Cgroupfs, Systemd)
}

// Runtime is what is asked for its driver.
type Runtime interface {
	RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest, ...grpc.CallOption) (*runtimeapi.RuntimeConfigResponse, error)
}

// DriverOf is the driver that the runtime says it has (KEP-4033). One that cannot
// say it, because it is older than that, has the configured one.
func DriverOf(ctx context.Context, r Runtime, configured Driver) (Driver, error) {
	answer, err := r.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return configured, nil
	case err != nil:
		return "", fmt.Errorf("ask the runtime for its cgroup driver: %w", err)
	case answer.GetLinux() == nil:
		return configured, nil
	case answer.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD:
		return Systemd, nil
	}
	return Cgroupfs, nil
}

const (
	top       = "kubepods"
	podPrefix = "pod"
	slice     = ".slice"
)

// name is the way to a cgroup from the top of the hierarchy.
type name []string

// path is the name for cgroupfs.
func (n name) path() string { return path.Join("/", path.Join(n...)) }

// slice is the name of the unit of systemd, by whose rule a-b.slice is in
// a.slice. A dash within a part becomes an underscore therefore.
func (n name) slice() string { return strings.Join(n.escaped(), "-") + slice }

// slices is where the cgroup of that unit is.
func (n name) slices() string {
	out := "/"
	for i := range n {
		out = path.Join(out, n[:i+1].slice())
	}
	return out
}

func (n name) escaped() []string {
	out := make([]string, len(n))
	for i, part := range n {
		out[i] = strings.ReplaceAll(part, "-", "_")
	}
	return out
}

// in is where the cgroup is in each hierarchy.
func (n name) in(d Driver) string {
	if d == Systemd {
		return n.slices()
	}
	return n.path()
}

func (n name) child(part string) name { return append(n[:len(n):len(n)], part) }

// tiers are the classes that have a cgroup of their own; Guaranteed pods are
// beside them.
var tiers = map[corev1.PodQOSClass]string{
	corev1.PodQOSBurstable:  "burstable",
	corev1.PodQOSBestEffort: "besteffort",
}

func (m *Manager) tier(c corev1.PodQOSClass) name {
	if t := tiers[c]; t != "" {
		return m.top.child(t)
	}
	return m.top
}

func (m *Manager) podName(pod *corev1.Pod) name {
	return m.tier(priority.Class(pod)).child(podPrefix + string(pod.UID))
}

// uidOf reads the name of a pod's cgroup in the folder of its tier.
func (m *Manager) uidOf(tier name, folder string) (types.UID, bool) {
	if m.driver != Systemd {
		uid, ok := strings.CutPrefix(folder, podPrefix)
		return types.UID(uid), ok && uid != ""
	}
	unit, ok := strings.CutSuffix(folder, slice)
	if !ok {
		return "", false
	}
	uid, ok := strings.CutPrefix(unit, strings.TrimSuffix(tier.slice(), slice)+"-"+podPrefix)
	return types.UID(strings.ReplaceAll(uid, "_", "-")), ok && uid != ""
}

// Parent is what a runtime is told as the cgroup parent of the pod: a path, or
// the name of a slice.
func (m *Manager) Parent(pod *corev1.Pod) string {
	if m.driver == Systemd {
		return m.podName(pod).slice()
	}
	return m.podName(pod).path()
}
