package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/internal/atomicfile"
)

// maxEvents bounds the journal: the oldest go.
const maxEvents = 2000

// journal is the last events. Those that say the same are one, with a count. The zero
// value is empty.
type journal struct {
	mu     sync.Mutex
	number int
	list   []*corev1.Event // by the time that they were last
	wait   chan struct{}   // closed when something is added; nil if nobody waits
}

// saved is a journal as it is kept in a file.
type saved struct {
	Number int             `json:"number"` // of the last event
	Events []*corev1.Event `json:"events"`
}

// load takes over what an earlier machine has kept. Without a file there is nothing.
func (j *journal) load(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var s saved
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	s.Events = slices.DeleteFunc(s.Events, func(e *corev1.Event) bool { return e == nil })
	j.mu.Lock()
	defer j.mu.Unlock()
	j.number, j.list = s.Number, s.Events[max(0, len(s.Events)-maxEvents):]
	return nil
}

// save keeps the events, and gives the number of the last one.
func (j *journal) save(path string) (int, error) {
	j.mu.Lock()
	s := saved{Number: j.number, Events: slices.Clone(j.list)} // none is changed once it is there
	j.mu.Unlock()
	text, err := json.Marshal(s)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o711)
	}
	if err == nil {
		err = atomicfile.Write(path, text, 0o600)
	}
	if err != nil {
		return 0, fmt.Errorf("keep the events: %w", err)
	}
	return s.Number, nil
}

// saveEvery is how long events that come together wait to be kept together.
const saveEvery = 5 * time.Second

// run saves what is new until ctx ends, and after that once more. Failed is told of each
// error that is not that of the time before.
func (j *journal) run(ctx context.Context, path string, failed func(error)) error {
	last, told := 0, ""
	for ctx.Err() == nil {
		events, _, more := j.since(last)
		if len(events) == 0 {
			select {
			case <-ctx.Done():
			case <-more:
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(saveEvery):
		}
		number, err := j.save(path)
		if err == nil {
			last, told = number, ""
		} else if told != err.Error() {
			told = err.Error()
			failed(err)
		}
	}
	return nil
}

// ofPod is what an event about a pod is about.
func ofPod(p *corev1.Pod) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

func (j *journal) add(about corev1.ObjectReference, kind, reason, message string) {
	now := metav1.NewTime(time.Now())
	j.mu.Lock()
	defer j.mu.Unlock()
	j.number++
	e := &corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Namespace: about.Namespace, Name: fmt.Sprintf("%s.%d", about.Name, j.number)}, InvolvedObject: about,
		Type: kind, Reason: reason, Message: message, FirstTimestamp: now, LastTimestamp: now, Count: 1, Source: corev1.EventSource{Component: "fairlead"},
	}
	same := slices.IndexFunc(j.list, func(old *corev1.Event) bool {
		return old.InvolvedObject == about && old.Type == kind && old.Reason == reason && old.Message == message
	})
	if same >= 0 {
		e.Count, e.FirstTimestamp = j.list[same].Count+1, j.list[same].FirstTimestamp
		j.list = slices.Delete(j.list, same, same+1)
	}
	e.ResourceVersion = fmt.Sprint(j.number)
	if len(j.list) >= maxEvents {
		j.list = slices.Delete(j.list, 0, 1)
	}
	j.list = append(j.list, e)
	if j.wait != nil {
		close(j.wait)
		j.wait = nil
	}
}

// since gives the events after a number, the number of the last one, and a channel that
// is closed when there is more. Events are not to be changed.
func (j *journal) since(number int) (events []*corev1.Event, last int, more <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.list {
		var n int
		if _, err := fmt.Sscan(e.ResourceVersion, &n); err == nil && n > number {
			events = append(events, e)
		}
	}
	if j.wait == nil {
		j.wait = make(chan struct{})
	}
	return events, j.number, j.wait
}
