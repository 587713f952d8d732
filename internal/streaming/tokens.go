package streaming

import (
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"fairlead.run/internal/errdefs"
)

// maxTokens is how many URLs may wait for their client. Only a caller that
// never opens them gets there.
const maxTokens = 1000

// tokens keeps requests until their client comes, once each.
type tokens struct {
	ttl time.Duration
	now func() time.Time

	mu      sync.Mutex
	waiting map[string]ticket
	order   []string // the oldest first; taken ones stay until they are old
}

type ticket struct {
	request any
	expires time.Time
}

func newTokens(ttl time.Duration) *tokens {
	return &tokens{ttl: ttl, now: time.Now, waiting: map[string]ticket{}}
}

func (t *tokens) put(request any) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire()
	if len(t.waiting) >= maxTokens {
		return "", fmt.Errorf("%d streams wait for their clients already: %w", maxTokens, errdefs.ErrExhausted)
	}
	token := rand.Text() // 130 bits
	t.waiting[token] = ticket{request, t.now().Add(t.ttl)}
	t.order = append(t.order, token)
	return token, nil
}

func (t *tokens) take(token string) (any, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire()
	k, ok := t.waiting[token]
	delete(t.waiting, token)
	return k.request, ok
}

// expire forgets what nobody came for, and the order of what was taken.
func (t *tokens) expire() {
	now, n := t.now(), 0
	for _, token := range t.order {
		k, ok := t.waiting[token]
		if ok && now.Before(k.expires) {
			break
		}
		delete(t.waiting, token)
		n++
	}
	t.order = t.order[n:]
}
