package checkpoint

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "x", configFile), `{"name":"main","rootfsImage":"sha256:1"}`)
	put(t, filepath.Join(dir, "other", "file"), "")
	put(t, filepath.Join(dir, "pod.dump"), "{}")
	f := New(t.TempDir(), true)
	got, err := f.Read(t.Context(), dir)
	if want := []pod.Captured{{Name: "main", Dir: filepath.Join(dir, "x")}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v %v", got, err)
	}
	if _, err := New(t.TempDir(), false).Read(t.Context(), dir); !errors.Is(err, errdefs.ErrUnimplemented) || !strings.Contains(err.Error(), "checkpoints.restore") {
		t.Errorf("where it is off: %v", err)
	}
	for name, at := range map[string]string{"nothing there": filepath.Join(dir, "none"), "no checkpoint": t.TempDir()} {
		if _, err := f.Read(t.Context(), at); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	put(t, filepath.Join(dir, "broken", configFile), "{")
	if _, err := f.Read(t.Context(), dir); err == nil {
		t.Error("a broken description was read")
	}
}

func TestFits(t *testing.T) {
	const same = `{"annotations":{"run.fairlead.image":"sha256:1"},"process":{"args":["a"],"cwd":"/","env":["A=1"],"user":{"uid":1,"gid":2}}}`
	f := New(t.TempDir(), true)
	for name, tt := range map[string]struct{ is, want string }{
		"same":       {same, ""},
		"image":      {strings.Replace(same, "sha256:1", "sha256:2", 1), "image"},
		"command":    {strings.Replace(same, `"a"`, `"b"`, 1), "command"},
		"folder":     {strings.Replace(same, `"/"`, `"/x"`, 1), "working directory"},
		"env":        {strings.Replace(same, "A=1", "A=2", 1), "environment"},
		"user":       {strings.Replace(same, `"uid":1`, `"uid":0`, 1), "user"},
		"no process": {"{}", "no process"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, bundle := t.TempDir(), t.TempDir()
			put(t, filepath.Join(dir, specFile), same)
			put(t, filepath.Join(bundle, "config.json"), tt.is)
			err := f.Fits(dir, bundle)
			if (err == nil) != (tt.want == "") || err != nil && (!errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
