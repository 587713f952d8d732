// Package unsupported names the volumes of pods that no node of Fairlead makes, and says what to
// use in their place. It does not look at what is made.
package unsupported

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
)

// InsteadCSI is what to use in the place of most kinds of volumes that are not there.
// They were taken out of Kubernetes for CSI drivers, or are about to be.
const InsteadCSI = "use a PersistentVolumeClaim of a CSI driver"

const (
	insteadNFS      = "mount it on the node and use a local PersistentVolume, or the CSI driver for NFS"
	insteadGit      = "use an emptyDir and an init container that clones it"
	insteadFlex     = "FlexVolume is deprecated; use a CSI driver"
	insteadOfBlocks = "volumeMode Block is not supported; use volumeMode Filesystem"
)

// refused names every kind that is not supported and is set.
func refused(s corev1.VolumeSource) map[string]string {
	all := []struct {
		name    string
		set     bool
		instead string
	}{
		{"gcePersistentDisk", s.GCEPersistentDisk != nil, InsteadCSI},
		{"awsElasticBlockStore", s.AWSElasticBlockStore != nil, InsteadCSI},
		{"gitRepo", s.GitRepo != nil, insteadGit},
		{"nfs", s.NFS != nil, insteadNFS},
		{"iscsi", s.ISCSI != nil, InsteadCSI},
		{"glusterfs", s.Glusterfs != nil, InsteadCSI},
		{"rbd", s.RBD != nil, InsteadCSI},
		{"flexVolume", s.FlexVolume != nil, insteadFlex},
		{"cinder", s.Cinder != nil, InsteadCSI},
		{"cephfs", s.CephFS != nil, InsteadCSI},
		{"flocker", s.Flocker != nil, InsteadCSI},
		{"fc", s.FC != nil, InsteadCSI},
		{"azureFile", s.AzureFile != nil, InsteadCSI},
		{"vsphereVolume", s.VsphereVolume != nil, InsteadCSI},
		{"quobyte", s.Quobyte != nil, InsteadCSI},
		{"azureDisk", s.AzureDisk != nil, InsteadCSI},
		{"photonPersistentDisk", s.PhotonPersistentDisk != nil, InsteadCSI},
		{"portworxVolume", s.PortworxVolume != nil, InsteadCSI},
		{"scaleIO", s.ScaleIO != nil, InsteadCSI},
		{"storageos", s.StorageOS != nil, InsteadCSI},
	}
	out := map[string]string{}
	for _, k := range all {
		if k.set {
			out[k.name] = k.instead
		}
	}
	return out
}

// Kind says that a volume is of a kind that is not supported.
func Kind(v *corev1.Volume) error {
	for kind, instead := range refused(v.VolumeSource) {
		return fmt.Errorf("volumes of kind %s are not supported; %s: %w", kind, instead, errdefs.ErrUnimplemented)
	}
	return nil
}

// Source says that of a part of a projected volume.
func Source(p corev1.VolumeProjection) error {
	switch {
	case p.ClusterTrustBundle != nil:
		return fmt.Errorf("projected source clusterTrustBundle is not supported; put the certificates into a ConfigMap: %w", errdefs.ErrUnimplemented)
	case p.PodCertificate != nil:
		return fmt.Errorf("projected source podCertificate is not supported; use a Secret, or a CSI driver that issues certificates: %w", errdefs.ErrUnimplemented)
	case p.ConfigMap == nil && p.Secret == nil && p.DownwardAPI == nil && p.ServiceAccountToken == nil:
		return fmt.Errorf("a projected source names no kind: %w", errdefs.ErrInvalidArgument)
	}
	return nil
}

// Reason is why a pod is refused that has such a volume.
const Reason = "UnsupportedVolume"

// Pod lists every volume of a pod that can never be made here, with what
// to use instead, so that the pod is refused when it is admitted.
func Pod(pod *corev1.Pod) error {
	var errs []error
	add := func(v *corev1.Volume, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("volume %s: %w", v.Name, err))
		}
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		add(v, Kind(v))
		if v.Projected != nil {
			for _, p := range v.Projected.Sources {
				add(v, Source(p))
			}
		}
		if e := v.Ephemeral; e != nil && e.VolumeClaimTemplate != nil && IsBlock(e.VolumeClaimTemplate.Spec.VolumeMode) {
			add(v, ErrBlock)
		}
	}
	for _, ct := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if len(ct.VolumeDevices) > 0 {
			errs = append(errs, fmt.Errorf("container %s: volumeDevices: %w", ct.Name, ErrBlock))
		}
	}
	return errors.Join(errs...)
}

// ErrBlock is that a volume is a device and no file system.
var ErrBlock = fmt.Errorf("%s: %w", insteadOfBlocks, errdefs.ErrUnimplemented)

// IsBlock says that a volume is a device.
func IsBlock(m *corev1.PersistentVolumeMode) bool {
	return m != nil && *m == corev1.PersistentVolumeBlock
}
