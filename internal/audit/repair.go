package audit

import (
	"context"
	"errors"
	"fmt"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// rounds bounds Repair: what one repair brings to light, the next one takes.
const rounds = 3

// Repair looks, and repairs what it found and can be repaired. The report has
// everything that was found; what could not be repaired says why.
func (a *Auditor) Repair(ctx context.Context) (Report, error) {
	all, err := a.Look(ctx)
	if err != nil {
		return all, err
	}
	for range rounds {
		a.mend(ctx, all.Findings)
		seen, err := a.Look(ctx)
		if err != nil {
			return all, err
		}
		if more := merge(&all, seen); !more {
			break
		}
	}
	return all, nil
}

// merge adds what a later look found, and says whether there is more to do.
// What was repaired and is found again was not repaired.
func merge(all *Report, seen Report) (more bool) {
	all.Blind, all.Busy = seen.Blind, seen.Busy
	for _, now := range seen.Findings {
		known := false
		for i := range all.Findings {
			o := &all.Findings[i]
			if o.Problem != now.Problem || o.Thing.Key() != now.Thing.Key() {
				continue
			}
			known = true
			if o.Repaired {
				o.Repaired, o.Err = false, fmt.Errorf("it is there again after the repair: %w", errdefs.ErrPrecondition)
			}
		}
		if !known {
			all.Findings = append(all.Findings, now)
			more = more || now.Finding.Repair
		}
	}
	return more
}

// mend repairs findings in their order. Where one of somebody's things does
// not go, the rest stays: it may be in use.
func (a *Auditor) mend(ctx context.Context, list []Outcome) {
	stuck := map[string]error{}
	for i := range list {
		o := &list[i]
		if o.Repaired || o.Err != nil || !o.Finding.Repair {
			continue
		}
		if err := stuck[o.Thing.Owner]; err != nil && o.Problem == Leftover {
			o.Err = fmt.Errorf("not tried, because something before it failed: %w", err)
			continue
		}
		o.Err = a.mendOne(ctx, o)
		o.Repaired = o.Err == nil
		if o.Err != nil && o.Thing.Owner != "" {
			stuck[o.Thing.Owner] = o.Err
		}
	}
}

func (a *Auditor) mendOne(ctx context.Context, o *Outcome) error {
	k := a.parts[o.part].Keeper
	if o.Pod == nil && o.Problem == Leftover {
		return k.Drop(ctx, o.Thing)
	}
	if o.Pod == nil {
		return k.Restore(ctx, nil, o.Thing)
	}
	var failed error
	err := a.hold(ctx, mendLimit, &o.Finding, func(r *pod.Record) error {
		if err := a.stands(ctx, o, r); err != nil {
			return err
		}
		if o.Problem == Leftover {
			failed = k.Drop(ctx, o.Thing)
		} else {
			failed = k.Restore(ctx, r, o.Thing)
		}
		return nil
	})
	if errors.Is(err, errGone) || errors.Is(err, errdefs.ErrNotFound) {
		return nil // it is in order by now, or the pod is gone
	}
	return errors.Join(err, failed)
}
