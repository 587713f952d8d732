package volume

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/errdefs"
)

// instead says what to use in the place of kinds of volumes that are not there.
// They were taken out of Kubernetes for CSI drivers, or are about to be.
const (
	insteadCSI      = "use a PersistentVolumeClaim of a CSI driver"
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
		{"gcePersistentDisk", s.GCEPersistentDisk != nil, insteadCSI},
		{"awsElasticBlockStore", s.AWSElasticBlockStore != nil, insteadCSI},
		{"gitRepo", s.GitRepo != nil, insteadGit},
		{"nfs", s.NFS != nil, insteadNFS},
		{"iscsi", s.ISCSI != nil, insteadCSI},
		{"glusterfs", s.Glusterfs != nil, insteadCSI},
		{"rbd", s.RBD != nil, insteadCSI},
		{"flexVolume", s.FlexVolume != nil, insteadFlex},
		{"cinder", s.Cinder != nil, insteadCSI},
		{"cephfs", s.CephFS != nil, insteadCSI},
		{"flocker", s.Flocker != nil, insteadCSI},
		{"fc", s.FC != nil, insteadCSI},
		{"azureFile", s.AzureFile != nil, insteadCSI},
		{"vsphereVolume", s.VsphereVolume != nil, insteadCSI},
		{"quobyte", s.Quobyte != nil, insteadCSI},
		{"azureDisk", s.AzureDisk != nil, insteadCSI},
		{"photonPersistentDisk", s.PhotonPersistentDisk != nil, insteadCSI},
		{"portworxVolume", s.PortworxVolume != nil, insteadCSI},
		{"scaleIO", s.ScaleIO != nil, insteadCSI},
		{"storageos", s.StorageOS != nil, insteadCSI},
	}
	out := map[string]string{}
	for _, k := range all {
		if k.set {
			out[k.name] = k.instead
		}
	}
	return out
}

func unsupportedKind(v *corev1.Volume) error {
	for kind, instead := range refused(v.VolumeSource) {
		return fmt.Errorf("volumes of kind %s are not supported; %s: %w", kind, instead, errdefs.ErrUnimplemented)
	}
	return nil
}

func unsupportedSource(p corev1.VolumeProjection) error {
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

// ReasonUnsupported is why a pod is refused that has such a volume.
const ReasonUnsupported = "UnsupportedVolume"

// Unsupported lists every volume of a pod that can never be made here, with what
// to use instead, so that the pod is refused when it is admitted.
func Unsupported(pod *corev1.Pod) error {
	var errs []error
	add := func(v *corev1.Volume, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("volume %s: %w", v.Name, err))
		}
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		add(v, unsupportedKind(v))
		if v.Projected != nil {
			for _, p := range v.Projected.Sources {
				add(v, unsupportedSource(p))
			}
		}
		if e := v.Ephemeral; e != nil && e.VolumeClaimTemplate != nil && isBlock(e.VolumeClaimTemplate.Spec.VolumeMode) {
			add(v, errBlock)
		}
	}
	for _, ct := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if len(ct.VolumeDevices) > 0 {
			errs = append(errs, fmt.Errorf("container %s: volumeDevices: %w", ct.Name, errBlock))
		}
	}
	return errors.Join(errs...)
}

var errBlock = fmt.Errorf("%s: %w", insteadOfBlocks, errdefs.ErrUnimplemented)

func isBlock(m *corev1.PersistentVolumeMode) bool {
	return m != nil && *m == corev1.PersistentVolumeBlock
}
