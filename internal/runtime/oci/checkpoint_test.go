package oci

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go/features"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime/oci/criu"
)

func TestNoCheckpoints(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	with := &features.Features{Annotations: map[string]string{"org.opencontainers.runc.checkpoint.enabled": "true"}}
	d := testDriver(t)
	for _, tt := range []struct {
		runtime string
		f       *features.Features
		want    string
	}{
		{"crun", with, "with runc alone, and this is crun"},
		{"runc", nil, "built without checkpoints"},
		{"runc", &features.Features{}, "built without checkpoints"},
	} {
		if err := d.noCheckpoints(t.Context(), tt.runtime, tt.f); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s with %v: %v", tt.runtime, tt.f, err)
		}
	}
	def := fakeRuntime(t, "exit 0")
	before := d.Fingerprint(def)
	if err := os.WriteFile(filepath.Join(dir, "criu"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.noCheckpoints(t.Context(), "runc", with); err != nil {
		t.Error(err)
	}
	if d.Fingerprint(def) == before {
		t.Error("a criu that is installed later goes unnoticed")
	}
}

// A criu for which there is no time is not one that does not work.
func TestNoTimeToTryCriu(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	def := fakeRuntime(t, `case "$1" in
--version) echo "runc version 1.2.3";;
features) echo '{"annotations":{"org.opencontainers.runc.checkpoint.enabled":"true"}}';;
delete) fail "container does not exist";;
*) ran "$@";;
esac`)
	d := testDriver(t)
	for name, tt := range map[string]struct {
		criu string
		want pod.HandlerInfo
	}{
		"hangs":   {"touch " + filepath.Join(dir, "called") + "; sleep 1000 & wait", pod.HandlerInfo{Ready: true, Features: pod.HandlerFeatures{Unsure: true}}},
		"refuses": {"echo 'Error (x): no such kernel'; exit 1", pod.HandlerInfo{Ready: true}},
		"works":   {"exit 0", pod.HandlerInfo{Ready: true, Features: pod.HandlerFeatures{Checkpoints: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(filepath.Join(dir, "criu"), []byte("#!/bin/sh\n"+tt.criu+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				for ctx.Err() == nil {
					if _, err := os.Stat(filepath.Join(dir, "called")); err == nil {
						cancel()
					}
					time.Sleep(time.Millisecond)
				}
			}()
			got := d.Probe(ctx, def)
			if got.Ready != tt.want.Ready || got.Features.Unsure != tt.want.Features.Unsure || got.Features.Checkpoints != tt.want.Features.Checkpoints || got.Features.Checkpoints == (got.Features.NoCheckpoints != "") {
				t.Errorf("%+v", got)
			}
			_ = os.Remove(filepath.Join(dir, "called"))
		})
	}
}

// What cannot be captured is refused before anything is done to it.
func TestCaptureRefuses(t *testing.T) {
	d := testDriver(t)
	h := d.Open(fakeRuntime(t, "exit 0"), func() pod.HandlerInfo { return pod.HandlerInfo{Runtime: "runc"} })
	bundle := h.folder("c1")
	options := filepath.Join(bundle, criu.OptionsFile)
	for name, tt := range map[string]struct {
		tty    bool
		config map[string]any
		want   string
	}{
		"old":      {false, map[string]any{}, "earlier version"},
		"terminal": {true, map[string]any{"annotations": map[string]string{criu.Annotation: options}}, "it has a terminal"},
		"mapped":   {false, map[string]any{"annotations": map[string]string{criu.Annotation: options}, "linux": map[string]any{"uidMappings": []any{map[string]any{}}}}, "user namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := json.Marshal(tt.config)
			err = errors.Join(err, os.MkdirAll(bundle, 0o700), os.WriteFile(filepath.Join(bundle, "config.json"), data, 0o600))
			if err != nil {
				t.Fatal(err)
			}
			c := &pod.Container{ID: "c1"}
			c.Config.Process.TTY = tt.tty
			if err := h.Capture(t.Context(), c, t.TempDir()); !errors.Is(err, errdefs.ErrUnimplemented) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v", err)
			}
			if _, err := os.Stat(options); err == nil {
				t.Error("it was prepared")
			}
		})
	}
	if err := h.Thaw(t.Context(), "none"); err != nil {
		t.Errorf("a container that is gone: %v", err)
	}
	if err := h.Freeze(t.Context(), "none"); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("a container that is gone: %v", err)
	}
}
