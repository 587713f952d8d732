package cri

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer/fault"
)

// on are the sandboxes that are on handlers.
func (c Client) on(ctx context.Context, handlers []string) ([]Sandbox, error) {
	if len(handlers) == 0 {
		return nil, nil
	}
	all, err := c.Sandboxes(ctx)
	return slices.DeleteFunc(all, func(s Sandbox) bool { return !slices.Contains(handlers, s.Handler) }), err
}

// maxNamed is how many pods an error names.
const maxNamed = 5

// InUse says which pods are on handlers.
func (c Client) InUse(ctx context.Context, handlers []string) error {
	all, err := c.on(ctx, handlers)
	if err != nil || len(all) == 0 {
		return err
	}
	var pods []string
	ended := true
	for _, s := range all {
		pods = append(pods, s.Namespace+"/"+s.Name)
		ended = ended && s.Ended
	}
	slices.Sort(pods)
	pods = slices.Compact(pods)
	more := ""
	if len(pods) > maxNamed {
		more = fmt.Sprintf(" and %d more", len(pods)-maxNamed)
	}
	advice := "delete them first"
	if ended {
		advice = "they have ended: delete them if they are still there, and the kubelet removes what is left of them"
	}
	return fault.New(payload.InUse, "pods on this node use %s: %s%s; %s", strings.Join(handlers, ", "), strings.Join(pods[:min(maxNamed, len(pods))], ", "), more, advice)
}

// Ended is how many sandboxes are on handlers, if all of them have ended, and else 0.
func (c Client) Ended(ctx context.Context, handlers []string) int {
	all, err := c.on(ctx, handlers)
	if err != nil || slices.ContainsFunc(all, func(s Sandbox) bool { return !s.Ended }) {
		return 0
	}
	return len(all)
}

// poll is how often it is asked for sandboxes that somebody is to remove.
const poll = time.Second

// Outlast waits until no sandbox that has ended is on handlers, or one that has not, as
// long as the context allows. A kubelet removes those of pods that were deleted only once
// a minute, and who is told of them looks for pods that nobody finds.
func (c Client) Outlast(ctx context.Context, handlers []string) {
	for c.Ended(ctx, handlers) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(poll):
		}
	}
}
