package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

const (
	// examineLimit bounds what is asked about one pod, and askLimit all of a look:
	// whoever is asked may hang.
	examineLimit = 10 * time.Second
	askLimit     = time.Minute
	// examiners is how many pods are asked about at once. Each costs processes.
	examiners = 4
)

// ask has the parts that can examine the pods that ran all the while, after
// everything else was compared.
func (a *Auditor) ask(ctx context.Context, records [3][]*pod.Record, out *Report) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	running := ranAllTheWhile(records)
	for n, p := range a.parts {
		if _, ok := p.Keeper.(pod.Examiner); !ok {
			continue
		}
		faults, failed := examineAll(ctx, p, running)
		for _, f := range faults {
			o := Outcome{Finding: f, part: n, asked: true}
			if !slices.ContainsFunc(out.Findings, o.same) {
				out.Findings = append(out.Findings, o)
			}
		}
		if len(failed) > 0 {
			out.Blind = append(out.Blind, fmt.Errorf("look at %s: of %d pods it could not be found out whether they are in order, such as: %w", p.Name, len(failed), failed[0]))
		}
	}
}

// same says whether two findings are of the same thing.
func (o *Outcome) same(other Outcome) bool {
	return o.Problem == other.Problem && o.Thing.Key() == other.Thing.Key()
}

// ranAllTheWhile are the pods that were Running in all views, as they are now.
func ranAllTheWhile(records [3][]*pod.Record) (out []*pod.Record) {
	times := map[pod.ID]int{}
	for _, list := range records {
		for _, r := range list {
			if r.State == pod.Running {
				times[r.ID]++
			}
		}
	}
	for _, r := range records[len(records)-1] {
		if times[r.ID] == len(records) {
			out = append(out, r)
		}
	}
	return out
}

// examineAll asks about some pods at a time.
func examineAll(ctx context.Context, p Part, list []*pod.Record) (faults []Finding, failed []error) {
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(examiners)
	for _, r := range list {
		g.Go(func() error {
			held, err := examine(ctx, p, r)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && !errors.Is(err, errdefs.ErrNotFound) {
				failed = append(failed, err)
			}
			for _, h := range held {
				faults = append(faults, describe(h, Faulty, r)...)
			}
			return nil
		})
	}
	_ = g.Wait()
	slices.SortFunc(faults, func(a, b Finding) int { return compareFindings(&a, &b) })
	return faults, failed
}

func examine(ctx context.Context, p Part, r *pod.Record) ([]pod.Held, error) {
	e, ok := p.Keeper.(pod.Examiner)
	if !ok {
		return nil, fmt.Errorf("%s cannot be asked about pods: %w", p.Name, errdefs.ErrUnimplemented)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("pod %s was not examined within %s: %w", r.ID.Short(), askLimit, context.Cause(ctx))
	}
	ctx, cancel := context.WithTimeout(ctx, examineLimit)
	defer cancel()
	return e.Examine(ctx, r)
}
