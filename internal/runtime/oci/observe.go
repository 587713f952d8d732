package oci

import (
	"context"
	"errors"
	"fmt"
	"time"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime/oci/process"
)

// Observe says whether the process lives, and if not how it ended. Where p is
// nil, because a crash came before it was recorded, the monitor is asked.
func (h *Handler) Observe(ctx context.Context, id string, p *pod.RunningProcess) pod.Seen {
	if p != nil && p.StartTime != 0 {
		lives, err := process.Alive(p)
		if err != nil {
			return pod.Seen{Err: fmt.Errorf("observe process %d of container %s: %w", p.PID, id, err)}
		}
		if lives {
			return pod.Seen{Alive: true}
		}
	}
	seen, err := h.ended(ctx, id)
	if err != nil {
		return pod.Seen{Err: fmt.Errorf("observe container %s: %w", id, err)}
	}
	if seen.Alive && p != nil && p.StartTime != 0 {
		// The monitor has not noticed the end yet, or still copies the output.
		return h.endSoon(ctx, id)
	}
	return seen
}

// ended asks the monitor for its record. Without one, the end was not seen.
func (h *Handler) ended(ctx context.Context, id string) (pod.Seen, error) {
	m, err := h.begun(ctx, id)
	if errors.Is(err, errdefs.ErrNotFound) {
		return pod.Seen{}, nil
	}
	if err != nil {
		return pod.Seen{}, err
	}
	began := h.running(pod.RunningProcess{PID: m.PID, StartTime: m.StartTime, StartedAt: m.StartedAt}, id)
	seen := pod.Seen{Process: &began}
	if m.State == monitorv1.Exited && m.Exit != nil {
		exit := exitOf(*m.Exit)
		seen.Exit = &exit
		return seen, nil
	}
	seen.Alive = true
	return seen, nil
}

// begun is what the monitor knows of a process. One that it is starting, on the
// request of an earlier daemon, has no pid yet and may come to nothing; that is
// waited for.
func (h *Handler) begun(ctx context.Context, id string) (monitorv1.Process, error) {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		m, err := h.cfg.Monitor.Find(ctx, id)
		if err != nil || m.State != monitorv1.Starting {
			return m, err
		}
		select {
		case <-ctx.Done():
			return m, fmt.Errorf("its start, of before the daemon's, is still under way: %w", context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// endWait bounds the wait for the record of a process that is gone.
const endWait = 5 * time.Second

func (h *Handler) endSoon(ctx context.Context, id string) pod.Seen {
	ctx, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	exit, err := wait(ctx, h.cfg.Monitor, id)
	if err != nil {
		return pod.Seen{Err: fmt.Errorf("observe container %s: its process is gone, and the monitor has not recorded the end yet: %w", id, err)}
	}
	return pod.Seen{Exit: &exit}
}
