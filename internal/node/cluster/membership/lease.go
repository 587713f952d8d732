package membership

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/node/cluster/pace"
)

const (
	leases = "leases"
	// LeaseDuration is after which time a lease is too old that was not renewed, as for a kubelet.
	LeaseDuration = 40 * time.Second
	// leaseTries is how often it is tried to renew a lease before it is too old.
	leaseTries = 4
)

// Lease tells the cluster that the node lives, whatever else goes on.
type Lease struct {
	client rest.Interface
	node   string
	uid    func() types.UID
	log    *slog.Logger
	// Duration is after which time the lease is too old; New sets LeaseDuration.
	Duration time.Duration

	last *coordinationv1.Lease // as the API server has it; nil if that is not known
}

// NewLease is the lease of a node. UID is that of its Node object, which the lease
// goes with, or empty as long as there is none.
func NewLease(client *cluster.Client, node string, uid func() types.UID, log *slog.Logger) *Lease {
	return &Lease{client: client.REST(coordinationv1.SchemeGroupVersion), node: node, uid: uid, log: log, Duration: LeaseDuration}
}

// Run renews the lease until ctx ends.
func (l *Lease) Run(ctx context.Context) error {
	// At the last try the lease must not have run out.
	p, failing := pace.Pace{Most: 5 * time.Second}, false
	for {
		err := l.renew(ctx)
		wait := l.Duration / leaseTries
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if !failing {
				l.log.Warn("cannot renew the lease of the node, and try again", "node", l.node, "error", err)
			}
			wait = p.After(err)
		default:
			if failing {
				l.log.Info("the lease of the node is renewed again", "node", l.node)
			}
			p.Reset()
		}
		failing = err != nil
		if !pace.Sleep(ctx, wait) {
			return nil
		}
	}
}

// renew writes the lease once. That another has written it meanwhile, or that it
// has gone, is no failure: what is there is read, and written to again.
func (l *Lease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	for try := 0; ; try++ {
		err := l.write(ctx)
		if err == nil {
			return nil
		}
		l.last = nil
		again := apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
		if !again || try == 2 {
			return err
		}
	}
}

func (l *Lease) write(ctx context.Context) error {
	if l.last == nil {
		has := &coordinationv1.Lease{}
		err := l.client.Get().Namespace(corev1.NamespaceNodeLease).Resource(leases).Name(l.node).MaxRetries(0).Do(ctx).Into(has)
		switch {
		case err == nil:
			l.last = has
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("get the lease of node %s: %w", l.node, err)
		}
	}
	now, request := l.renewed(), l.client.Post()
	if l.last != nil {
		request = l.client.Put().Name(l.node)
	}
	got := &coordinationv1.Lease{}
	if err := request.Namespace(corev1.NamespaceNodeLease).Resource(leases).Body(now).MaxRetries(0).Do(ctx).Into(got); err != nil {
		return fmt.Errorf("write the lease of node %s: %w", l.node, err)
	}
	l.last = got
	return nil
}

func (l *Lease) renewed() *coordinationv1.Lease {
	out := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.node, Namespace: corev1.NamespaceNodeLease}}
	at := time.Now()
	if l.last != nil {
		out = l.last.DeepCopy()
		// Those who watch count a lease as renewed when its time is later than it
		// was. A clock that was set back must not make the node look dead.
		if was := l.last.Spec.RenewTime; was != nil && !at.After(was.Time) {
			at = was.Add(time.Microsecond)
		}
	}
	out.TypeMeta = metav1.TypeMeta{Kind: "Lease", APIVersion: coordinationv1.SchemeGroupVersion.String()}
	out.Spec.HolderIdentity, out.Spec.LeaseDurationSeconds = &l.node, new(int32(l.Duration.Seconds()))
	out.Spec.RenewTime = &metav1.MicroTime{Time: at}
	if uid := l.uid(); uid != "" {
		out.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: l.node, UID: uid}}
	}
	return out
}
