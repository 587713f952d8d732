package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.run/internal/pod"
)

// Whatever of a pod is gone, the pod is not what it was, the reason names the
// thing, and the pod can be removed.
func TestObserveTellsWhatIsMissing(t *testing.T) {
	d := driver(t, Config{})
	for name, tc := range map[string]struct {
		spoil func(t *testing.T, s pod.Sandbox)
		says  string
	}{
		"the folder": {func(t *testing.T, s pod.Sandbox) {
			must(t, unmountAll(s.Dir))
			must(t, os.RemoveAll(s.Dir))
		}, "folder"},
		"the folder is a file": {func(t *testing.T, s pod.Sandbox) {
			must(t, unmountAll(s.Dir))
			must(t, os.RemoveAll(s.Dir))
			must(t, os.WriteFile(s.Dir, nil, 0o600))
		}, "folder"},
		"a folder in it is a file": {func(t *testing.T, s pod.Sandbox) {
			must(t, unmountAll(s.Dir))
			ns := filepath.Join(s.Dir, nsFolder)
			must(t, os.RemoveAll(ns))
			must(t, os.WriteFile(ns, nil, 0o600))
		}, "not a directory"},
		"a namespace": {func(t *testing.T, s pod.Sandbox) { must(t, unmount(s.UTSNS)) }, "uts"},
		"the cgroup": {func(t *testing.T, s pod.Sandbox) {
			must(t, d.removeCgroup(t.Context(), pod.ID(filepath.Base(s.Dir))))
		}, "cgroup"},
	} {
		t.Run(name, func(t *testing.T) {
			id, s := create(t, d, &pod.Config{})
			r := &pod.Record{ID: id, Sandbox: s}
			if seen := d.Observe(t.Context(), r); seen.Err != nil || !seen.Alive {
				t.Fatalf("before: %+v", seen)
			}
			tc.spoil(t, s)
			seen := d.Observe(t.Context(), r)
			if seen.Err == nil || seen.Alive || !strings.Contains(seen.Err.Error(), tc.says) {
				t.Errorf("observed %+v", seen)
			}
			must(t, d.Stop(t.Context(), id))
			must(t, d.Remove(t.Context(), id))
			if err := unix.Access(s.Dir, unix.F_OK); err != unix.ENOENT {
				t.Errorf("the folder is left: %v", err)
			}
		})
	}
}
