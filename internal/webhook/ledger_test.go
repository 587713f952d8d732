package webhook

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
)

func emptyLedger() *ledger { return newLedger(cluster.NewCache(nil, cluster.Options{}).Pods) }

func TestLedgerCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, of := emptyLedger(), account{"team", "gvisor"}
		want := func(when string, n int) {
			t.Helper()
			if got := l.count(of, ""); got != n {
				t.Errorf("%s: %d pods, want %d", when, got, n)
			}
		}
		reserve := func(uid types.UID) {
			t.Helper()
			if err := l.reserve(uid, of); err != nil {
				t.Fatal(err)
			}
		}
		reserve("a")
		reserve("a")
		reserve("b")
		want("admitted", 2)
		if n := l.count(of, "a"); n != 1 {
			t.Errorf("%d pods beside one that is asked about again, want 1", n)
		}
		a := &cluster.Pod{UID: "a", Namespace: "team", Class: "gvisor"}
		l.changed("team/a", nil, a)
		want("one is seen", 2)
		time.Sleep(reservedFor)
		want("the other never was", 1)
		l.changed("team/a", a, a)
		want("it changed", 1)
		l.changed("team/a", a, nil)
		want("gone", 0)
		if len(l.pods)+len(l.waiting)+len(l.reserved)+len(l.queue) != 0 {
			t.Errorf("left: %+v", l)
		}
	})
}

// What cannot be counted is not admitted: a flood must not open a quota.
func TestLedgerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, of := emptyLedger(), account{"team", "gvisor"}
		for i := range mostReserved {
			if err := l.reserve(types.UID(fmt.Sprint(i)), of); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.reserve("more", of); !errors.Is(err, errdefs.ErrUnavailable) {
			t.Errorf("one more than can be remembered: %v", err)
		}
		if n := l.count(of, ""); n != mostReserved {
			t.Errorf("%d pods, want %d", n, mostReserved)
		}
		time.Sleep(reservedFor)
		if err := l.reserve("more", of); err != nil {
			t.Errorf("after the others were forgotten: %v", err)
		}
		// Those that are seen make room.
		for i := range 5 * mostReserved {
			uid := types.UID(fmt.Sprint("seen-", i))
			if err := l.reserve(uid, of); err != nil {
				t.Fatal(err)
			}
			l.changed(string(uid), nil, &cluster.Pod{UID: uid, Namespace: "team", Class: "gvisor"})
		}
		if len(l.queue) > 2*mostReserved {
			t.Errorf("%d reservations are kept", len(l.queue))
		}
	})
}
