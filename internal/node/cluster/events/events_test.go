package events

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/cluster"
	"fairlead.run/test/apiserver"
)

var (
	eventKind = apiserver.Resource{Path: "api/v1/events", Kind: "Event", Namespaced: true}
	pod       = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "uid-a"}}
)

func newRecorder(t *testing.T) (*apiserver.Server, *Recorder) {
	t.Helper()
	return newRecorderWith(t, slog.New(slog.DiscardHandler))
}

func newRecorderWith(t *testing.T, log *slog.Logger) (*apiserver.Server, *Recorder) {
	t.Helper()
	server := apiserver.InMemory(t, eventKind)
	client, err := cluster.NewClient(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	r := New(client, "n", log)
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return server, r
}

// all are the events in a namespace.
func all(t *testing.T, s *apiserver.Server) []corev1.Event {
	t.Helper()
	client, err := cluster.NewClient(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	list := &corev1.EventList{}
	if err := client.REST(corev1.SchemeGroupVersion).Get().Resource("events").Do(t.Context()).Into(list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func TestTheSameEventIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := newRecorder(t)
		begun := metav1.Now()
		for range 5 {
			r.Event(OfPod(pod, "spec.containers{web}"), corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container")
			time.Sleep(time.Minute)
		}
		r.Event(OfNode("n"), corev1.EventTypeNormal, "Starting", "Starting kubelet.")
		synctest.Wait()
		events := all(t, server)
		if len(events) != 2 {
			t.Fatalf("there are %d events, want 2", len(events))
		}
		e := events[0]
		if e.Count != 5 || e.FirstTimestamp.Unix() != begun.Unix() || e.LastTimestamp.Unix() != begun.Unix()+240 || e.InvolvedObject.FieldPath != "spec.containers{web}" ||
			e.Source != (corev1.EventSource{Component: "kubelet", Host: "n"}) || e.Namespace != "default" || !strings.HasPrefix(e.Name, "a.") {
			t.Errorf("the event is %+v", e)
		}
		if e := events[1]; e.Namespace != "default" || e.InvolvedObject.UID != "n" || e.Count != 1 {
			t.Errorf("the event of the node is %+v", e)
		}
	})
}

// TestAnnotations are on the event, for programs.
func TestAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := newRecorder(t)
		want := map[string]string{"starved_resource": "memory", "offending_containers": "web", "offending_containers_usage": "2Mi"}
		for range 2 {
			r.Tell(OfPod(pod, ""), Notice{Kind: corev1.EventTypeWarning, Reason: "Evicted", Message: "low", Annotations: want})
		}
		synctest.Wait()
		if got := all(t, server); len(got) != 1 || !maps.Equal(got[0].Annotations, want) || got[0].Count != 2 {
			t.Errorf("%+v", got)
		}
	})
}

func TestSimilarEventsAreCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := newRecorder(t)
		for i := range 20 {
			r.Event(OfPod(pod, ""), corev1.EventTypeWarning, "Failed", fmt.Sprintf("attempt %d", i))
			time.Sleep(time.Second)
		}
		events := all(t, server)
		combined := 0
		for _, e := range events {
			if strings.HasPrefix(e.Message, "(combined from similar events): ") {
				combined += int(e.Count)
			}
		}
		if len(events) != 10 || combined != 11 {
			t.Errorf("20 events are %d, of which one stands for %d; want 10 and 11", len(events), combined)
		}
	})
}

func TestTooManyAboutOneObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := newRecorder(t)
		for i := range 100 {
			r.Event(OfPod(pod, ""), corev1.EventTypeNormal, fmt.Sprintf("Reason%d", i), "x")
		}
		synctest.Wait()
		if n := len(all(t, server)); n != 25 {
			t.Errorf("there are %d events, want 25", n)
		}
		time.Sleep(10*time.Minute + time.Second)
		for i := range 10 {
			r.Event(OfPod(pod, ""), corev1.EventTypeNormal, fmt.Sprintf("Later%d", i), "x")
		}
		synctest.Wait()
		if n := len(all(t, server)); n != 27 {
			t.Errorf("10 minutes later there are %d events, want 27", n)
		}
	})
}

// An API server that does not answer must not hold anybody up, nor take memory.
func TestEventNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := newRecorder(t)
		var hanging atomic.Bool
		hanging.Store(true)
		server.Intercept(func(_ apiserver.Call, _ http.ResponseWriter, req *http.Request) bool {
			if hanging.Load() {
				<-req.Context().Done()
				return true
			}
			return false
		})
		begun := time.Now()
		for i := range 2 * queue {
			other := pod.DeepCopy()
			other.Name = fmt.Sprintf("p%d", i)
			r.Event(OfPod(other, ""), corev1.EventTypeNormal, "Started", "x")
		}
		if !time.Now().Equal(begun) || r.Dropped() < queue-1 {
			t.Errorf("%d were dropped after %s", r.Dropped(), time.Since(begun))
		}
		time.Sleep(15 * time.Second)
		hanging.Store(false)
		time.Sleep(15 * time.Second)
		if n := len(all(t, server)); n < queue {
			t.Errorf("there are %d events, want the %d that fitted", n, queue)
		}
	})
}

// Events wait for an API server that is away for long, however it is away, with the time
// at which they happened; but no longer than it would remember them.
func TestEventsOutlastAnOutage(t *testing.T) {
	for name, away := range map[string]func(http.ResponseWriter, *http.Request){
		"gone":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"hangs": func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, r := newRecorder(t)
				server.Intercept(func(_ apiserver.Call, w http.ResponseWriter, req *http.Request) bool {
					away(w, req)
					return true
				})
				r.Event(OfPod(pod, ""), corev1.EventTypeNormal, "Old", "x")
				time.Sleep(lasting - 10*time.Minute)
				begun := metav1.NewTime(time.Now())
				for i := range 20 {
					r.Event(OfPod(pod, ""), corev1.EventTypeWarning, fmt.Sprintf("Reason%d", i), "x")
				}
				time.Sleep(20 * time.Minute)
				server.Intercept(nil)
				time.Sleep(time.Minute)
				events := all(t, server)
				if len(events) != 20 {
					t.Errorf("%d events were told after the outage, want the 20 of the last minutes", len(events))
				}
				for _, e := range events {
					if !e.FirstTimestamp.Equal(&begun) {
						t.Errorf("event %s is of %s, want %s", e.Reason, e.FirstTimestamp, begun)
					}
				}
			})
		})
	}
}

func TestRefusedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := newRecorder(t)
		server.FailWith(func(apiserver.Call) int { return http.StatusForbidden })
		r.Event(OfPod(pod, ""), corev1.EventTypeNormal, "Started", "x")
		time.Sleep(time.Hour)
		if n := server.Count(func(apiserver.Call) bool { return true }); n != 1 {
			t.Errorf("an event in a namespace that goes was sent %d times", n)
		}
		// An event that the API server has forgotten is a new one.
		server.FailWith(nil)
		for range 2 {
			r.Event(OfPod(pod, ""), corev1.EventTypeNormal, "Pulled", "x")
			synctest.Wait()
			for _, e := range all(t, server) {
				server.Delete(eventKind, "default/"+e.Name)
			}
		}
		r.Event(OfPod(pod, ""), corev1.EventTypeNormal, "Pulled", "x")
		synctest.Wait()
		if events := all(t, server); len(events) != 1 || events[0].Count != 1 {
			text, _ := json.Marshal(events)
			t.Errorf("the events are %s", text)
		}
	})
}

// Whoever deletes a namespace ends its pods, and no administrator need hear that their
// events find no place any more.
func TestNamespaceThatGoes(t *testing.T) {
	for cause, warned := range map[metav1.CauseType]bool{corev1.NamespaceTerminatingCause: false, "": true} {
		synctest.Test(t, func(t *testing.T) {
			var said bytes.Buffer
			server, r := newRecorderWith(t, slog.New(slog.NewTextHandler(&said, nil)))
			server.Intercept(func(_ apiserver.Call, w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"details":{"causes":[{"reason":%q}]}}`, cause)
				return true
			})
			r.Event(OfPod(pod, ""), corev1.EventTypeNormal, "Killing", "x")
			synctest.Wait()
			if n := server.Count(func(apiserver.Call) bool { return true }); n != 1 || (said.Len() > 0) != warned {
				t.Errorf("cause %q: sent %d times, and said %q", cause, n, said.String())
			}
		})
	}
}

func TestShortened(t *testing.T) {
	got := shortened(strings.Repeat("é", 1000))
	if len(got) > maxMessage || !utf8.ValidString(got) || !strings.HasSuffix(got, "...") {
		t.Errorf("got %d bytes, %q", len(got), got[len(got)-8:])
	}
}

func TestMemoryIsBounded(t *testing.T) {
	m := newMemory()
	at := time.Now()
	for i := range 3 * maxKnown {
		other := pod.DeepCopy()
		other.Name = fmt.Sprint(i)
		m.say(happened{about: OfPod(other, ""), kind: "Normal", reason: "r", message: "m", at: at.Add(time.Duration(i) * time.Millisecond)})
	}
	if len(m.objects) > maxKnown || len(m.kinds) > maxKnown || len(m.events) > maxKnown {
		t.Errorf("it remembers %d objects, %d kinds and %d events", len(m.objects), len(m.kinds), len(m.events))
	}
}
