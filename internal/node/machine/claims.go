package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/manifest"
)

// claims binds each claim of the manifests to a folder of its own below the persistent
// folder. It outlives the claim: what people have stored there is theirs to remove. It is a
// local volume, so that pods that do not run as root have it by their fsGroup.
type claims struct{ m *Machine }

// Claim implements volume.Claims.
func (c claims) Claim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim := c.m.read().Claims[manifest.Key{Namespace: namespace, Name: name}]
	if claim == nil {
		return nil, nil
	}
	return bound(claim), nil
}

// bound is a claim as it is once it has its folder.
func bound(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	out := claim.DeepCopy()
	out.Spec.VolumeName = claim.Namespace + "/" + claim.Name
	out.Status.Phase = corev1.ClaimBound
	return out
}

// Volume implements volume.Claims.
func (c claims) Volume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	namespace, claim, ok := strings.Cut(name, "/")
	owner := c.m.read().Claims[manifest.Key{Namespace: namespace, Name: claim}]
	if !ok || owner == nil {
		return nil, nil
	}
	path := filepath.Join(c.m.cfg.Root, "claims", namespace, claim)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of claim %s: %w", name, err)
	}
	v := &corev1.PersistentVolume{}
	v.Name = name
	v.Spec.AccessModes, v.Spec.Capacity = owner.Spec.AccessModes, owner.Spec.Resources.Requests
	v.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: namespace, Name: claim, UID: owner.UID}
	v.Spec.Local = &corev1.LocalVolumeSource{Path: path}
	v.Status.Phase = corev1.VolumeBound
	return v, nil
}
