package cdi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// write makes a file that describes a device whose only edit is a variable.
func write(t *testing.T, dir, name, device, env string) {
	t.Helper()
	kind, dev, _ := strings.Cut(device, "=")
	content(t, dir, name, `{"cdiVersion":"0.5.0","kind":"`+kind+`","devices":[{"name":"`+dev+`","containerEdits":{"env":["`+env+`"]}}]}`)
}

func content(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// env is what devices put into the environment.
func env(t *testing.T, d *Devices, names ...string) ([]string, error) {
	t.Helper()
	s := &specs.Spec{Process: &specs.Process{}}
	err := d.Inject(t.Context(), s, names)
	return s.Process.Env, err
}

func TestNothingIsReadBeforeItIsNeeded(t *testing.T) {
	d := New([]string{t.TempDir()})
	if err := d.Inject(t.Context(), &specs.Spec{}, nil); err != nil || d.folders[0].last.Load() != nil {
		t.Errorf("%v, read %v", err, d.folders[0].last.Load() != nil)
	}
}

func TestFilesAreReadAgainWhenTheyChange(t *testing.T) {
	low, high := filepath.Join(t.TempDir(), "etc"), filepath.Join(t.TempDir(), "run")
	d := New([]string{low, high})
	if _, err := env(t, d, "v.com/c=d"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("without folders: %v", err)
	}
	want := func(why, is string) {
		t.Helper()
		if got, err := env(t, d, "v.com/c=d"); err != nil || !slices.Equal(got, []string{is}) {
			t.Errorf("%s: %v, %v", why, got, err)
		}
	}
	write(t, low, "v.json", "v.com/c=d", "A=low")
	want("a new file", "A=low")
	kept := d.folders[0].last.Load()
	want("nothing changed", "A=low")
	if d.folders[0].last.Load() != kept {
		t.Error("the files were read again though nothing has changed")
	}
	write(t, high, "v.json", "v.com/c=d", "A=high")
	want("a later folder", "A=high")
	write(t, high, "v.json", "v.com/c=d", "A=higher")
	want("a changed file", "A=higher")
	if err := os.Remove(filepath.Join(high, "v.json")); err != nil {
		t.Fatal(err)
	}
	want("a removed file", "A=low")
}

func TestErrorsSayWhatThereIs(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.json", "vendor.com/gpu=gpu0", "A=1")
	write(t, dir, "b.json", "vendor.com/nic=eth0", "A=1")
	content(t, dir, "broken.yaml", "cdiVersion: [")
	d := New([]string{dir, "/nonexistent"})
	for name, words := range map[string][]string{
		"vendor.com/gpu=gpu1":  {"CDI device vendor.com/gpu=gpu1", dir + ", /nonexistent", "of its kind there are vendor.com/gpu=gpu0", "broken.yaml"},
		"vendor.com/gpus=gpu0": {"did you mean vendor.com/gpu=gpu0?"},
		"zz.example/zz=zz":     {"zz.example/zz=zz is described by no file"},
	} {
		_, err := env(t, d, name)
		if !errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q lacks %q", err, w)
			}
		}
	}
	if got, err := env(t, d, "vendor.com/gpu=gpu0"); err != nil || len(got) != 1 {
		t.Errorf("the broken file harms others: %v, %v", got, err)
	}
}

// Two files of one folder that describe the same device hide both, and what an
// earlier folder has, and say so.
func TestConflict(t *testing.T) {
	low, dir := t.TempDir(), t.TempDir()
	write(t, low, "v.json", "v.com/c=d", "A=low")
	write(t, dir, "a.json", "v.com/c=d", "A=1")
	write(t, dir, "b.json", "v.com/c=d", "A=2")
	_, err := env(t, New([]string{low, dir}), "v.com/c=d")
	if !errors.Is(err, errdefs.ErrNotFound) || !strings.Contains(err.Error(), "conflicting device") {
		t.Error(err)
	}
}

func TestWhatARequestNames(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"one", "two", "three"} {
		write(t, dir, n+".json", "v.com/c="+n, n+"=1")
	}
	d := New([]string{dir})
	edit := func(names []string, annotations map[string]string) ([]string, error) {
		s := &specs.Spec{Process: &specs.Process{}, Annotations: annotations}
		r := &pod.BundleRequest{Container: &pod.Container{Config: pod.ContainerConfig{CDIDevices: names}}}
		err := d.Edit(t.Context(), r, s)
		return s.Process.Env, err
	}
	got, err := edit([]string{"v.com/c=two"}, map[string]string{"cdi.k8s.io/x": "v.com/c=two,v.com/c=one", "other": "v.com/c=three"})
	if err != nil || !slices.Equal(got, []string{"two=1", "one=1"}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []struct {
		names       []string
		annotations map[string]string
	}{{[]string{"gpu0"}, nil}, {nil, map[string]string{"cdi.k8s.io/x": "gpu0"}}} {
		if _, err := edit(bad.names, bad.annotations); !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), "gpu0") {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := env(t, New(nil), "v.com/c=one"); !errors.Is(err, errdefs.ErrNotFound) || !strings.Contains(err.Error(), "cdi_spec_dirs") {
		t.Errorf("no folders: %v", err)
	}
}

// dead makes a folder whose reader hangs until revive is called, in a file that
// describes nothing.
func dead(t *testing.T) (dir string, revive func()) {
	t.Helper()
	dir = t.TempDir()
	path := filepath.Join(dir, "a.json")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	revive = sync.OnceFunc(func() {
		f, err := os.OpenFile(path, os.O_RDWR, 0) // who has waited for it reads its end
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(revive)
	return dir, revive
}

// A folder that hangs harms only who needs what may be in it, and whoever gave up
// waiting for it gets nothing afterwards.
func TestADeadFolder(t *testing.T) {
	low, revive := dead(t)
	high := t.TempDir()
	write(t, low, "v.json", "v.com/c=low", "A=low")
	write(t, high, "v.json", "v.com/c=high", "A=high")
	d := New([]string{low, high})
	left := &specs.Spec{Process: &specs.Process{}}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := d.Inject(short, left, []string{"v.com/c=high", "v.com/c=low"})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), low) {
		t.Errorf("a folder that hangs: %v", err)
	}
	long, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s := &specs.Spec{Process: &specs.Process{}}
	if err := d.Inject(long, s, []string{"v.com/c=high"}); err != nil || !slices.Equal(s.Process.Env, []string{"A=high"}) {
		t.Errorf("a device of another folder: %v, %v", s.Process.Env, err)
	}
	revive()
	// The look that was left is over before the next one begins.
	if got, err := env(t, d, "v.com/c=low"); err != nil || !slices.Equal(got, []string{"A=low"}) {
		t.Errorf("it answers again: %v, %v", got, err)
	}
	if len(left.Process.Env) > 0 {
		t.Errorf("a spec was changed after its caller had left: %v", left.Process.Env)
	}
}

// What a device node is on the host is looked up for each container, and a spec
// is changed wholly or not at all.
func TestDeviceNodes(t *testing.T) {
	dir := t.TempDir()
	node := filepath.Join(t.TempDir(), "node")
	content(t, dir, "v.json", `{"cdiVersion":"0.5.0","kind":"v.com/c","containerEdits":{"env":["B=1"]},"devices":[{"name":"d","containerEdits":{`+
		`"env":["A=1"],"deviceNodes":[{"path":"/dev/x","hostPath":"`+node+`"}]}}]}`)
	d := New([]string{dir})
	s := &specs.Spec{Process: &specs.Process{}}
	if err := d.Inject(t.Context(), s, []string{"v.com/c=d"}); err == nil || len(s.Process.Env) > 0 {
		t.Errorf("without the node: %v, %v", s.Process.Env, err)
	}
	for _, mode := range []os.FileMode{0o600, 0o640} {
		_ = os.Remove(node)
		if err := unix.Mkfifo(node, uint32(mode)); err != nil {
			t.Fatal(err)
		}
		s := &specs.Spec{Process: &specs.Process{}}
		if err := d.Inject(t.Context(), s, []string{"v.com/c=d"}); err != nil {
			t.Fatal(err)
		}
		if got := s.Linux.Devices; len(got) != 1 || got[0].Type != "p" || got[0].FileMode.Perm() != mode {
			t.Errorf("the node of mode %o is %+v", mode, got)
		}
		if !slices.Equal(s.Process.Env, []string{"B=1", "A=1"}) {
			t.Errorf("the environment is %v", s.Process.Env)
		}
	}
}
