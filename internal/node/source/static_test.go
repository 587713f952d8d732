package source

import (
	"reflect"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/node/manifest"
)

func web(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Labels: map[string]string{"a": "1", "b": "2"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

// TestUID changes what makes a pod another one.
func TestUID(t *testing.T) {
	uid := UID(web(nil), "n")
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(string(uid)) {
		t.Errorf("%s is not a UUID", uid)
	}
	// A release that computed it otherwise would replace every pod.
	if want := "acbe2fae-6603-8953-93e2-2d4fab6ce1ed"; string(uid) != want {
		t.Errorf("the UID of the same pod was %s, and is %s", want, uid)
	}
	seen := map[string]string{string(uid): "nothing"}
	for what, other := range map[string]*corev1.Pod{
		"name":      web(func(p *corev1.Pod) { p.Name = "web2" }),
		"namespace": web(func(p *corev1.Pod) { p.Namespace = "n" }),
		"label":     web(func(p *corev1.Pod) { p.Labels["a"] = "2" }),
		"image":     web(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "j" }),
	} {
		u := string(UID(other, "n"))
		if before := seen[u]; before != "" {
			t.Errorf("a change of %s makes the same UID as one of %s", what, before)
		}
		seen[u] = what
	}
	if UID(web(nil), "m") == uid {
		t.Error("two nodes have the same UID")
	}
}

func TestStatic(t *testing.T) {
	from := &manifest.Pod{Pod: web(nil), Origin: "web.yaml:1", Owner: "o", OwnerKind: "Deployment"}
	before := from.DeepCopy()
	alone := Static([]*manifest.Pod{from}, Node{Name: "n"})[0]
	from.From = Address
	joined := Static([]*manifest.Pod{from}, Node{Name: "Node-1", Cluster: true})[0]
	if !reflect.DeepEqual(from.Pod, before) {
		t.Error("the pod of the set was changed")
	}
	if alone.Name != "web" || alone.Spec.NodeName != "n" || alone.UID == "" || alone.Annotations[HashAnnotation] != string(alone.UID) ||
		alone.Annotations[SourceAnnotation] != "file" || alone.Origin != from.Origin || alone.Owner != "o" || len(alone.Spec.Tolerations) != 0 {
		t.Errorf("%+v", alone)
	}
	if joined.Name != "web-node-1" || joined.Annotations[SourceAnnotation] != "http" || len(joined.Spec.Tolerations) != 1 {
		t.Errorf("%+v", joined)
	}
}
