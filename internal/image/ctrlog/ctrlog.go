// Package ctrlog hands the log of containerd's libraries to slog. Importing it
// is enough for messages that come without a context; the others go where the
// Entry in their context says.
package ctrlog

import (
	"context"
	"io"
	"log/slog"

	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
)

// Some of the libraries' messages come without a context, and would go to
// standard error in logrus's format. Before main is the only moment at which
// nobody reads the variable.
func init() {
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.AddHook(bridge{})
	log.L = logrus.NewEntry(l)
}

// New makes the logger that containerd's libraries get in their context.
// It hands every entry to slog.
func New(to *slog.Logger) *log.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	l.SetLevel(logrus.WarnLevel)
	if to.Enabled(context.Background(), slog.LevelDebug) {
		l.SetLevel(logrus.DebugLevel)
	}
	l.AddHook(bridge{to})
	return logrus.NewEntry(l)
}

// bridge is a logrus hook that writes to slog; to nil is slog's default, for
// messages without a context.
type bridge struct{ to *slog.Logger }

func (b bridge) Levels() []logrus.Level { return logrus.AllLevels }

// Fire maps levels one step down: what is worth an info line to containerd is
// a step of a pull to us, and the pull itself returns its error.
func (b bridge) Fire(e *logrus.Entry) error {
	to, loud := b.to, logrus.WarnLevel
	if to == nil { // such are about what this host's file system lacks
		to, loud = slog.Default(), logrus.ErrorLevel
	}
	level := slog.LevelDebug
	if e.Level <= loud {
		level = slog.LevelWarn
	}
	attrs := make([]slog.Attr, 0, len(e.Data)+1)
	attrs = append(attrs, slog.String("message", e.Message))
	for k, v := range e.Data {
		attrs = append(attrs, slog.Any(k, v))
	}
	to.LogAttrs(context.Background(), level, "image library", attrs...)
	return nil
}
