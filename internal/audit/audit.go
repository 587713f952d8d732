package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// Core is who has the records and the locks of pods.
type Core interface {
	// Records lists every record as it is now. Those that cannot be read are
	// there too, with their id alone.
	Records(ctx context.Context) ([]*pod.Record, error)
	// Hold runs do with the pod's record while no operation on the pod, and
	// none on the container if one is given, is under way. The error of a pod
	// that is busy until ctx ends wraps the context's.
	Hold(ctx context.Context, id pod.ID, container pod.ContainerID, do func(*pod.Record) error) error
}

// Part is a driver to look at.
type Part struct {
	Name   string // for people
	Keeper pod.Keeper
}

// Auditor looks at one node. Make one with New.
type Auditor struct {
	core  Core
	parts []Part
}

// New makes an auditor of the core's pods and the drivers' things.
func New(core Core, parts []Part) *Auditor { return &Auditor{core: core, parts: parts} }

// Report is what an audit found.
type Report struct {
	Findings []Outcome
	// Blind says where nobody could look, and why.
	Blind []error
	// Busy are pods of which an operation was under way for so long that what
	// was seen of them means nothing.
	Busy []pod.ID
}

// Outcome is a finding and what became of it.
type Outcome struct {
	Finding
	Repaired bool
	Err      error // why a repair did not succeed, or was not tried
	part     int
	asked    bool // a pod.Examiner said it
}

// Left says whether something of the report still stands.
func (r *Report) Left() bool {
	return slices.ContainsFunc(r.Findings, func(o Outcome) bool { return !o.Repaired })
}

const (
	// busyAfter bounds the wait for an operation on a pod that seems not to be
	// in order.
	busyAfter = 5 * time.Second
	// mendLimit bounds that wait and the repair of one thing.
	mendLimit = 2 * time.Minute
)

// Look compares and changes nothing.
func (a *Auditor) Look(ctx context.Context) (Report, error) {
	var out Report
	var records [3][]*pod.Record
	held := make([][2][]pod.Held, len(a.parts)) // by part
	blind := make([]error, len(a.parts))
	for i := range records {
		var err error
		if records[i], err = a.core.Records(ctx); err != nil {
			return out, fmt.Errorf("audit: read the records: %w", err)
		}
		for n, p := range a.parts {
			if i < len(held[n]) && blind[n] == nil {
				held[n][i], blind[n] = p.Keeper.Held(ctx, records[i])
			}
		}
		if ctx.Err() != nil {
			return out, fmt.Errorf("audit: %w", context.Cause(ctx))
		}
	}
	out.Findings = unreadable(records[len(records)-1])
	for n, p := range a.parts {
		if blind[n] != nil {
			out.Blind = append(out.Blind, fmt.Errorf("look at %s: %w", p.Name, blind[n]))
			continue
		}
		for _, f := range compare(views{records: records, held: held[n]}, p.Keeper.Wants) {
			out.Findings = append(out.Findings, Outcome{Finding: f, part: n})
		}
	}
	a.ask(ctx, records, &out)
	slices.SortStableFunc(out.Findings, func(x, y Outcome) int { return x.rank - y.rank })
	return out, a.confirm(ctx, &out)
}

// unreadable are the findings about records themselves.
func unreadable(records []*pod.Record) (out []Outcome) {
	for _, r := range records {
		if Unreadable(r) {
			for _, f := range describe(pod.Held{Kind: pod.KindRecord, Name: string(r.ID), Owner: string(r.ID), Fault: r.Reason}, Faulty, r) {
				out = append(out, Outcome{Finding: f, part: -1})
			}
		}
	}
	return out
}

// confirm looks again at the pods that are on record, while nobody changes
// them: an operation may have been about to do what seemed forgotten.
func (a *Auditor) confirm(ctx context.Context, out *Report) error {
	var kept []Outcome
	for _, o := range out.Findings {
		if o.Pod == nil || o.part < 0 {
			kept = append(kept, o)
			continue
		}
		stands := false
		err := a.hold(ctx, busyAfter, &o.Finding, func(r *pod.Record) error {
			stands = true
			return a.stands(ctx, &o, r)
		})
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("audit: %w", context.Cause(ctx))
		case err == nil:
			kept = append(kept, o)
		case !stands && errors.Is(err, context.DeadlineExceeded):
			out.Busy = append(out.Busy, o.Pod.ID)
		case !errors.Is(err, errGone) && !errors.Is(err, errdefs.ErrNotFound):
			out.Blind = append(out.Blind, err)
		}
	}
	slices.Sort(out.Busy)
	out.Findings, out.Busy = kept, slices.Compact(out.Busy)
	return nil
}

// errGone says that a finding is none any more.
var errGone = errors.New("it is in order by now")

// stands looks whether a finding is still true. The pod is held.
func (a *Auditor) stands(ctx context.Context, o *Outcome, r *pod.Record) error {
	k := a.parts[o.part].Keeper
	held, err := a.seen(ctx, o, r)
	if err != nil {
		return err
	}
	all := []*pod.Record{r}
	again := compare(views{records: [3][]*pod.Record{all, all, all}, held: [2][]pod.Held{held, held}}, k.Wants)
	for _, f := range again {
		if f.Problem == o.Problem && f.Thing.Key() == o.Thing.Key() && f.Pod != nil {
			o.Finding = f
			return nil
		}
	}
	return errGone
}

// seen is what a finding's part has of one pod, or what it says when it asks
// others about it.
func (a *Auditor) seen(ctx context.Context, o *Outcome, r *pod.Record) ([]pod.Held, error) {
	if o.asked {
		return examine(ctx, a.parts[o.part], r)
	}
	return a.parts[o.part].Keeper.Held(ctx, []*pod.Record{r})
}

// hold keeps others from the pod of a finding, and from its container.
func (a *Auditor) hold(ctx context.Context, limit time.Duration, f *Finding, do func(*pod.Record) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var container pod.ContainerID
	if f.Thing.Owner != string(f.Pod.ID) {
		container = pod.ContainerID(f.Thing.Owner)
	}
	return a.core.Hold(ctx, f.Pod.ID, container, do)
}
