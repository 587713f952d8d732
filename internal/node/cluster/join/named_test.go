package join

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestNamed finds the pod that is there now, in whatever order pods come.
func TestNamed(t *testing.T) {
	now := time.Now()
	pod := func(namespace, name, uid string, made time.Time, ends bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid), CreationTimestamp: metav1.NewTime(made)}}
		if ends {
			p.DeletionTimestamp = &metav1.Time{Time: now}
		}
		return p
	}
	pods := []*corev1.Pod{
		pod("a", "forced", "new", now, false), pod("a", "forced", "old", now.Add(-time.Hour), true),
		pod("a", "static", "new", time.Time{}, false), pod("a", "static", "old", time.Time{}, true),
		pod("a", "both", "new", now, true), pod("a", "both", "old", now.Add(-time.Hour), true),
		pod("b", "forced", "other", now.Add(time.Hour), false),
	}
	for range 2 {
		for _, tt := range []struct{ namespace, name, uid, want string }{
			{"a", "forced", "", "new"},
			{"a", "forced", "old", "old"},
			{"a", "static", "", "new"},
			{"a", "both", "", "new"},
			{"b", "forced", "", "other"},
			{"b", "static", "", ""},
			{"a", "forced", "none", ""},
		} {
			got := ""
			if p := named(pods, tt.namespace, tt.name, types.UID(tt.uid)); p != nil {
				got = string(p.UID)
			}
			if got != tt.want {
				t.Errorf("%s/%s with uid %q is %q, want %q", tt.namespace, tt.name, tt.uid, got, tt.want)
			}
		}
		slices.Reverse(pods)
	}
}
