package lastwords

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// record is a line of a log; one that the container has not ended is partial.
func record(text string) string {
	tag := "P"
	if whole, ok := strings.CutSuffix(text, "\n"); ok {
		text, tag = whole, "F"
	}
	return fmt.Sprintf("2026-01-02T03:04:05.000000006Z stdout %s %s\n", tag, text)
}

func TestRead(t *testing.T) {
	long := strings.Repeat("x", 100)
	var many []string
	for i := range maxLines + 10 {
		many = append(many, fmt.Sprintf("%d\n", i))
	}
	for name, tt := range map[string]struct {
		file   string
		log    []string
		policy corev1.TerminationMessagePolicy
		exit   int32
		want   string
	}{
		"the file":                           {file: "done\n", log: []string{"log\n"}, exit: 1, policy: corev1.TerminationMessageFallbackToLogsOnError, want: "done\n"},
		"the file, cut":                      {file: strings.Repeat("y", maxMessage+1), want: strings.Repeat("y", maxMessage)},
		"the log of what failed":             {log: []string{"a\n", "b\n"}, exit: 1, policy: corev1.TerminationMessageFallbackToLogsOnError, want: "a\nb\n"},
		"the log, a line that was not ended": {log: []string{"a\n", "b"}, exit: 1, policy: corev1.TerminationMessageFallbackToLogsOnError, want: "a\nb"},
		"the log of what succeeded":          {log: []string{"a\n"}, policy: corev1.TerminationMessageFallbackToLogsOnError},
		"the log, which nobody wants":        {log: []string{"a\n"}, exit: 1, policy: corev1.TerminationMessageReadFile},
		"no log":                             {exit: 1, policy: corev1.TerminationMessageFallbackToLogsOnError},
		"the last lines":                     {log: many, exit: 1, policy: corev1.TerminationMessageFallbackToLogsOnError, want: strings.Join(many[10:], "")},
		"the last bytes": {
			log: []string{strings.Repeat(long, 30) + "\n"}, exit: 1, policy: corev1.TerminationMessageFallbackToLogsOnError,
			want: strings.Repeat(long, 30)[:maxLog-1] + "\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			n := Note{Container: &corev1.Container{Name: "c", TerminationMessagePolicy: tt.policy}, Folder: filepath.Join(dir, "words"), Attempt: 3}
			mount, err := n.Mount()
			if err != nil || mount.GetContainerPath() != corev1.TerminationMessagePathDefault {
				t.Fatal(mount, err)
			}
			if err := os.WriteFile(mount.GetHostPath(), []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			log := filepath.Join(dir, "log")
			if tt.log != nil {
				var text strings.Builder
				for _, line := range tt.log {
					text.WriteString(record(line))
				}
				if err := os.WriteFile(log, []byte(text.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := n.Read(tt.exit, log); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if err := n.RemoveBefore(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(mount.GetHostPath()); err != nil {
				t.Errorf("it is forgotten too early: %v", err)
			}
			later := n
			later.Attempt++
			if err := later.RemoveBefore(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(mount.GetHostPath()); !os.IsNotExist(err) {
				t.Errorf("it is not forgotten: %v", err)
			}
		})
	}
}

// TestTailOfALongLine reads a line as long as a log may be, and keeps no more of it than is told.
func TestTailOfALongLine(t *testing.T) {
	log, n := filepath.Join(t.TempDir(), "log"), Note{Container: &corev1.Container{TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError}}
	part, size := record(strings.Repeat("x", 16<<10)), 32<<20
	if err := os.WriteFile(log, []byte(strings.Repeat(part, size/len(part))+record("the end\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := n.Read(1, log)
	runtime.ReadMemStats(&after)
	if len(got) != maxLog || !strings.HasSuffix(got, "xthe end\n") {
		t.Errorf("%d bytes: %q", len(got), got[max(0, len(got)-20):])
	}
	// To read lines of a megabyte takes five times the log, one after the other; to have all of it
	// in one text takes as much again.
	if took := after.TotalAlloc - before.TotalAlloc; took > 7*uint64(size) {
		t.Errorf("it takes %d bytes to read a log of %d", took, size)
	}
}
