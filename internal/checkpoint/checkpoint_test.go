package checkpoint

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestFolders(t *testing.T) {
	f := New(t.TempDir(), false)
	if left, err := f.Left(); err != nil || len(left) > 0 {
		t.Errorf("at first: %v %v", left, err)
	}
	id := pod.NewContainerID()
	dir, err := f.Make(id)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "old"), "")
	put(t, filepath.Join(f.base, "no-id", "x"), "")
	if again, err := f.Make(id); err != nil || again != dir {
		t.Errorf("%s %v", again, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("an earlier attempt is still there: %v %v", entries, err)
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("others may look into it: %v %v", st.Mode(), err)
	}
	if left, err := f.Left(); err != nil || !slices.Equal(left, []pod.ContainerID{id}) {
		t.Errorf("%v %v", left, err)
	}
	for range 2 {
		if err := f.Remove(id); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []pod.ContainerID{"", "..", "x/y"} {
		if _, err := f.Make(bad); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%q: %v", bad, err)
		}
		if err := f.Remove(bad); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestDescribeAndExport(t *testing.T) {
	f, dir, out := New(t.TempDir(), false), t.TempDir(), filepath.Join(t.TempDir(), "c.tar")
	c := &pod.Container{
		ID: pod.NewContainerID(), Bundle: t.TempDir(), CreatedAt: time.Unix(5, 0),
		Image: pod.ContainerImage{ID: "sha256:1", Ref: "example.com/a@sha256:2", Name: "example.com/a:3"},
	}
	c.Config.Metadata.Name = "main"
	put(t, filepath.Join(c.Bundle, "config.json"), `{"ociVersion":"1.1.0"}`)
	put(t, filepath.Join(dir, "checkpoint", "pages-1.img"), "memory")
	if err := f.Describe(dir, &pod.Record{Handler: "runc"}, c, map[string][]byte{"status.dump": []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if err := f.Export(t.Context(), dir, out); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(out); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	files := untar(t, out)
	var d description
	if err := json.Unmarshal([]byte(files[configFile]), &d); err != nil {
		t.Fatal(err)
	}
	if d.ID != string(c.ID) || d.Name != "main" || d.OCIRuntime != "runc" || d.RootfsImageName != "example.com/a:3" || d.RootfsImageRef != c.Image.Ref || !d.CreatedTime.Equal(c.CreatedAt) || d.CheckpointedAt.IsZero() {
		t.Errorf("%+v", d)
	}
	for name, want := range map[string]string{"checkpoint/": "", "checkpoint/pages-1.img": "memory", "spec.dump": `{"ociVersion":"1.1.0"}`, "status.dump": "{}"} {
		if got, ok := files[name]; !ok || got != want {
			t.Errorf("%s: %q %v", name, got, ok)
		}
	}
	if len(files) != 5 {
		t.Errorf("it has %d files", len(files))
	}
	// What is there stays.
	put(t, out, "precious")
	if err := f.Export(t.Context(), dir, out); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("%v", err)
	}
	if data, _ := os.ReadFile(out); string(data) != "precious" {
		t.Errorf("it was overwritten with %q", data)
	}
}

func untar(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	out := map[string]string{}
	for r := tar.NewReader(file); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(data)
	}
}

// An archive that could not be completed is never seen.
func TestExportThatFailsLeavesNothing(t *testing.T) {
	f, dir, to := New(t.TempDir(), false), t.TempDir(), t.TempDir()
	put(t, filepath.Join(dir, "a"), "x")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errdefs.ErrDeadline)
	if err := f.Export(ctx, dir, filepath.Join(to, "c.tar")); !errors.Is(err, errdefs.ErrDeadline) {
		t.Errorf("%v", err)
	}
	if err := f.Export(t.Context(), filepath.Join(dir, "none"), filepath.Join(to, "c.tar")); err == nil {
		t.Error("a folder that is not there was written")
	}
	if entries, err := os.ReadDir(to); err != nil || len(entries) > 0 {
		t.Errorf("left: %v %v", entries, err)
	}
	if err := f.Export(t.Context(), dir, filepath.Join(to, "none", "c.tar")); err == nil {
		t.Error("an archive in no folder was written")
	}
}

// What an earlier daemon has started is killed with its whole group, and nobody
// else is.
func TestEndWriters(t *testing.T) {
	f, id := New(t.TempDir(), false), pod.NewContainerID()
	start := func(last string, group bool) *exec.Cmd {
		t.Helper()
		cmd := exec.Command("/bin/sh", "-c", "sleep 1000 & wait", "runc", "checkpoint", last)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: group}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if group {
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return cmd
	}
	mine, other := start(string(id), true), start(string(pod.NewContainerID()), true)
	reaped := make(chan struct{})
	go func() { _ = mine.Wait(); close(reaped) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// The command line is the test's own until the program is executed.
	for found := []int(nil); len(found) == 0; {
		var err error
		if found, err = writers(string(id)); err != nil || ctx.Err() != nil {
			t.Fatal(err, ctx.Err())
		}
	}
	if err := f.EndWriters(ctx, id); err != nil {
		t.Fatal(err)
	}
	<-reaped
	if st := mine.ProcessState.String(); !strings.Contains(st, "killed") {
		t.Errorf("it ended by itself: %s", st)
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("another one was ended: %v", err)
	}
}
