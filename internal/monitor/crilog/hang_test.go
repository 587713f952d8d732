package crilog

import (
	"testing"
	"time"
)

// What hangs is named, what ends is waited for, and what begins later is not.
func TestHanging(t *testing.T) {
	if path := Hanging(time.Hour); path != "" {
		t.Errorf("with nothing under way: %s", path)
	}
	first, second := enter("/logs/first"), enter("/logs/second")
	if path := Hanging(0); path != "/logs/first" {
		t.Errorf("with two under way: %q", path)
	}
	leave(first)
	if path := Hanging(0); path != "/logs/second" {
		t.Errorf("with one under way: %q", path)
	}
	done := make(chan string)
	go func() { done <- Hanging(time.Hour) }()
	select {
	case path := <-done:
		t.Errorf("it did not wait, and says %q", path)
	case <-time.After(2 * lookAgain):
	}
	third := enter("/logs/third")
	leave(second)
	if path := <-done; path != "" {
		t.Errorf("with what began later under way: %q", path)
	}
	leave(third)
}
