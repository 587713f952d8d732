package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	// maxAnswers bounds what is kept: whoever invents tokens gets nothing else
	// for it than that others are asked about again.
	maxAnswers = 4096
	// maxReviews is how many questions may be with the API server at once.
	maxReviews = 32
	// reviewTime is how long one may take.
	reviewTime = 10 * time.Second
)

// cache keeps answers of the API server until they are too old. The same
// question is asked once at a time. Failures are not kept.
type cache[V any] struct {
	// ask finds the answer and says for how long it is good.
	ask   func(ctx context.Context, question any) (V, time.Duration, error)
	key   [32]byte
	slots chan struct{}
	one   singleflight.Group

	mu      sync.Mutex
	answers map[string]answer[V]
}

type answer[V any] struct {
	value V
	until time.Time
}

func newCache[V any](ask func(context.Context, any) (V, time.Duration, error)) *cache[V] {
	c := &cache[V]{ask: ask, slots: make(chan struct{}, maxReviews), answers: map[string]answer[V]{}}
	_, _ = rand.Read(c.key[:]) // never fails
	return c
}

// get answers a question that name stands for. Names may be secrets: they are
// kept as a keyed hash.
func (c *cache[V]) get(ctx context.Context, name string, question any) (V, error) {
	h := hmac.New(sha256.New, c.key[:])
	h.Write([]byte(name))
	key := string(h.Sum(nil))
	c.mu.Lock()
	a, ok := c.answers[key]
	c.mu.Unlock()
	if ok && time.Now().Before(a.until) {
		return a.value, nil
	}
	done := c.one.DoChan(key, func() (any, error) {
		// Others may wait for this answer when the first who asked has gone.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTime)
		defer cancel()
		return c.review(ctx, key, question)
	})
	select {
	case r := <-done:
		v, _ := r.Val.(V)
		return v, r.Err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

func (c *cache[V]) review(ctx context.Context, key string, question any) (V, error) {
	var none V
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	defer func() { <-c.slots }()
	v, ttl, err := c.ask(ctx, question)
	if err != nil {
		return none, err
	}
	c.keep(key, answer[V]{v, time.Now().Add(ttl)})
	return v, nil
}

func (c *cache[V]) keep(key string, a answer[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answers) >= maxAnswers {
		c.makeRoom()
	}
	c.answers[key] = a
}

// makeRoom forgets what is too old, or else a quarter of all.
func (c *cache[V]) makeRoom() {
	now := time.Now()
	for key, a := range c.answers {
		if !now.Before(a.until) {
			delete(c.answers, key)
		}
	}
	for key := range c.answers {
		if len(c.answers) <= maxAnswers*3/4 {
			return
		}
		delete(c.answers, key)
	}
}
