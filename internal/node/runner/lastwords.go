package runner

import (
	"context"
	"path/filepath"
	"strings"

	"fairlead.run/internal/node/logs"
	"fairlead.run/internal/node/podspec"
)

// lastLogLines are what the kubelet falls back to: at most 80 lines and 2 KiB.
func (w *worker) lastLogLines(c *container) string {
	path := filepath.Join(w.spec.LogDir, podspec.Attempt{Container: c.spec, Number: c.attempt}.LogPath())
	var b strings.Builder
	err := logs.Read(context.Background(), path, logs.Options{Tail: 80}, func(l logs.Line) error {
		b.Write(l.Text)
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		return ""
	}
	text := b.String()
	return text[max(0, len(text)-2048):]
}
