package runtime

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// TestDefaultThatDoesNotExist has to be seen before a pod is refused for it.
func TestDefaultThatDoesNotExist(t *testing.T) {
	for name, want := range map[string]string{"zz": "describe it in a table [handlers.zz]", "crun": "is not installed"} {
		var logged bytes.Buffer
		r, err := New(Config{Wanted: Wanted{Discover: true, Default: name}, Search: []string{t.TempDir()}, Log: slog.New(slog.NewTextHandler(&logged, nil))}, newLab().kinds())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if !strings.Contains(logged.String(), "level=WARN") || !strings.Contains(logged.String(), "default_handler="+name) {
			t.Errorf("the log lacks a warning: %s", logged.String())
		}
		list := r.List()
		if len(list) != 1 || list[0].Name != name || !list[0].Default || list[0].Ready || !strings.Contains(list[0].Reason, want) {
			t.Errorf("%+v", list)
		}
		if _, err := r.Get(""); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("get: %v", err)
		}
	}
}
