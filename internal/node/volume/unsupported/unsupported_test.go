package unsupported

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func source(s corev1.VolumeSource) corev1.Volume { return corev1.Volume{Name: "v", VolumeSource: s} }

// Every kind of volume that Kubernetes has is either made here or refused by name.
func TestEveryKindIsMadeOrRefused(t *testing.T) {
	made := map[string]bool{
		"HostPath": true, "EmptyDir": true, "Secret": true, "ConfigMap": true, "DownwardAPI": true,
		"Projected": true, "PersistentVolumeClaim": true, "CSI": true, "Ephemeral": true, "Image": true,
	}
	kind := reflect.TypeFor[corev1.VolumeSource]()
	for i := range kind.NumField() {
		f := kind.Field(i)
		var s corev1.VolumeSource
		reflect.ValueOf(&s).Elem().Field(i).Set(reflect.New(f.Type.Elem()))
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		err := Pod(&corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{source(s)}}})
		switch {
		case made[f.Name] && err != nil:
			t.Errorf("%s: %v", name, err)
		case !made[f.Name] && (err == nil || !strings.Contains(err.Error(), "volume v: volumes of kind "+name+" are not supported; ")):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnsupportedParts(t *testing.T) {
	block := corev1.PersistentVolumeBlock
	for want, change := range map[string]func(*corev1.Pod){
		"clusterTrustBundle": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{source(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}}}})}
		},
		"volumeMode Block": func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{source(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{VolumeMode: &block}}}})}
		},
		"container c: volumeDevices": func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Name: "c", VolumeDevices: []corev1.VolumeDevice{{Name: "v"}}}}
		},
	} {
		pod := &corev1.Pod{}
		change(pod)
		if err := Pod(pod); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
