package lasting

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Failure
		for i, step := range []struct {
			after time.Duration
			text  string // empty is that it is over
			want  bool
		}{
			{0, "full", true},
			{time.Minute, "full", false},
			{Again - 2*time.Minute, "full", false},
			{time.Minute, "full", true},
			{time.Minute, "full", false},
			{time.Minute, "away", true},
			{time.Minute, "full", true},
			{time.Minute, "", false},
			{time.Minute, "full", true},
		} {
			time.Sleep(step.after)
			if step.text == "" {
				f.Over()
			} else if got := f.Tell(step.text); got != step.want {
				t.Errorf("step %d: %t, want %t", i, got, step.want)
			}
		}
	})
}
