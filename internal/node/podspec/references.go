package podspec

import corev1 "k8s.io/api/core/v1"

// References are the names of ConfigMaps and Secrets, in its own namespace, that a
// pod refers to, and that a node may read for that reason.
type References struct{ ConfigMaps, Secrets map[string]bool }

// ReferencesOf are those of a pod.
func ReferencesOf(pod *corev1.Pod) References {
	r := References{map[string]bool{}, map[string]bool{}}
	for _, s := range pod.Spec.ImagePullSecrets {
		r.secret(s.Name)
	}
	for i := range pod.Spec.Volumes {
		r.volume(&pod.Spec.Volumes[i])
	}
	for i := range pod.Spec.InitContainers {
		r.env(pod.Spec.InitContainers[i].Env, pod.Spec.InitContainers[i].EnvFrom)
	}
	for i := range pod.Spec.Containers {
		r.env(pod.Spec.Containers[i].Env, pod.Spec.Containers[i].EnvFrom)
	}
	for i := range pod.Spec.EphemeralContainers {
		r.env(pod.Spec.EphemeralContainers[i].Env, pod.Spec.EphemeralContainers[i].EnvFrom)
	}
	return r
}

func (r References) configMap(name string) {
	if name != "" {
		r.ConfigMaps[name] = true
	}
}

func (r References) secret(name string) {
	if name != "" {
		r.Secrets[name] = true
	}
}

func (r References) volume(v *corev1.Volume) {
	if v.ConfigMap != nil {
		r.configMap(v.ConfigMap.Name)
	}
	if v.Secret != nil {
		r.secret(v.Secret.SecretName)
	}
	if v.CSI != nil && v.CSI.NodePublishSecretRef != nil {
		r.secret(v.CSI.NodePublishSecretRef.Name)
	}
	if v.Projected == nil {
		return
	}
	for _, s := range v.Projected.Sources {
		if s.ConfigMap != nil {
			r.configMap(s.ConfigMap.Name)
		}
		if s.Secret != nil {
			r.secret(s.Secret.Name)
		}
	}
}

func (r References) env(env []corev1.EnvVar, from []corev1.EnvFromSource) {
	for _, e := range env {
		if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
			r.configMap(e.ValueFrom.ConfigMapKeyRef.Name)
		}
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			r.secret(e.ValueFrom.SecretKeyRef.Name)
		}
	}
	for _, e := range from {
		if e.ConfigMapRef != nil {
			r.configMap(e.ConfigMapRef.Name)
		}
		if e.SecretRef != nil {
			r.secret(e.SecretRef.Name)
		}
	}
}
