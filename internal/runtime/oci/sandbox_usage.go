package oci

import (
	"context"
	"fmt"
	"time"

	"fairlead.run/internal/pod"
	"fairlead.run/internal/sentry"
)

// UsageInside asks the sandbox of a pod what the containers use that run in it.
func (h *Handler) UsageInside(ctx context.Context, r *pod.Record) (map[pod.ContainerID]pod.InsideUsage, error) {
	var ids []string
	for _, c := range r.Containers {
		if c.State == pod.Running {
			ids = append(ids, string(c.ID))
		}
	}
	if h.tool.adapter != nil {
		found, err := h.usageAdapted(ctx, ids)
		if err != nil {
			err = fmt.Errorf("measure the containers of pod %s: %w", r.ID.Short(), err)
		}
		return found, err
	}
	socket, err := sentry.Socket(h.tool.root, string(r.ID))
	if err != nil {
		return nil, fmt.Errorf("measure the containers of pod %s: %w", r.ID.Short(), err)
	}
	at := time.Now()
	found, err := sentry.Measure(ctx, socket, ids)
	if err != nil {
		return nil, fmt.Errorf("measure the containers of pod %s: %w", r.ID.Short(), err)
	}
	out := make(map[pod.ContainerID]pod.InsideUsage, len(ids))
	for i, u := range found {
		out[pod.ContainerID(ids[i])] = pod.InsideUsage{At: at, CPU: u.CPU, User: u.User, System: u.System, Memory: u.Memory, Threads: u.Threads}
	}
	return out, nil
}
