package advert_test

import (
	"encoding/json"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/node/advert"
	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/pkg/runtimeclass/policy"
)

var handlers = []advert.Handler{
	{Name: "runc", Works: true, Features: []string{"user-namespaces", "checkpoints"}},
	{Name: "gvisor", Works: true},
	{Name: "kata", Features: []string{"seccomp"}},
	{Name: "new", OnTrial: true},
}

func TestPatch(t *testing.T) {
	for name, tt := range map[string]struct {
		labels, annotations map[string]string
		want                string
	}{
		"a node without": {nil, nil, `{"metadata":{"annotations":{"features.fairlead.run/gvisor":"","features.fairlead.run/runc":"checkpoints,userNamespaces"},"labels":{"handler.fairlead.run/gvisor":"true","handler.fairlead.run/kata":"false","handler.fairlead.run/runc":"true"}}}`},
		"one that says so, and more": {
			map[string]string{"zone": "a", "handler.fairlead.run/new": "false", "handler.fairlead.run/gvisor": "true", "handler.fairlead.run/kata": "false", "handler.fairlead.run/runc": "true"},
			map[string]string{"note": "b", "features.fairlead.run/new": "seccomp", "features.fairlead.run/gvisor": "", "features.fairlead.run/runc": "checkpoints,userNamespaces"},
			"",
		},
		"handlers that went and failed": {
			map[string]string{"handler.fairlead.run/gvisor": "true", "handler.fairlead.run/kata": "true", "handler.fairlead.run/old": "true", "handler.fairlead.run/runc": "true"},
			map[string]string{"features.fairlead.run/gvisor": "", "features.fairlead.run/kata": "seccomp", "features.fairlead.run/runc": "checkpoints,userNamespaces"},
			`{"metadata":{"annotations":{"features.fairlead.run/kata":null},"labels":{"handler.fairlead.run/kata":"false","handler.fairlead.run/old":null}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			patch, err := advert.Patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tt.labels, Annotations: tt.annotations}}, handlers)
			if err != nil {
				t.Fatal(err)
			}
			var got, want any
			if tt.want == "" && patch == nil {
				return
			}
			if json.Unmarshal(patch, &got) != nil || json.Unmarshal([]byte(tt.want), &want) != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got  %s\nwant %s", patch, tt.want)
			}
		})
	}
}

// What is written here is read by those who match classes.
func TestWantedIsUnderstood(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	n.Labels, n.Annotations = advert.Wanted(handlers)
	fleet := policy.NewFleet([]*corev1.Node{n})
	class := func(handler string) *nodev1.RuntimeClass {
		return &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: handler}, Handler: handler}
	}
	for handler, serves := range map[string]bool{"runc": true, "gvisor": true, "kata": false, "unknown": false} {
		if got := runtimeclass.Serves(n, class(handler)); got != serves {
			t.Errorf("handler %s: serves is %t", handler, got)
		}
	}
	for handler, want := range map[string]policy.Support{"runc": policy.Supported, "gvisor": policy.Unsupported} {
		if got, why := fleet.Supports(class(handler), "checkpoint"); got != want {
			t.Errorf("checkpoints of %s: %s (%s), want %s", handler, got, why, want)
		}
	}
}
