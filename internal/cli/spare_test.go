package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSpare gives a process its score, and tells who cannot have it.
func TestSpare(t *testing.T) {
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), "oom_score_adj")
	spare(&out, file, -999)
	if text, err := os.ReadFile(file); err != nil || string(text) != "-999" || out.Len() > 0 {
		t.Errorf("%q, %v: %s", text, err, &out)
	}
	spare(&out, filepath.Dir(file), -999)
	if !strings.Contains(out.String(), "the oom_score_adj -999") || !strings.Contains(out.String(), "OOMScoreAdjust") {
		t.Error(out.String())
	}
}
