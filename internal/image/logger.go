package image

import (
	"context"
	"io"
	"log/slog"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

// newLogger makes the logger that containerd's libraries get in their context.
// It hands every entry to slog, and touches no global of logrus.
func newLogger(to *slog.Logger) *log.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.SetLevel(logrus.WarnLevel)
	if to.Enabled(context.Background(), slog.LevelDebug) {
		l.SetLevel(logrus.DebugLevel)
	}
	l.AddHook(bridge{to.With("component", "containerd")})
	return logrus.NewEntry(l)
}

// bridge is a logrus hook that writes to slog.
type bridge struct{ to *slog.Logger }

func (b bridge) Levels() []logrus.Level { return logrus.AllLevels }

// Fire maps levels one step down: what is worth an info line to containerd is
// a step of a pull to us, and the pull itself returns its error.
func (b bridge) Fire(e *logrus.Entry) error {
	level := slog.LevelDebug
	if e.Level <= logrus.WarnLevel {
		level = slog.LevelWarn
	}
	attrs := make([]slog.Attr, 0, len(e.Data)+1)
	attrs = append(attrs, slog.String("message", e.Message))
	for k, v := range e.Data {
		attrs = append(attrs, slog.Any(k, v))
	}
	b.to.LogAttrs(context.Background(), level, "image library", attrs...)
	return nil
}
