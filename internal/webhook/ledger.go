package webhook

import (
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
	"fairlead.run/pkg/runtimeclass"
)

// A pod that was admitted counts at once, and by the watch once it is there. One
// that something else has refused since is forgotten after a while.
const (
	reservedFor  = 10 * time.Second
	mostReserved = 10_000
)

// account is the pods of a class in a namespace.
type account struct{ namespace, class string }

// reservation is a pod that was admitted and was not seen yet.
type reservation struct {
	account
	uid   types.UID
	until time.Time
}

// ledger counts pods for quotas.
type ledger struct {
	// deciding is held from the first look at a count until what was decided by
	// it counts: two pods must not both be the last.
	deciding sync.Mutex

	mu       sync.Mutex
	pods     map[account]int // that the watch has shown
	waiting  map[account]int // reservations
	reserved map[types.UID]account
	// queue is the reservations by their end, and some that are no more.
	queue []reservation
}

// newLedger must be called before the cache runs.
func newLedger(pods *cluster.Store[*cluster.Pod]) *ledger {
	l := &ledger{pods: map[account]int{}, waiting: map[account]int{}, reserved: map[types.UID]account{}}
	pods.OnChange(l.changed)
	return l
}

func (l *ledger) changed(_ string, old, now *cluster.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old != nil {
		less(l.pods, account{old.Namespace, old.Class})
	}
	if now != nil {
		l.pods[account{now.Namespace, now.Class}]++
		l.release(now.UID)
	}
}

// less takes one away; what is none takes no memory.
func less(of map[account]int, a account) {
	if of[a]--; of[a] == 0 {
		delete(of, a)
	}
}

// release ends a reservation, if there is one. The caller holds mu.
func (l *ledger) release(uid types.UID) {
	if a, ok := l.reserved[uid]; ok {
		delete(l.reserved, uid)
		less(l.waiting, a)
	}
}

// expire ends the reservations whose time is over. The caller holds mu.
func (l *ledger) expire() {
	now, n := time.Now(), 0
	for ; n < len(l.queue); n++ {
		r := &l.queue[n]
		if _, ok := l.reserved[r.uid]; !ok {
			continue
		}
		if now.Before(r.until) {
			break
		}
		l.release(r.uid)
	}
	l.queue = l.queue[n:]
	if len(l.queue) == 0 {
		l.queue = nil // and the memory of all that was there
	}
}

// count is how many pods there are, and are about to be, without one: an API server
// that has had no answer asks about the same pod again.
func (l *ledger) count(of account, but types.UID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	n := l.pods[of] + l.waiting[of]
	if has, ok := l.reserved[but]; ok && has == of {
		n--
	}
	return n
}

// reserve has a pod count that was admitted. It is an error if that cannot be
// remembered: then the pod must not be admitted, or there would be more than may be.
func (l *ledger) reserve(uid types.UID, of account) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	if _, ok := l.reserved[uid]; ok {
		return nil // an API server asks again after it has had no answer
	}
	if len(l.reserved) >= mostReserved {
		return fmt.Errorf("count a pod for its quota: %d pods were admitted within %s and are not seen yet; create it again later: %w", len(l.reserved), reservedFor, errdefs.ErrUnavailable)
	}
	if len(l.queue) >= 2*mostReserved {
		l.queue = slices.DeleteFunc(l.queue, func(r reservation) bool { _, ok := l.reserved[r.uid]; return !ok })
	}
	l.reserved[uid] = of
	l.waiting[of]++
	l.queue = append(l.queue, reservation{of, uid, time.Now().Add(reservedFor)})
	return nil
}

// decision is one pod's turn at the ledger.
type decision struct {
	ledger *ledger
	pod    types.UID
	asked  bool
}

// usage counts, and lets nobody else count until end.
func (d *decision) usage(namespace, class string) int {
	if !d.asked {
		d.asked = true
		d.ledger.deciding.Lock()
	}
	return d.ledger.count(account{namespace, class}, d.pod)
}

// end reserves the place of a pod that was admitted by a count.
func (d *decision) end(pod *corev1.Pod, admitted bool) error {
	if !d.asked {
		return nil
	}
	defer d.ledger.deciding.Unlock()
	if admitted && pod.UID != "" {
		return d.ledger.reserve(pod.UID, account{pod.Namespace, runtimeclass.NameOf(pod)})
	}
	return nil
}
