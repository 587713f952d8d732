package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

// oracle is a node of which some faults have to be asked for.
type oracle struct {
	node
	mu     sync.Mutex
	says   map[pod.ID]string // what is wrong with a pod
	fails  map[pod.ID]error
	hangs  bool
	asked  map[pod.ID]int
	now    int // how many are being asked about
	most   int
	forget bool // says each thing once only
}

func (o *oracle) Examine(ctx context.Context, r *pod.Record) ([]pod.Held, error) {
	o.mu.Lock()
	o.now++
	o.most = max(o.most, o.now)
	if o.asked == nil {
		o.asked = map[pod.ID]int{}
	}
	o.asked[r.ID]++
	o.mu.Unlock()
	if o.hangs {
		<-ctx.Done()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now--
	if ctx.Err() != nil {
		return nil, fmt.Errorf("pod %s: %w", r.ID, context.Cause(ctx))
	}
	fault := o.says[r.ID]
	if o.forget {
		delete(o.says, r.ID)
	}
	if fault == "" {
		return nil, o.fails[r.ID]
	}
	h := held(pod.KindAttachment, "of "+string(r.ID), string(r.ID))
	h.Fault = fault
	return []pod.Held{h}, nil
}

func (o *oracle) auditor() *Auditor { return New(o, []Part{{"things", o}}) }

// TestWhatHasToBeAskedFor wants the fault of a pod that runs, asked for a second
// time while the pod is held, and no word of others.
func TestWhatHasToBeAskedFor(t *testing.T) {
	o := &oracle{says: map[pod.ID]string{"p": "no eth0", "stopped": "of no interest"}, fails: map[pod.ID]error{"gone": errdefs.ErrNotFound}}
	o.records = []*pod.Record{record("p", pod.Running), record("q", pod.Running), record("gone", pod.Running), record("stopped", pod.Exited)}
	got, err := o.auditor().Look(t.Context())
	if err != nil || len(got.Blind) > 0 || len(got.Findings) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if f := got.Findings[0]; f.Code() != "attachment-faulty" || f.Pod.ID != "p" || !strings.Contains(f.Means, "no eth0") || f.Action == "" {
		t.Errorf("%+v", f)
	}
	if o.asked["p"] != 2 || o.asked["q"] != 1 || o.asked["stopped"] != 0 || o.held != 1 {
		t.Errorf("asked %v, held %d", o.asked, o.held)
	}
}

// TestWhatIsSaidOnceOnly wants no finding of what is in order by the second time.
func TestWhatIsSaidOnceOnly(t *testing.T) {
	o := &oracle{says: map[pod.ID]string{"p": "it is being stopped"}, forget: true}
	o.records = []*pod.Record{record("p", pod.Running)}
	if got, err := o.auditor().Look(t.Context()); err != nil || len(got.Findings)+len(got.Blind) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestOneThingIsFoundOnce wants no second finding of what Held says already.
func TestOneThingIsFoundOnce(t *testing.T) {
	o := &oracle{says: map[pod.ID]string{"p": "no eth0"}}
	o.records = []*pod.Record{record("p", pod.Running)}
	seen := held(pod.KindAttachment, "of p", "p")
	seen.Fault = "it cannot be read"
	o.things = map[pod.Held]pod.Held{seen.Key(): seen}
	got, err := o.auditor().Look(t.Context())
	if err != nil || len(got.Findings) != 1 || !strings.Contains(got.Findings[0].Means, "cannot be read") {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestWhoeverIsAskedMayFailOrHang wants the rest of a report all the same, within
// a limit, and one line for all that could not be found out.
func TestWhoeverIsAskedMayFailOrHang(t *testing.T) {
	var records []*pod.Record
	for i := range 100 {
		records = append(records, record(fmt.Sprintf("p%d", i), pod.Running))
	}
	check := func(o *oracle, text string) {
		t.Helper()
		o.records = records
		o.put(held(pod.KindMount, "m", "nobody"))
		got, err := o.auditor().Look(t.Context())
		if err != nil || len(got.Findings) != 1 || len(got.Blind) != 1 || !strings.Contains(got.Blind[0].Error(), text) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	check(&oracle{fails: map[pod.ID]error{"p7": errors.New("plugin away")}}, "of 1 pods")
	synctest.Test(t, func(t *testing.T) {
		o := &oracle{hangs: true}
		began := time.Now()
		check(o, "of 100 pods")
		if took := time.Since(began); took > askLimit || o.most != examiners {
			t.Errorf("it took %s, with %d at once", took, o.most)
		}
	})
}
