package nri

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/containerd/nri/pkg/log"
)

// library hands the library's messages to slog. What is worth an info line to it
// is one of many events to us.
type library struct{}

// logger is for the whole process, because the library has one; nil drops what it
// says. The library reads its own without a lock, so that is set only once.
var logger atomic.Pointer[slog.Logger]

func init() { log.Set(library{}) }

func setLog(to *slog.Logger) { logger.Store(to) }

func (library) say(ctx context.Context, level slog.Level, format string, args []any) {
	if to := logger.Load(); to != nil && to.Enabled(ctx, level) {
		to.LogAttrs(ctx, level, "NRI library", slog.String("message", fmt.Sprintf(format, args...)))
	}
}

func (l library) Debugf(ctx context.Context, format string, args ...any) {
	l.say(ctx, slog.LevelDebug, format, args)
}

func (l library) Infof(ctx context.Context, format string, args ...any) {
	l.say(ctx, slog.LevelDebug, format, args)
}

func (l library) Warnf(ctx context.Context, format string, args ...any) {
	l.say(ctx, slog.LevelWarn, format, args)
}

func (l library) Errorf(ctx context.Context, format string, args ...any) {
	l.say(ctx, slog.LevelWarn, format, args)
}
