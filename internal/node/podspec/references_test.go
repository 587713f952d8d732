package podspec

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestReferences(t *testing.T) {
	name := func(n string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: n} }
	container := corev1.Container{
		Env: []corev1.EnvVar{
			{Name: "plain"},
			{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: name("c-env")}}},
			{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: name("s-env")}}},
		},
		EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: name("c-from")}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: name("s-from")}},
		},
	}
	got := ReferencesOf(&corev1.Pod{Spec: corev1.PodSpec{
		ImagePullSecrets: []corev1.LocalObjectReference{name("s-pull"), name("")},
		Containers:       []corev1.Container{container},
		InitContainers:   []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: name("s-init")}}}}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: name("s-debug")}}},
		}}},
		Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s-vol"}}},
			{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: &corev1.LocalObjectReference{Name: "s-csi"}}}},
			{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: name("c-proj")}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: name("s-proj")}},
			}}}},
		},
	}})
	for what, tt := range map[string]struct {
		got  map[string]bool
		want string
	}{
		"ConfigMaps": {got.ConfigMaps, "c-env c-from c-proj"},
		"Secrets":    {got.Secrets, "s-csi s-debug s-env s-from s-init s-proj s-pull s-vol"},
	} {
		var names []string
		for n := range tt.got {
			names = append(names, n)
		}
		slices.Sort(names)
		if text := strings.Join(names, " "); text != tt.want {
			t.Errorf("the %s are %s, want %s", what, text, tt.want)
		}
	}
}
