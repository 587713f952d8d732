package streaming

import (
	"errors"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
)

func TestTokens(t *testing.T) {
	now := time.Unix(0, 0)
	tk := newTokens(time.Minute)
	tk.now = func() time.Time { return now }
	a, _ := tk.put("a")
	now = now.Add(40 * time.Second)
	b, _ := tk.put("b")
	if got, ok := tk.take(a); !ok || got != "a" {
		t.Errorf("got %v, %t", got, ok)
	}
	if _, ok := tk.take(a); ok {
		t.Error("a token works twice")
	}
	now = now.Add(time.Minute)
	if _, ok := tk.take(b); ok {
		t.Error("a token works when it is old")
	}
	for range maxTokens {
		if _, err := tk.put("x"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tk.put("x"); !errors.Is(err, errdefs.ErrExhausted) {
		t.Errorf("got %v of one token too many", err)
	}
	now = now.Add(time.Minute)
	if _, err := tk.put("x"); err != nil {
		t.Errorf("old tokens take room: %v", err)
	}
	if len(tk.waiting) != 1 || len(tk.order) != 1 {
		t.Errorf("%d tokens and %d in order are kept", len(tk.waiting), len(tk.order))
	}
}
