package source

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/manifest"
)

// Claims binds each PersistentVolumeClaim of a set to a folder of its own, which
// stays when the pods that use it, and the claim, are gone.
type Claims struct {
	objects *manifest.Objects
	root    string
	byName  map[string]manifest.Key // claims by their volumes
}

// NewClaims binds the claims of a set to the folders root/NAMESPACE/NAME.
func NewClaims(objects *manifest.Objects, root string) *Claims {
	c := &Claims{objects: objects, root: root, byName: map[string]manifest.Key{}}
	for key := range objects.Claims {
		c.byName[volumeName(key)] = key
	}
	return c
}

func volumeName(k manifest.Key) string {
	sum := sha256.Sum256([]byte(k.String()))
	return fmt.Sprintf("claim-%x", sum[:8])
}

// Claim is a claim of the set as it is when it is bound, or nil.
func (c *Claims) Claim(namespace, name string) *corev1.PersistentVolumeClaim {
	key := manifest.Key{Namespace: namespace, Name: name}
	from := c.objects.Claims[key]
	if from == nil {
		return nil
	}
	claim := from.DeepCopy()
	claim.UID = types.UID(volumeName(key))
	claim.Spec.VolumeName = volumeName(key)
	claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests}
	return claim
}

// Volume is what a claim is bound to, or nil.
func (c *Claims) Volume(name string) *corev1.PersistentVolume {
	key, ok := c.byName[name]
	if !ok {
		return nil
	}
	claim := c.Claim(key.Namespace, key.Name)
	kind := corev1.HostPathDirectoryOrCreate
	v := &corev1.PersistentVolume{}
	v.Name = name
	v.Spec = corev1.PersistentVolumeSpec{
		AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests, VolumeMode: claim.Spec.VolumeMode,
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: key.Namespace, Name: key.Name, UID: claim.UID},
	}
	v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: filepath.Join(c.root, key.Namespace, key.Name), Type: &kind}
	v.Status.Phase = corev1.VolumeBound
	return v
}
