package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// references finds what a pod refers to and the manifests do not hold.
// RuntimeClasses are looked up later, where the handlers are known too.
func (o *Objects) references(pod *corev1.Pod) []string {
	r := refs{objects: o, namespace: pod.Namespace}
	for i, s := range pod.Spec.ImagePullSecrets {
		r.secret(fmt.Sprintf("spec.imagePullSecrets[%d].name", i), s.Name, "", nil)
	}
	if why := o.unclassed(pod); why != "" {
		r.missing = append(r.missing, why)
	}
	r.contents(pod)
	return r.missing
}

// onlyServed finds what a static pod cannot run without and only an API server has. Its
// pull secrets are not among that: the image may be there, or be anybody's.
func onlyServed(pod *corev1.Pod) []string {
	r := refs{objects: newObjects(), namespace: pod.Namespace, static: true}
	r.contents(pod)
	return r.missing
}

// contents are what volumes and variables are made of.
func (r *refs) contents(pod *corev1.Pod) {
	for i, v := range pod.Spec.Volumes {
		r.volume(fmt.Sprintf("spec.volumes[%d]", i), v)
	}
	for i := range pod.Spec.InitContainers {
		r.env(fmt.Sprintf("spec.initContainers[%d]", i), &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		r.env(fmt.Sprintf("spec.containers[%d]", i), &pod.Spec.Containers[i])
	}
}

type refs struct {
	objects   *Objects
	namespace string
	static    bool // see onlyServed
	missing   []string
}

// configMap wants an object and, unless key is empty, a key in it.
func (r *refs) configMap(path, name, key string, optional *bool) {
	if optional != nil && *optional {
		return
	}
	cm, ok := r.objects.ConfigMaps[Key{r.namespace, name}]
	if !ok {
		r.lack(path, "ConfigMap", name)
		return
	}
	_, text := cm.Data[key]
	_, binary := cm.BinaryData[key]
	if key != "" && !text && !binary {
		r.missing = append(r.missing, fmt.Sprintf("%s: ConfigMap %s/%s has no key %q", path, r.namespace, name, key))
	}
}

func (r *refs) secret(path, name, key string, optional *bool) {
	if optional != nil && *optional {
		return
	}
	s, ok := r.objects.Secrets[Key{r.namespace, name}]
	if !ok {
		r.lack(path, "Secret", name)
		return
	}
	if _, ok := s.Data[key]; key != "" && !ok {
		r.missing = append(r.missing, fmt.Sprintf("%s: Secret %s/%s has no key %q", path, r.namespace, name, key))
	}
}

func (r *refs) lack(path, kind, name string) {
	if r.static {
		r.missing = append(r.missing, fmt.Sprintf("%s: a static pod cannot use a %s, which only the API server has; use a file of the node (hostPath) or a value, or run the pod as a DaemonSet", path, kind))
		return
	}
	r.missing = append(r.missing, fmt.Sprintf("%s: no %s %s/%s is in the files given; add it", path, kind, r.namespace, name))
}

func (r *refs) volume(path string, v corev1.Volume) {
	if c := v.ConfigMap; c != nil {
		r.configMapItems(path+".configMap", c.Name, c.Items, c.Optional)
	}
	if s := v.Secret; s != nil {
		r.secretItems(path+".secret", s.SecretName, s.Items, s.Optional)
	}
	if c := v.PersistentVolumeClaim; c != nil && r.objects.Claims[Key{r.namespace, c.ClaimName}] == nil {
		r.lack(path+".persistentVolumeClaim", "PersistentVolumeClaim", c.ClaimName)
	}
	if v.Projected == nil {
		return
	}
	for i, s := range v.Projected.Sources {
		at := fmt.Sprintf("%s.projected.sources[%d]", path, i)
		if s.ConfigMap != nil {
			r.configMapItems(at+".configMap", s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional)
		}
		if s.Secret != nil {
			r.secretItems(at+".secret", s.Secret.Name, s.Secret.Items, s.Secret.Optional)
		}
	}
}

func (r *refs) configMapItems(path, name string, items []corev1.KeyToPath, optional *bool) {
	if len(items) == 0 {
		r.configMap(path, name, "", optional)
	}
	for i, item := range items {
		r.configMap(fmt.Sprintf("%s.items[%d].key", path, i), name, item.Key, optional)
	}
}

func (r *refs) secretItems(path, name string, items []corev1.KeyToPath, optional *bool) {
	if len(items) == 0 {
		r.secret(path, name, "", optional)
	}
	for i, item := range items {
		r.secret(fmt.Sprintf("%s.items[%d].key", path, i), name, item.Key, optional)
	}
}

// noNUL refuses values that the environment of a process cannot hold: the one
// of the key, or all if key is empty.
func noNUL[T ~string | ~[]byte](r *refs, path, key string, data map[string]T) {
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if (key == "" || name == key) && strings.ContainsRune(string(data[name]), 0) {
			r.missing = append(r.missing, fmt.Sprintf("%s: the value of key %q holds a NUL character, so it cannot be a variable; mount it as a file", path, name))
		}
	}
}

func (r *refs) env(path string, ct *corev1.Container) {
	for i, e := range ct.Env {
		if e.ValueFrom == nil {
			continue
		}
		at := fmt.Sprintf("%s.env[%d].valueFrom", path, i)
		if k := e.ValueFrom.ConfigMapKeyRef; k != nil {
			r.configMap(at+".configMapKeyRef", k.Name, k.Key, k.Optional)
			if cm := r.objects.ConfigMaps[Key{r.namespace, k.Name}]; cm != nil {
				noNUL(r, at+".configMapKeyRef", k.Key, cm.Data)
			}
		}
		if k := e.ValueFrom.SecretKeyRef; k != nil {
			r.secret(at+".secretKeyRef", k.Name, k.Key, k.Optional)
			if s := r.objects.Secrets[Key{r.namespace, k.Name}]; s != nil {
				noNUL(r, at+".secretKeyRef", k.Key, s.Data)
			}
		}
	}
	for i, e := range ct.EnvFrom {
		at := fmt.Sprintf("%s.envFrom[%d]", path, i)
		if c := e.ConfigMapRef; c != nil {
			r.configMap(at+".configMapRef", c.Name, "", c.Optional)
			if cm := r.objects.ConfigMaps[Key{r.namespace, c.Name}]; cm != nil {
				noNUL(r, at+".configMapRef", "", cm.Data)
			}
		}
		if s := e.SecretRef; s != nil {
			r.secret(at+".secretRef", s.Name, "", s.Optional)
			if secret := r.objects.Secrets[Key{r.namespace, s.Name}]; secret != nil {
				noNUL(r, at+".secretRef", "", secret.Data)
			}
		}
	}
}
