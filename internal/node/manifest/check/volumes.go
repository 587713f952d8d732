package check

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

func isLocal(path string) bool { return path != "" && filepath.IsLocal(path) && path != "." }

func checkVolumes(f *faults, path string, volumes []corev1.Volume) {
	seen := map[string]bool{}
	for i := range volumes {
		v, at := &volumes[i], fmt.Sprintf("%s[%d]", path, i)
		if p := validation.IsDNS1123Label(v.Name); len(p) > 0 {
			f.all(at+".name", v.Name, p)
		}
		if seen[v.Name] {
			f.add(at+".name", "%q is the name of an earlier volume", v.Name)
		}
		seen[v.Name] = true
		checkVolume(f, at, v)
	}
}

func checkVolume(f *faults, at string, v *corev1.Volume) {
	if v.EmptyDir != nil {
		if l := v.EmptyDir.SizeLimit; l != nil {
			checkBytes(f, at+".emptyDir.sizeLimit", *l)
		}
		if text, ok := strings.CutPrefix(string(v.EmptyDir.Medium), string(corev1.StorageMediumHugePagesPrefix)); ok {
			if size, err := resource.ParseQuantity(text); err != nil || size.Sign() <= 0 {
				f.add(at+".emptyDir.medium", "%q is no size of pages, such as 2Mi in HugePages-2Mi", text)
			}
		}
	}
	if h := v.HostPath; h != nil {
		checkHostPath(f, at+".hostPath", h)
	}
	if i := v.Image; i != nil {
		checkImage(f, at+".image.reference", i.Reference)
		oneOf(f, at+".image.pullPolicy", i.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	}
	if v.ConfigMap != nil {
		checkItems(f, at+".configMap", v.ConfigMap.Items, v.ConfigMap.DefaultMode)
		required(f, at+".configMap.name", v.ConfigMap.Name)
	}
	if v.Secret != nil {
		checkItems(f, at+".secret", v.Secret.Items, v.Secret.DefaultMode)
		required(f, at+".secret.secretName", v.Secret.SecretName)
	}
	if c := v.PersistentVolumeClaim; c != nil {
		required(f, at+".persistentVolumeClaim.claimName", c.ClaimName)
	}
	if v.DownwardAPI != nil {
		checkDownward(f, at+".downwardAPI", v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	}
	if v.Projected != nil {
		checkMode(f, at+".projected.defaultMode", v.Projected.DefaultMode)
		for i, s := range v.Projected.Sources {
			checkProjection(f, fmt.Sprintf("%s.projected.sources[%d]", at, i), s)
		}
	}
	switch kinds := kindsOf(v.VolumeSource); {
	case kinds == 0:
		f.add(at, "names no kind of volume: one of emptyDir, hostPath, image, configMap, secret, downwardAPI, projected, persistentVolumeClaim is required")
	case kinds > 1:
		f.add(at, "names more than one kind of volume")
	}
}

// kindsOf counts the kinds that a volume names, also those that nothing here is checked of.
func kindsOf(s corev1.VolumeSource) (n int) {
	for _, kind := range reflect.ValueOf(s).Fields() {
		if !kind.IsNil() {
			n++
		}
	}
	return n
}

func checkHostPath(f *faults, at string, h *corev1.HostPathVolumeSource) {
	if !filepath.IsAbs(h.Path) || strings.Contains(h.Path, "..") {
		f.add(at+".path", "%q is not an absolute path without ..", h.Path)
	}
	if h.Type != nil {
		oneOf(f, at+".type", *h.Type, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory, corev1.HostPathFileOrCreate,
			corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)
	}
}

func checkProjection(f *faults, at string, s corev1.VolumeProjection) {
	kinds := 0
	if s.ConfigMap != nil {
		kinds++
		checkItems(f, at+".configMap", s.ConfigMap.Items, nil)
		required(f, at+".configMap.name", s.ConfigMap.Name)
	}
	if s.Secret != nil {
		kinds++
		checkItems(f, at+".secret", s.Secret.Items, nil)
		required(f, at+".secret.name", s.Secret.Name)
	}
	if s.DownwardAPI != nil {
		kinds++
		checkDownward(f, at+".downwardAPI", s.DownwardAPI.Items, nil)
	}
	if kinds != 1 {
		f.add(at, "must name exactly one of configMap, secret, downwardAPI")
	}
}

func required(f *faults, path, value string) {
	if value == "" {
		f.add(path, "is required")
	}
}

func checkMode(f *faults, path string, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		f.add(path, "%d is not between 0 and 511 (octal 0777)", *mode)
	}
}

func checkItems(f *faults, at string, items []corev1.KeyToPath, mode *int32) {
	checkMode(f, at+".defaultMode", mode)
	seen := map[string]bool{}
	for i, item := range items {
		path := fmt.Sprintf("%s.items[%d]", at, i)
		required(f, path+".key", item.Key)
		checkFile(f, path, item.Path, item.Mode)
		if seen[filepath.Clean(item.Path)] {
			f.add(path+".path", "%q is the path of an earlier item", item.Path)
		}
		seen[filepath.Clean(item.Path)] = true
	}
}

func checkFile(f *faults, at, path string, mode *int32) {
	if !isLocal(path) || strings.HasPrefix(path, "..") {
		f.add(at+".path", "%q is not a relative path without ..", path)
	}
	checkMode(f, at+".mode", mode)
}

func checkDownward(f *faults, at string, items []corev1.DownwardAPIVolumeFile, mode *int32) {
	checkMode(f, at+".defaultMode", mode)
	for i, item := range items {
		path := fmt.Sprintf("%s.items[%d]", at, i)
		checkFile(f, path, item.Path, item.Mode)
		if (item.FieldRef == nil) == (item.ResourceFieldRef == nil) {
			f.add(path, "must have one of fieldRef and resourceFieldRef")
			continue
		}
		if item.FieldRef != nil && !knownField(item.FieldRef.FieldPath, true) {
			f.add(path+".fieldRef.fieldPath", "%q is not a field that a volume can hold", item.FieldRef.FieldPath)
		}
		if r := item.ResourceFieldRef; r != nil {
			checkResourceField(f, path+".resourceFieldRef", r)
			required(f, path+".resourceFieldRef.containerName", r.ContainerName)
		}
	}
}

// knownField says whether the downward API has a field: in a volume metadata
// only, in the environment what is single.
func knownField(path string, volume bool) bool {
	if name, key, ok := strings.Cut(path, "['"); ok {
		return (name == "metadata.labels" || name == "metadata.annotations") && strings.HasSuffix(key, "']")
	}
	switch path {
	case "metadata.name", "metadata.namespace", "metadata.uid":
		return true
	case "metadata.labels", "metadata.annotations":
		return volume
	case "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs":
		return !volume
	}
	return false
}

func checkResourceField(f *faults, at string, r *corev1.ResourceFieldSelector) {
	list, word, _ := strings.Cut(r.Resource, ".")
	name := corev1.ResourceName(word)
	known := name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage || isPages(name)
	if list != "limits" && list != "requests" || !known {
		f.add(at+".resource", "%q is not one of limits or requests of cpu, memory, ephemeral-storage and hugepages-SIZE, such as limits.cpu", r.Resource)
	}
	if r.Divisor.Sign() < 0 {
		f.add(at+".divisor", "%s is negative", r.Divisor.String())
	}
}
