package foreground

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.run/internal/node/fakeruntime"
	"fairlead.run/internal/node/logs/rotate"
)

// TestLogsAreRotated keeps the log of a pod small as long as the run lasts.
func TestLogsAreRotated(t *testing.T) {
	fake := fakeruntime.New()
	s := newStage(t, fake, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: 'i:1'}]}\n")
	s.cfg.Rotation = rotate.Config{Size: 64, Interval: 10 * time.Millisecond}
	stop := s.runs(t)
	path := filepath.Join(s.pods[0].logDir, "c", "0.log")
	line := "2026-01-01T00:00:00.000000000Z stdout F " + strings.Repeat("x", 100) + "\n"
	if err := os.WriteFile(path, []byte(line), 0o640); err != nil {
		t.Fatal(err)
	}
	await(t, "a rotation", func() bool { return len(fake.Calls("reopen a/c")) > 0 })
	if files, err := filepath.Glob(path + ".*"); err != nil || len(files) != 1 {
		t.Errorf("%q, %v", files, err)
	}
	stop()
}
