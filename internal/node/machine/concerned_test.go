package machine

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/manifest"
)

// TestConcerned finds the pods that refer to something that has changed, and no others.
func TestConcerned(t *testing.T) {
	const objects = `apiVersion: v1
kind: ConfigMap
metadata: {name: words}
data: {a: "1"}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {a: "one"}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: class}
handler: a
`
	words := corev1.LocalObjectReference{Name: "words"}
	var pods []*corev1.Pod
	for name, spec := range map[string]corev1.PodSpec{
		"words": {Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: words}}}}},
		"key":   {Containers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "key"}}}}}}},
		"disk":  {Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}}}},
		"class": {RuntimeClassName: new("class")},
		"alone": {},
	} {
		p := &corev1.Pod{Spec: spec}
		p.Namespace, p.UID = "default", types.UID(name)
		pods = append(pods, p)
	}
	read := func(text string) *manifest.Objects {
		t.Helper()
		o, err := manifest.Decode([]manifest.Source{{Name: "a.yaml", Data: []byte(text)}})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	before := read(objects)
	for what, tt := range map[string]struct{ old, now, want string }{
		"nothing":          {"", "", ""},
		"a ConfigMap":      {`{a: "1"}`, `{a: "2"}`, "words"},
		"a Secret":         {"one", "two", "key"},
		"a claim":          {"1Gi", "2Gi", "disk"},
		"a RuntimeClass":   {"handler: a", "handler: b", "class"},
		"one that is gone": {"{name: words}", "{name: others}", "words"},
		"none of theirs":   {"---\n", "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: another}\n---\n", ""},
	} {
		now := read(strings.Replace(objects, tt.old, tt.now, 1))
		if got := strings.Trim(fmt.Sprint(concerned(pods, before, now)), "[]"); got != tt.want {
			t.Errorf("%s: %q, want %q", what, got, tt.want)
		}
	}
	if got := concerned(pods, nil, before); got != nil {
		t.Errorf("%q, though nothing was known before", got)
	}
}
