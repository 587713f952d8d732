package flaky

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"path"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// event is one of a watch, and when a client may have it.
type event struct {
	text json.RawMessage
	due  time.Time
}

// watch passes events on, in their order: late, or for a while not at all, or up to a
// point at which the watch ends or has expired.
func (p *Proxy) watch(w http.ResponseWriter, r *http.Request, from *http.Response) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	if out.Flush() != nil {
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go p.cut(ctx, cancel)
	events := make(chan event, 10000) // more than any test makes
	go func() {
		defer close(events)
		for all := json.NewDecoder(from.Body); ; {
			var e event
			if all.Decode(&e.text) != nil {
				return
			}
			if lag := p.now().Lag; lag > 0 {
				e.due = time.Now().Add(rand.N(lag))
			}
			select {
			case events <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer from.Body.Close() // before the goroutine is waited for by nobody
	for {
		select {
		case <-ctx.Done():
			if r.Context().Err() == nil {
				p.expire(w)
			}
			return
		case e, ok := <-events:
			if !ok || !p.tell(ctx, path.Base(r.URL.Path), e) {
				return
			}
			text := append(e.text, '\n')
			if p.Beta {
				text = aged(text)
			}
			if _, err := w.Write(text); err != nil || out.Flush() != nil {
				return
			}
		}
	}
}

// cut ends a watch at some time, as long as watches may not last.
func (p *Proxy) cut(ctx context.Context, cancel func()) {
	const look = 100 * time.Millisecond
	for all := time.NewTicker(look); ; {
		select {
		case <-ctx.Done():
			all.Stop()
			return
		case <-all.C:
		}
		if life := p.now().Life; life > 0 && rand.N(life) < look {
			p.count("cut")
			cancel()
			return
		}
	}
}

// tell waits until an event may be told. It is false if the watch ends before that.
func (p *Proxy) tell(ctx context.Context, resource string, e event) bool {
	select {
	case <-time.After(time.Until(e.due)):
	case <-ctx.Done():
		return false
	}
	for {
		p.mu.Lock()
		held, thawed := p.held[resource], p.thawed
		p.mu.Unlock()
		if !held {
			return true
		}
		select {
		case <-thawed:
		case <-ctx.Done():
			return false
		}
	}
}

// expire has half of the watches that are cut off end as those do whose version is too
// old: the client has to list anew.
func (p *Proxy) expire(w http.ResponseWriter) {
	if rand.IntN(2) == 0 {
		panic(http.ErrAbortHandler)
	}
	p.count("expired")
	gone := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version: 1 (2)",
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "ERROR", "object": gone})
}
