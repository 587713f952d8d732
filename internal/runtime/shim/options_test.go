package shim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/runtime"
	"fairlead.run/internal/taskapi"
)

// Shims other than runc's are told where their configuration is, or what is in it,
// in the way of today and, as this one takes neither, in that of before.
func TestOptionsReachTheShim(t *testing.T) {
	h := newHost(t)
	for name, c := range map[string]struct {
		handler v1alpha1.Handler
		want    []string
	}{
		"file":    {v1alpha1.Handler{ConfigPath: "/etc/some.toml", Options: map[string]any{"TypeUrl": "some.type"}}, []string{"runtimeoptions.v1.Options", "some.type", "/etc/some.toml"}},
		"options": {v1alpha1.Handler{Options: map[string]any{"answer": int64(42), "TypeUrl": "some.type"}}, []string{"runtimeoptions.v1.Options", "some.type", "answer = 42"}},
		"nothing": {v1alpha1.Handler{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			fake := filepath.Join(dir, "told")
			if err := os.Link(filepath.Join(built, "fake"), fake); err != nil {
				t.Fatal(err)
			}
			c.handler.Type, c.handler.RuntimeType, c.handler.Path = runtime.KindShim, "io.example.fake.v1", fake
			d, o := h.drivers(t)
			if info := d.probe(t.Context(), o, runtime.Definition{Name: "told", Handler: c.handler}); info.Ready {
				t.Fatal("a shim that does nothing works")
			}
			inputs, err := filepath.Glob(filepath.Join(dir, "input-*"))
			if err != nil || len(inputs) < 2 {
				t.Fatalf("it was called %d times: %v", len(inputs), err)
			}
			for _, input := range inputs {
				text, err := os.ReadFile(input)
				if err != nil {
					t.Fatal(err)
				}
				for _, want := range c.want {
					if !strings.Contains(string(text), want) {
						t.Errorf("it was told %q, without %q", text, want)
					}
				}
				if c.want == nil && strings.Contains(string(text), "Options") {
					t.Errorf("it was told options that nobody has set: %q", text)
				}
			}
		})
	}
}

// Who makes the cgroups follows from the daemon's configuration.
func TestSystemdCgroups(t *testing.T) {
	for _, systemd := range []bool{false, true} {
		a := adapter{Config{StateDir: "/run/x", Systemd: systemd}, runtime.Definition{Name: "n", Handler: v1alpha1.Handler{RuntimeType: v1alpha1.RuncShim}}}
		want := taskapi.RuncOptions{Root: "/run/x/shims/runc-n", SystemdCgroup: systemd}.Encode()
		if got := a.options(); string(got.Value) != string(want.Value) || got.Type != want.Type {
			t.Errorf("systemd %t: %+v", systemd, got)
		}
	}
}
