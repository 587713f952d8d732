package statuses

import (
	"context"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"

	"fairlead.run/internal/cluster"
)

// Writer writes statuses of pods.
type Writer struct {
	client  rest.Interface
	log     *slog.Logger
	refused func(*corev1.Pod, error)
	wake    chan struct{}

	mu   sync.Mutex
	pods map[types.UID]*entry
	news map[*entry]bool // those of which something is known that begin has not seen
}

// entry is what is known of a pod, under the writer's lock.
type entry struct {
	namespace, name string
	uid             types.UID

	wants *corev1.PodStatus // nil before the agent has said anything
	gone  bool              // nothing of the pod is left here

	api     *corev1.Pod // the newest one known; nil if it has to be read
	watched bool        // the watch has shown it
	sent    *corev1.PodStatus
	echo    *corev1.PodStatus // what the API server has made of sent
	refused *corev1.PodStatus // what it has refused for good
	barred  *corev1.PodStatus // what it has refused until somebody lets the node write it
	deleted bool              // it was asked to, and has agreed

	busy bool
	told chan struct{} // there is news for who is busy
}

// New makes a writer, which does nothing before Run. Refused is told of each status that
// the API server will not have, with the pod as it is there, and must not wait.
func New(client *cluster.Client, log *slog.Logger, refused func(*corev1.Pod, error)) *Writer {
	return &Writer{
		client: client.REST(corev1.SchemeGroupVersion), log: log, refused: refused, wake: make(chan struct{}, 1), pods: map[types.UID]*entry{}, news: map[*entry]bool{},
	}
}

// Set says what the status of a pod is from now on. Only the latest is written.
func (w *Writer) Set(pod *corev1.Pod, status *corev1.PodStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.of(pod)
	if equality.Semantic.DeepEqual(e.wants, status) {
		return
	}
	e.wants = status.DeepCopy()
	w.signal(e)
}

// Gone says that nothing of a pod is left on this node. If somebody has deleted
// it, or does so later, its object goes, after its last status is written.
func (w *Writer) Gone(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.of(pod)
	e.gone = true
	w.signal(e)
}

// Observe is all pods of the node as the API server has them. What somebody else
// has changed in a status is written again.
func (w *Writer) Observe(pods []*corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	there := map[types.UID]*corev1.Pod{}
	for _, p := range pods {
		there[p.UID] = p
	}
	for uid, e := range w.pods {
		p := there[uid]
		switch {
		case p != nil:
			was := e.api
			if e.api, e.watched = newer(e.api, p), true; e.api != was {
				w.signal(e)
			}
		case e.watched || e.gone: // it was there, and is no more
			delete(w.pods, uid)
		}
	}
}

// of is the entry of a pod. A pod that is new here is taken as its object is: what
// it says may be old, and then a write conflicts.
func (w *Writer) of(pod *corev1.Pod) *entry {
	e := w.pods[pod.UID]
	if e == nil {
		e = &entry{namespace: pod.Namespace, name: pod.Name, uid: pod.UID, told: make(chan struct{}, 1)}
		if pod.ResourceVersion != "" {
			e.api = pod
		}
		w.pods[pod.UID] = e
	}
	return e
}

// signal tells of news. The caller holds the lock.
func (w *Writer) signal(e *entry) {
	w.news[e] = true
	for _, c := range []chan struct{}{w.wake, e.told} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context) error {
	var writes sync.WaitGroup
	defer writes.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
		}
		for _, e := range w.begin() {
			writes.Go(func() { w.settle(ctx, e) })
		}
	}
}

// begin marks the pods that have something to write, and that nobody writes yet: who
// writes looks for more by itself. Only those are looked at of which there is news, as
// comparing statuses takes its time, and a change of any pod comes by here.
func (w *Writer) begin() []*entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*entry
	for e := range w.news {
		delete(w.news, e)
		if w.pods[e.uid] == e && !e.busy && e.next() != idle {
			e.busy = true
			out = append(out, e)
		}
	}
	return out
}

// step is what has to be done for a pod.
type step int

const (
	idle   step = iota // nothing
	read               // what the API server has is not known
	write              // its status is another
	remove             // its object has to go
)

// next is a pure function of what is known.
func (e *entry) next() step {
	switch {
	case e.stale():
		if e.api == nil {
			return read
		}
		return write
	case !e.gone || e.deleted:
		return idle
	case e.api == nil:
		return read
	case e.api.DeletionTimestamp == nil:
		return idle
	}
	return remove
}

// stale says that the API server has another status than is wanted, or that this
// is not known.
func (e *entry) stale() bool {
	switch {
	case e.wants == nil || e.deleted || e.wants == e.refused:
		return false
	case e.sent != e.wants && !equality.Semantic.DeepEqual(e.sent, e.wants):
		return true
	case e.api == nil || e.echo == nil:
		return true
	case &e.api.Status == e.echo:
		return false
	case e.api.Status.Size() == e.echo.Size() && equality.Semantic.DeepEqual(&e.api.Status, e.echo):
		return false
	}
	changes, err := patch(known{uid: e.uid}, &e.api.Status, e.echo)
	if err == nil && changes == nil { // it is others' part that has changed
		e.echo = &e.api.Status
	}
	return err != nil || changes != nil
}

// newer is the later one of two versions of an object, and the first if they are one.
func newer(a, b *corev1.Pod) *corev1.Pod {
	if a == nil {
		return b
	}
	if order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion); err == nil && order >= 0 {
		return a
	}
	return b
}
