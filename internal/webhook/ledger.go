package webhook

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/cluster"
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
	until time.Time
}

// ledger counts pods for quotas.
type ledger struct {
	// deciding is held from the first look at a count until what was decided by
	// it counts: two pods must not both be the last.
	deciding sync.Mutex

	mu       sync.Mutex
	pods     map[account]int
	reserved map[types.UID]reservation
}

// newLedger must be called before the cache runs.
func newLedger(pods *cluster.Store[*cluster.Pod]) *ledger {
	l := &ledger{pods: map[account]int{}, reserved: map[types.UID]reservation{}}
	pods.OnChange(l.changed)
	return l
}

func (l *ledger) changed(_ string, old, now *cluster.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old != nil {
		a := account{old.Namespace, old.Class}
		if l.pods[a]--; l.pods[a] == 0 {
			delete(l.pods, a)
		}
	}
	if now != nil {
		l.pods[account{now.Namespace, now.Class}]++
		delete(l.reserved, now.UID)
	}
}

// count is how many pods there are, and are about to be.
func (l *ledger) count(of account) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, now := l.pods[of], time.Now()
	for _, r := range l.reserved {
		if r.account == of && now.Before(r.until) {
			n++
		}
	}
	return n
}

func (l *ledger) reserve(uid types.UID, of account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if len(l.reserved) >= mostReserved {
		maps.DeleteFunc(l.reserved, func(_ types.UID, r reservation) bool { return !now.Before(r.until) })
	}
	if len(l.reserved) < mostReserved {
		l.reserved[uid] = reservation{of, now.Add(reservedFor)}
	}
}

// decision is one pod's turn at the ledger.
type decision struct {
	ledger *ledger
	asked  bool
}

// usage counts, and lets nobody else count until end.
func (d *decision) usage(namespace, class string) int {
	if !d.asked {
		d.asked = true
		d.ledger.deciding.Lock()
	}
	return d.ledger.count(account{namespace, class})
}

// end reserves the place of a pod that was admitted by a count.
func (d *decision) end(pod *corev1.Pod, admitted bool) {
	if !d.asked {
		return
	}
	defer d.ledger.deciding.Unlock()
	if admitted && pod.UID != "" {
		d.ledger.reserve(pod.UID, account{pod.Namespace, runtimeclass.NameOf(pod)})
	}
}
