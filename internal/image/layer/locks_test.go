package layer

import (
	"context"
	"testing"

	"golang.org/x/sync/semaphore"
)

func TestPatient(t *testing.T) {
	slots := semaphore.NewWeighted(2)
	p := &Patient{Slots: slots}
	ended, end := context.WithCancel(t.Context())
	if err := p.Acquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	end()
	for range 3 {
		if err := p.Acquire(ended, 1); err != nil {
			t.Fatalf("refused: %v", err)
		}
	}
	for range 4 {
		p.Release(1)
	}
	if !slots.TryAcquire(2) {
		t.Error("a slot is lost")
	}
	if slots.TryAcquire(1) {
		t.Error("there are more slots than before")
	}
}
