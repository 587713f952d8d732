package shim

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/runtime"
	"fairlead.run/internal/runtime/oci"
)

// What a shim does wrong costs its own handler alone, in bounded time, and leaves
// nothing behind.
func TestBadShims(t *testing.T) {
	h := newHost(t)
	for name, reason := range map[string]string{
		"exits":   "no such luck",
		"floods":  "all work and no play",
		"hangs":   "did not end in time",
		"babbles": "which is no address",
		"newer":   "version 9 of the task service",
		"grpc":    "only ttrpc is known",
		"deaf":    "did not end in time",
		"garbles": "garbage",
		"huge":    "garbage",
		"dies":    "hung up",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := filepath.Join(t.TempDir(), name)
			if err := os.Link(filepath.Join(built, "fake"), fake); err != nil {
				t.Fatal(err)
			}
			c := v1alpha1.Handler{Type: runtime.KindShim, RuntimeType: "io.example.fake.v1", Path: fake}
			d, o := h.drivers(t)
			limit := time.Minute
			if name == "hangs" || name == "deaf" {
				limit = 2 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			info := Kind(d, o, func(h *oci.Handler) *oci.Handler { return h }).Probe(ctx, runtime.Definition{Name: name, Handler: c})
			if info.Ready || !strings.Contains(info.Reason, reason) {
				t.Errorf("ready is %t, because %q lacks %q", info.Ready, info.Reason, reason)
			}
			deadline := time.Now().Add(time.Minute)
			for len(h.left(t, name)) > 0 {
				if time.Now().After(deadline) {
					t.Fatalf("left behind: %v", h.left(t, name))
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
}

// left is what there is of a handler on the host: processes and files.
func (h *host) left(t *testing.T, name string) (out []string) {
	t.Helper()
	for _, pattern := range []string{"trials/" + name + "-*", "runtimes/" + name + "/*"} {
		found, err := filepath.Glob(filepath.Join(h.state, pattern))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, found...)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		line, _ := os.ReadFile(l) // it may have ended
		words := strings.Split(string(line), "\x00")
		if filepath.Base(words[0]) == name && strings.Contains(string(line), h.state) {
			out = append(out, strings.Join(words, " "))
		}
	}
	return out
}
