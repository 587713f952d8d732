package join

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/agent"
	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/cluster"
	"fairlead.run/internal/node/cluster/objects"
	"fairlead.run/internal/node/cluster/storage"
	"fairlead.run/internal/node/devices"
	"fairlead.run/internal/node/plugins"
	"fairlead.run/internal/node/podresources"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/priority"
	"fairlead.run/internal/node/resources"
	"fairlead.run/internal/node/volume"
	"fairlead.run/internal/node/volume/csi"
)

// driverTimeout is how long a driver may take over a call. It is the kubelet's.
const driverTimeout = 2 * time.Minute

// The folders of a kubelet that programs of others know: they mount them into their
// pods.
const (
	registryFolder = "plugins_registry"
	stagingFolder  = "plugins/kubernetes.io/csi"
	podsFolder     = "pods"
	devicesFolder  = "device-plugins"
	toldFolder     = "pod-resources"
)

// drivers are the programs of others that serve the node.
type drivers struct {
	registry *plugins.Registry
	volumes  *csi.Client
	devices  *devices.Manager
	told     *podresources.Server
}

// newDrivers makes them. The cluster is there, and nothing is called before Run.
func (n *Node) newDrivers() {
	known := csi.NewDrivers(n.cluster.Storage().Check, n.driverChanged)
	n.cluster.Storage().Asks(known.Info)
	n.drivers.volumes = csi.New(csi.Config{
		Socket: known.Socket, Staging: filepath.Join(n.cfg.Shared, stagingFolder), Pods: filepath.Join(n.cfg.Shared, podsFolder),
		Timeout: driverTimeout, Changed: n.cluster.NodeChanged,
	})
	if err := n.drivers.volumes.Load(); err != nil {
		n.Warn("VolumeRecordsIgnored", "It is not known of all volumes of CSI drivers whether they are mounted, so that they may be detached too early; delete their pods, and then what cannot be read: "+err.Error()+hostpath.Advice(err))
	}
	ended := func(uid types.UID) bool { return n.agent.Rests(uid) }
	n.drivers.devices = devices.New(devices.Config{
		Sockets: filepath.Join(n.cfg.Shared, devicesFolder), Folder: filepath.Join(n.cfg.Root, "agent-devices"), Changed: n.cluster.NodeChanged, Warn: n.Warn, Log: n.cfg.Log,
		Ended: ended, Leaves: func(uid types.UID) bool { return n.agent.Leaves(uid) }, Concerns: func(pods ...types.UID) { n.agent.Touch(pods...) },
	})
	n.drivers.told = podresources.New(podresources.Config{
		Folder: filepath.Join(n.cfg.Shared, toldFolder), Pods: func() []*corev1.Pod { return n.agent.Pods() }, Ended: ended,
		Given: n.drivers.devices.Given, Working: n.drivers.devices.Working,
		Failed: func(err error) {
			n.Warn("PodResourcesNotServed", fmt.Sprintf("No program can ask which devices pods have, which is tried again: %s%s", err, hostpath.Advice(err)))
		},
	})
	n.drivers.registry = plugins.New(plugins.Config{
		Folder: filepath.Join(n.cfg.Shared, registryFolder), Kinds: map[string]plugins.Kind{csi.PluginType: known, devices.PluginType: n.drivers.devices}, Warn: n.Warn, Log: n.cfg.Log,
	})
}

// around is what volumes need beside pods.
func (n *Node) around(allocatable corev1.ResourceList) volume.Around {
	storage := n.cluster.Storage()
	return volume.Around{
		Allocatable: allocatable, Tokens: tokens{n.cluster.Objects()}, Claims: lookup{n.cluster.Objects()},
		CSI: n.drivers.volumes, Pods: filepath.Join(n.cfg.Shared, podsFolder), Driver: storage.Driver, Attached: storage.Attached,
		Node: storage.Node, Growth: growth{n.cluster.Objects().Growth(), n.cluster},
	}
}

// growth writes into claims, and tells by events.
type growth struct {
	objects.Growth
	cluster *cluster.Cluster
}

// Tell implements volume.Growth.
func (g growth) Tell(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim, reason, message string) {
	g.cluster.Event(pod, corev1.EventTypeNormal, reason, message)
	g.cluster.ClaimEvent(claim, corev1.EventTypeNormal, reason, message)
}

// driverChanged is that a driver has come, or gone. Pods may wait for it.
func (n *Node) driverChanged(name string, info *csi.NodeInfo) {
	n.cluster.Storage().Set(name, info)
	if info == nil {
		return
	}
	n.agent.Touch(waiting(n.agent.Pods())...)
}

// waiting are the pods that do not run yet and have volumes that a driver may make.
func waiting(pods []*corev1.Pod) []types.UID {
	var out []types.UID
	for _, p := range pods {
		if p.Status.Phase != corev1.PodPending {
			continue
		}
		for _, v := range p.Spec.Volumes {
			if v.CSI != nil || v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
				out = append(out, p.UID)
				break
			}
		}
	}
	return out
}

// inUse are the volumes that must not be detached from the node.
func (n *Node) inUse() []corev1.UniqueVolumeName {
	var out []corev1.UniqueVolumeName
	for _, id := range n.drivers.volumes.Attached() {
		out = append(out, storage.UniqueName(id))
	}
	return out
}

// room is the keeper's, with the devices of plugins.
type room struct {
	*resources.Keeper
	devices *devices.Manager
}

// Outfit implements agent.Outfitter.
func (r room) Outfit(ctx context.Context, pod *corev1.Pod, ct *corev1.Container) (podspec.Given, error) {
	return r.devices.Outfit(ctx, pod, ct)
}

// Health implements agent.Outfitter.
func (r room) Health(pod types.UID, container string, told []corev1.ResourceStatus) []corev1.ResourceStatus {
	return r.devices.Health(pod, container, told)
}

// admitDevices gives a pod the devices that it asks for. It is refused if there are none.
func (n *Node) admitDevices(ctx context.Context, pod *corev1.Pod) error {
	err := n.drivers.devices.Admit(ctx, pod)
	var r *capacity.Refusal
	if errors.As(err, &r) {
		return &agent.Refusal{Reason: r.Reason, Message: r.Message, Rejected: true, Again: priority.Static(pod)}
	}
	return err
}

// withDevices adds what plugins have to what the machine has.
func (n *Node) withDevices(has, left corev1.ResourceList) (capacity, allocatable corev1.ResourceList) {
	all, work := n.drivers.devices.Capacity()
	maps.Copy(all, has)
	maps.Copy(work, left)
	return all, work
}

// runDrivers takes the drivers that are there, and those that come, until ctx ends.
func (n *Node) runDrivers(ctx context.Context) error {
	if err := n.drivers.registry.Run(ctx); err != nil {
		return fmt.Errorf("find drivers and plugins: %w", err)
	}
	return nil
}
