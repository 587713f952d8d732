package machine

import (
	"testing"
	"time"
)

// TestPatience looks at the clock again before it could have jumped far past a time.
func TestPatience(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, tt := range []struct{ until, want time.Duration }{{time.Hour, 30 * time.Second}, {31 * time.Second, 30 * time.Second}, {time.Second, time.Second}, {-time.Hour, -time.Hour}} {
		if got := patience(now.Add(tt.until), now); got != tt.want {
			t.Errorf("until %s it waits for %s, not %s", tt.until, got, tt.want)
		}
	}
}
