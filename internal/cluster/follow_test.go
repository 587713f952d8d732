package cluster

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"fairlead.run/test/apiserver"
)

// One of the handlers waits until a time that all bubbles would share.
func init() { utilruntime.ErrorHandlers = nil }

func podOn(node, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: node}}
}

// What a server does to a watch must not be seen in what is followed.
func TestFollowGoesOn(t *testing.T) {
	pods := apiserver.Resource{Path: "api/v1/pods", Kind: "Pod", Namespaced: true}
	for name, trouble := range map[string]func(w http.ResponseWriter, r *http.Request){
		"429": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"500":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"gone": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) },
		"gone within the stream": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`)
		},
		"cut off":       func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"type":"ADDED","object":{"kind":"Po`) },
		"hangs":         func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"hangs in body": func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := apiserver.InMemory(t, pods)
				server.Put(pods, podOn("here", "a"))
				server.Put(pods, podOn("there", "b"))
				client, err := NewClient(server.Config())
				if err != nil {
					t.Fatal(err)
				}
				var troubled atomic.Int32
				server.Intercept(func(_ apiserver.Call, w http.ResponseWriter, r *http.Request) bool {
					if troubled.Add(1) > 3 {
						return false
					}
					trouble(w, r)
					return true
				})
				store, run := Follow(client, Query{
					From: corev1.SchemeGroupVersion.WithResource(Pods), Selector: fields.OneTermEqualSelector("spec.nodeName", "here"),
				}, &corev1.Pod{}, itself[*corev1.Pod])
				go run(t.Context())
				await(t, store, "default/a")
				troubled.Store(0)
				server.Put(pods, podOn("here", "c"))
				await(t, store, "default/c")
				server.Delete(pods, "default/a")
				time.Sleep(time.Hour)
				if got := store.List(); len(got) != 1 || got[0].Name != "c" {
					t.Errorf("follows %v, want c only", got)
				}
			})
		})
	}
}

// await takes at most two of the longest watches.
func await[T any](t *testing.T, s *Store[T], key string) {
	t.Helper()
	for range 120 {
		for _, name := range s.Names() {
			if name == key {
				return
			}
		}
		time.Sleep(time.Minute)
	}
	t.Fatalf("%s did not come: %+v", key, s.Status())
}

func TestChangesTellsOfAnEmptyList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := apiserver.Resource{Path: "api/v1/pods", Kind: "Pod", Namespaced: true}
		client, err := NewClient(apiserver.InMemory(t, pods).Config())
		if err != nil {
			t.Fatal(err)
		}
		store, run := Follow(client, Query{From: corev1.SchemeGroupVersion.WithResource(Pods)}, &corev1.Pod{}, itself[*corev1.Pod])
		go run(t.Context())
		<-store.Changes()
		if s := store.Status(); !s.Synced || s.Objects != 0 {
			t.Errorf("the status is %+v, want synced without objects", s)
		}
	})
}
