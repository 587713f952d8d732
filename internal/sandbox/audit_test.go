package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// TestDropFolderEmptiesNoMount wants a folder left alone as long as something is
// mounted in it, whatever that is.
func TestDropFolderEmptiesNoMount(t *testing.T) {
	d := driver(t, Config{})
	id := string(pod.NewID())
	dir, precious := filepath.Join(d.cfg.StateDir, "pods", id), t.TempDir()
	at := filepath.Join(dir, "somewhere", "deep")
	must(t, os.MkdirAll(at, 0o700))
	must(t, os.WriteFile(filepath.Join(precious, "file"), nil, 0o600))
	must(t, unix.Mount(precious, at, "", unix.MS_BIND, ""))
	defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
	folder := pod.Held{Kind: pod.KindFolder, Name: dir, Owner: id}
	if err := d.Drop(t.Context(), folder); !errors.Is(err, errdefs.ErrPrecondition) {
		t.Errorf("with a mount: %v", err)
	}
	held, err := d.Held(t.Context(), nil)
	must(t, err)
	for _, h := range held {
		if h.Kind == pod.KindMount {
			must(t, d.Drop(t.Context(), h))
		}
	}
	must(t, d.Drop(t.Context(), folder))
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder: %v", err)
	}
	if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
		t.Errorf("what was mounted: %v", err)
	}
}

// TestDropFilesOfNobody wants the folder on disk found and dropped like the one
// in the state folder, and each by itself.
func TestDropFilesOfNobody(t *testing.T) {
	d := driver(t, Config{})
	id := string(pod.NewID())
	state, disk := filepath.Join(d.cfg.StateDir, "pods", id), filepath.Join(d.cfg.RootDir, "pods", id)
	must(t, os.MkdirAll(state, 0o700))
	must(t, os.MkdirAll(disk, 0o700))
	held, err := d.Held(t.Context(), nil)
	must(t, err)
	var found []string
	for _, h := range held {
		if h.Kind == pod.KindFolder && h.Owner == id {
			found = append(found, h.Name)
		}
	}
	if !slices.Equal(found, []string{state, disk}) {
		t.Fatalf("found %v", found)
	}
	must(t, d.Drop(t.Context(), pod.Held{Kind: pod.KindFolder, Name: disk, Owner: id}))
	if _, err := os.Stat(disk); !os.IsNotExist(err) {
		t.Errorf("the folder on disk: %v", err)
	}
	if _, err := os.Stat(state); err != nil {
		t.Errorf("the other folder: %v", err)
	}
	must(t, d.Drop(t.Context(), pod.Held{Kind: pod.KindFolder, Name: state, Owner: id}))
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("the state folder: %v", err)
	}
}

// TestRestoreFilesOnDisk wants a running pod's folder on disk, and what is in it, put
// back.
func TestRestoreFilesOnDisk(t *testing.T) {
	d := driver(t, Config{})
	id, s := create(t, d, &pod.Config{})
	r := &pod.Record{ID: id, Sandbox: s, State: pod.Running}
	must(t, d.WriteFiles(t.Context(), r))
	folder := pod.Held{Kind: pod.KindFolder, Name: s.Files, Owner: string(id)}
	if !slices.Contains(d.Wants(r), folder) {
		t.Errorf("wants %v", d.Wants(r))
	}
	must(t, os.RemoveAll(s.Files))
	must(t, d.Restore(t.Context(), r, folder))
	if fault := missingFile(s.Files); fault != "" {
		t.Error(fault)
	}
}

// TestDropCgroupStaysInItsPlace wants no process killed by a name that leads
// elsewhere.
func TestDropCgroupStaysInItsPlace(t *testing.T) {
	d, err := New(Config{StateDir: "/x", RootDir: "/y"})
	must(t, err)
	for _, name := range []string{"", "/", "/fairlead", "/fairlead/", "/fairlead/..", "/fairlead/../user.slice"} {
		if err := d.Drop(t.Context(), pod.Held{Kind: pod.KindCgroup, Name: name, Owner: "q"}); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestRepinNeedsTheProcess wants no namespace pinned from a process that has
// another's pid, nor the node's own.
func TestRepinNeedsTheProcess(t *testing.T) {
	d := driver(t, Config{})
	id, s := create(t, d, &pod.Config{})
	r := &pod.Record{ID: id, State: pod.Running, Sandbox: s}
	must(t, unmount(s.UTSNS))
	lost := pod.Held{Kind: pod.KindNamespace, Name: s.UTSNS, Owner: string(id)}
	for name, p := range map[string]*pod.RunningProcess{
		"another start time":    {PID: os.Getpid(), StartTime: 1},
		"in the node's own one": {PID: os.Getpid(), StartTime: startTime(os.Getpid())},
		"gone":                  {PID: 1 << 29, StartTime: 7},
	} {
		r.Containers = []*pod.Container{{ID: "c", State: pod.Running, Process: p}}
		if err := d.Restore(t.Context(), r, lost); !errors.Is(err, errdefs.ErrPrecondition) {
			t.Errorf("%s: %v", name, err)
		}
		if ok, err := pinned(s.UTSNS); ok || err != nil {
			t.Errorf("%s: pinned %v (%v)", name, ok, err)
		}
	}
}
