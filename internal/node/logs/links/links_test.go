package links

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestFolder(t *testing.T) {
	for logs, want := range map[string]string{"/var/log/pods": "/var/log/containers", "/var/log/pods/": "/var/log/containers", "/data/logs": "/data/logs-containers"} {
		if got := Folder(logs); got != want {
			t.Errorf("of %s: %s, want %s", logs, got, want)
		}
	}
}

func TestMake(t *testing.T) {
	long := strings.Repeat("p", 250)
	for name, tt := range map[string]struct {
		c    Container
		want string
	}{
		"a name":    {Container{Namespace: "ns", Pod: "web-0", Name: "main", ID: "abc123"}, "web-0_ns_main-abc123.log"},
		"cut short": {Container{Namespace: "ns", Pod: long, Name: "main", ID: "abc123"}, long + "_.log"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			logs := filepath.Join(dir, "pods")
			folder := Folder(logs)
			c := tt.c
			c.Log = filepath.Join(logs, "ns_p_uid", "main", "0.log")
			if err := Make(folder, c); err != nil || len(names(t, folder)) > 0 {
				t.Errorf("without a log: %q, %v", names(t, folder), err)
			}
			write(t, c.Log)
			for range 2 {
				if err := Make(folder, c); err != nil {
					t.Fatal(err)
				}
			}
			if got := names(t, folder); !slices.Equal(got, []string{tt.want}) {
				t.Errorf("%q, want %q", got, tt.want)
			}
			moved := c
			moved.Log = write(t, filepath.Join(logs, "other", "0.log"))
			if err := Make(folder, moved); err != nil {
				t.Fatal(err)
			}
			if to, err := os.Readlink(filepath.Join(folder, tt.want)); err != nil || to != moved.Log {
				t.Errorf("it is to %q, %v", to, err)
			}
		})
	}
}

// TestSweep removes what leads nowhere in the folder of logs, and nothing else: no link to a
// log that is being rotated, and none of others.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	logs := filepath.Join(dir, "pods")
	folder := Folder(logs)
	if err := Sweep(logs); err != nil {
		t.Errorf("without a folder: %v", err)
	}
	link := func(name, to string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(folder, "file.log"))
	link("there.log", write(t, logs+"/a/m/0.log"))
	link("dead.log", logs+"/a/m/1.log")
	link("rotated.log", strings.TrimSuffix(write(t, logs+"/a/m/2.log.20260102-030405"), ".20260102-030405"))
	link("pod.log", logs+"/b/m/0.log")
	link("foreign.log", dir+"/elsewhere/0.log")
	link("beside.log", logs+"-old/0.log")
	if err := Sweep(logs); err != nil {
		t.Fatal(err)
	}
	if got, want := names(t, folder), []string{"beside.log", "file.log", "foreign.log", "rotated.log", "there.log"}; !slices.Equal(got, want) {
		t.Errorf("%q is left, want %q", got, want)
	}
	if err := Sweep(""); err != nil {
		t.Error(err)
	}
}
