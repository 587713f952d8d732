package podspec

import (
	"context"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels by which the kubelet and its tools find pods and containers.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
)

// AnnotationClass records on a sandbox the RuntimeClass that was asked for.
const AnnotationClass = "fairlead.run/runtime-class"

// AnnotationGrace records on a sandbox the pod's grace period in seconds.
const AnnotationGrace = "fairlead.run/termination-grace-period"

// Node is what a pod may learn of its machine, or inherit from it.
type Node struct {
	Name        string
	IPs         func() []string // the first is the main one; asked each time, as a network may come late
	MemoryBytes int64
	CPUs        int
	// Allocatable is what pods may have of it, for the downward API; what it does
	// not name is all that the node has.
	Allocatable corev1.ResourceList
	DNS         func() DNS // asked for each sandbox
	// ClusterDNS are the servers of the cluster, and ClusterDomain its domain, as
	// cluster.local; both are empty where there is no cluster, and nobody misses it.
	ClusterDNS    []string
	ClusterDomain string
	// PodDomain is what names of pods end in where there is no cluster, for themselves.
	PodDomain   string
	SeccompRoot string // folder of localhost profiles
	// SeccompUnconfined gives containers without a profile none; else they have the
	// handler's default.
	SeccompUnconfined bool
	// HugePageSizes are those that the node has, as the CRI writes them: 2MB, 1GB. A
	// container may use none that it does not ask for.
	HugePageSizes []string
	Swap          Swap
	// GroupOOM says that the kernel ends all processes of a container together when one of
	// them has used up its memory, which cgroups v2 can do (KEP-3811).
	GroupOOM bool
	// LongestPause is between two attempts at a container that crashes; 0 is five minutes.
	LongestPause time.Duration
}

// Swap is what containers may use of the node's (KEP-2400).
type Swap struct {
	// Counted says that the kernel counts it by cgroups v2. Else nothing is said of
	// it, and runtimes count it within the limit of memory.
	Counted bool
	// Limited gives burstable pods a share of it; else nobody has any.
	Limited bool
	// Manifests says that all pods come from manifests, so that none is critical because
	// it does.
	Manifests bool
	Bytes     int64 // that the node has
}

// Fixed are addresses, or a DNS, that never change.
func Fixed[T any](what T) func() T { return func() T { return what } }

// DNS is what the node's own resolv.conf says.
type DNS struct {
	File     string // that says it
	Servers  []string
	Searches []string
	Options  []string
}

// Lookup finds the objects that a pod refers to. One that does not exist is nil; an error
// is that nobody can say whether it does, which is not the same. It may know Services too.
type Lookup interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Context is a pod and what is known around it.
type Context struct {
	Pod     *corev1.Pod // with its UID
	Node    Node
	Objects Lookup
	LogDir  string
	// Overhead is what the class adds; nil if nothing.
	Overhead corev1.ResourceList
	// Features of the handler that runs the pod.
	Features *runtimeapi.RuntimeHandlerFeatures
	// Pulled is by what name a runtime knows an image of the pod that is here, as
	// PullImage has answered.
	Pulled func(image string) string
	// IPs of the pod, as the runtime has them; empty before its sandbox runs.
	IPs []string
	// Userns are the ids of a pod with hostUsers false; nil leaves them to the runtime.
	Userns *runtimeapi.UserNamespace
	// File reads a file in a volume of the pod, at most MaxEnvFile bytes and one more,
	// without leaving the volume; nil if nobody can.
	File func(volume, path string) ([]byte, error)
	// Groups are those that PersistentVolumes of the pod say that they are for; its containers
	// have them beside those of its security context.
	Groups []int64
	// CgroupParent is the pod's cgroup, in the style of cgroupfs or systemd; empty
	// leaves it to the runtime.
	CgroupParent string
}

// Addresses are where the pod can be reached, in the order of its status: the node's if it is
// on its network.
func (c *Context) Addresses() []string {
	if c.Pod.Spec.HostNetwork {
		return c.hostAddresses()
	}
	return OfEachFamily(c.IPs, first(c.hostAddresses()))
}

// hostAddresses are none where nobody knows of the node's.
func (c *Context) hostAddresses() []string {
	if c.Node.IPs == nil {
		return nil
	}
	ips := c.Node.IPs()
	return OfEachFamily(ips, first(ips))
}

// OfEachFamily is the first address of each family, that of the node's main one first: the
// order in which the status of a pod, its variables, its hosts file and probes have them.
func OfEachFamily(ips []string, node string) []string {
	var out []string
	seen := map[bool]bool{}
	for _, ip := range ips {
		if v6 := isV6(ip); ip != "" && !seen[v6] {
			seen[v6], out = true, append(out, ip)
		}
	}
	if len(out) == 2 && node != "" && isV6(out[0]) != isV6(node) {
		slices.Reverse(out)
	}
	return out
}

func isV6(ip string) bool {
	a, err := netip.ParseAddr(ip)
	return err == nil && a.Unmap().Is6()
}

// AddressesOf are those that a sandbox has, the main one first. One on the node's
// network has none of its own.
func AddressesOf(s *runtimeapi.PodSandboxStatus) []string {
	var out []string
	if ip := s.GetNetwork().GetIp(); ip != "" {
		out = append(out, ip)
	}
	for _, ip := range s.GetNetwork().GetAdditionalIps() {
		out = append(out, ip.GetIp())
	}
	return out
}
