// Package events tells of what happens to pods and to the node, as events of the
// API server (core/v1), in the way that other programs of Kubernetes do: an event
// that happens again is counted, many of one kind become one, and an object that
// is talked about without end is not listened to. Nobody waits for it.
package events

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/node/cluster/pace"
)

const (
	component = "kubelet" // what users and programs filter by
	queue     = 1000
	// maxMessage is what API servers take of a message.
	maxMessage = 1024
	// How often, and for how long, an event is sent that the API server has not
	// taken: those behind it wait.
	tries           = 12
	requestPatience = 10 * time.Second
	// lasting is how long an event is worth sending to an API server that is away: they
	// forget events after an hour, too.
	lasting = time.Hour
)

// Recorder sends events.
type Recorder struct {
	client rest.Interface
	source corev1.EventSource
	log    *slog.Logger
	queue  chan happened
	memory *memory
	named  int64 // when the last event got its name; no two get one at once

	dropped atomic.Int64
}

// happened is an event as it is told.
type happened struct {
	about           corev1.ObjectReference
	kind            string
	reason, message string
	annotations     map[string]string
	at              time.Time
}

// Notice is what an event says. Kind is Normal or Warning.
type Notice struct {
	Kind, Reason, Message string
	// Annotations of the event tell programs more. They are those of the first of several
	// that are one.
	Annotations map[string]string
}

// New makes a recorder for a node; events wait for Run.
func New(client *cluster.Client, node string, log *slog.Logger) *Recorder {
	return &Recorder{
		client: client.REST(corev1.SchemeGroupVersion), source: corev1.EventSource{Component: component, Host: node},
		log: log, queue: make(chan happened, queue), memory: newMemory(),
	}
}

// OfPod is what an event about a pod is about. Container is empty, or the field
// path of a container: spec.containers{web}.
func OfPod(pod *corev1.Pod, container string) corev1.ObjectReference {
	return corev1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion, FieldPath: container,
	}
}

// OfNode is what an event about the node is about. Events of nodes have the name
// as UID: kubectl describe node looks for that, too.
func OfNode(name string) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Node", Name: name, UID: types.UID(name)}
}

// Event tells of something. Kind is Normal or Warning. It never blocks: what does
// not fit is counted, and lost.
func (r *Recorder) Event(about corev1.ObjectReference, kind, reason, message string) {
	r.Tell(about, Notice{Kind: kind, Reason: reason, Message: message})
}

// Tell is Event for what has annotations.
func (r *Recorder) Tell(about corev1.ObjectReference, n Notice) {
	select {
	case r.queue <- happened{about, n.Kind, n.Reason, shortened(n.Message), n.Annotations, time.Now()}:
	default:
		r.dropped.Add(1)
	}
}

// Dropped is how many events were lost because too many waited.
func (r *Recorder) Dropped() int64 { return r.dropped.Load() }

// shortened fits a message into an event, at the border of a character.
func shortened(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	cut := maxMessage - len("...")
	for cut > 0 && message[cut]&0xc0 == 0x80 {
		cut--
	}
	return message[:cut] + "..."
}

// Run sends events until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case h := <-r.queue:
			r.send(ctx, h)
		}
	}
}

func (r *Recorder) send(ctx context.Context, h happened) {
	said := r.memory.say(h)
	if said == nil { // too many about that object
		return
	}
	p := pace.Pace{First: time.Second}
	for try := 1; ; {
		err := r.once(ctx, h, said)
		// With a namespace all of its pods end: that is nothing to warn of.
		if err == nil || ctx.Err() != nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return
		}
		if final(err) || try == tries || time.Since(h.at) > lasting {
			r.log.Warn("cannot send an event", "reason", h.reason, "message", h.message, "about", h.about.Kind+" "+h.about.Namespace+"/"+h.about.Name, "error", err)
			return
		}
		// That an API server is away is no fault of the event. One that wants fewer of them
		// is not away.
		if !pace.Away(err) || apierrors.IsTooManyRequests(err) {
			try++
		}
		if !pace.Sleep(ctx, p.After(err)) {
			return
		}
	}
}

// final says that the API server has understood an event and will not have it: its
// namespace may be going, for example.
func final(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsBadRequest(err)
}

func (r *Recorder) once(ctx context.Context, h happened, s *said) error {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	namespace := h.about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	if s.name != "" {
		patch, err := json.Marshal(map[string]any{"count": s.count, "lastTimestamp": metav1.NewTime(h.at), "message": s.message})
		if err != nil {
			return fmt.Errorf("encode an event: %w", err)
		}
		err = r.client.Patch(types.MergePatchType).Namespace(namespace).Resource("events").Name(s.name).Body(patch).MaxRetries(0).Do(ctx).Error()
		if !apierrors.IsNotFound(err) {
			return err
		}
		s.count = 1 // API servers forget events after an hour
	}
	r.named = max(time.Now().UnixNano(), r.named+1)
	first := metav1.NewTime(h.at)
	e := &corev1.Event{
		TypeMeta:       metav1.TypeMeta{Kind: "Event", APIVersion: "v1"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", h.about.Name, r.named), Annotations: h.annotations},
		InvolvedObject: h.about, Type: h.kind, Reason: h.reason, Message: s.message,
		FirstTimestamp: first, LastTimestamp: first, Count: s.count,
		Source: r.source, ReportingController: r.source.Component, ReportingInstance: r.source.Host,
	}
	if err := r.client.Post().Namespace(namespace).Resource("events").Body(e).MaxRetries(0).Do(ctx).Error(); err != nil {
		return err
	}
	s.name = e.Name
	return nil
}
