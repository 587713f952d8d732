package inflight

import (
	"context"
	"fmt"
	"time"

	"fairlead.run/internal/image/progress"
)

// Watch ends the context when a transfer has brought nothing for that long,
// however slow it was before. The cause says how far it has come. The
// goroutine that watches ends with the returned function.
func Watch(ctx context.Context, track *progress.Tracker, limit time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	begun := time.Now()
	go func() {
		defer close(stopped)
		tick := time.NewTicker(limit/8 + 1)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if track.Idle() > limit {
				cancel(Ended(fmt.Sprintf("no data arrived for %s; the registry or the network to it hangs at %s (%s after the start)",
					limit, hangsAt(track.Snapshot()), time.Since(begun).Round(time.Second))))
			}
		}
	}()
	return ctx, func() { cancel(nil); <-stopped }
}

// hangsAt names the layers that are on their way, or what else is waited for.
func hangsAt(s progress.State) string {
	text, more := "", 0
	for _, l := range s.Layers {
		switch {
		case l.Phase != progress.Downloading:
		case text == "":
			text = fmt.Sprintf("layer %s, %d of %d bytes", l.Digest, l.Done, l.Total)
		default:
			more++
		}
	}
	switch {
	case text == "" && len(s.Layers) > 0:
		return "the image's configuration"
	case text == "":
		return "the image's manifest"
	case more > 0:
		return fmt.Sprintf("%s, and %d more", text, more)
	}
	return text
}
