package webhook

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	nodev1 "k8s.io/api/node/v1"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
)

// Of a flood of names that nobody knows, few reach the API server at a time, and
// nobody waits longer than for one.
func TestLookupsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKnown(nil, cluster.NewCache(nil, cluster.Options{}), slog.New(slog.DiscardHandler))
		const asked = 50
		var mu sync.Mutex
		at, most, refused := 0, 0, 0
		var all sync.WaitGroup
		for range asked {
			all.Go(func() {
				_, err := lookUp(t.Context(), k, "look up", func(ctx context.Context) (*nodev1.RuntimeClass, error) {
					mu.Lock()
					at++
					most = max(most, at)
					mu.Unlock()
					<-ctx.Done() // an API server that does not answer
					mu.Lock()
					at--
					mu.Unlock()
					return nil, ctx.Err()
				})
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, errdefs.ErrUnavailable) {
					refused++
				}
			})
		}
		all.Wait()
		if most != lookupsAtOnce || refused != asked {
			t.Errorf("%d at a time, %d of %d refused", most, refused, asked)
		}
	})
}
