package membership

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/node/advert"
	"fairlead.run/internal/node/cluster/merge"
	"fairlead.run/internal/node/cluster/nodestatus"
	"fairlead.run/internal/node/cluster/pace"
)

const (
	// How often facts are looked at of which nobody tells that they have changed.
	statusLook = 10 * time.Second
	// StatusReport is how often the status is written though nothing has changed, as by a kubelet.
	StatusReport = 5 * time.Minute
)

// lists are those of a NodeStatus. All others are replaced by API servers.
var lists = merge.Lists{Keyed: map[string]string{"conditions": "type"}, Owned: map[string]bool{"addresses": true}}

// Said is what a node says of itself.
type Said struct {
	nodestatus.Facts
	Handlers []advert.Handler // nil leaves labels and annotations of handlers alone
}

// Status keeps what the Node object says true. It follows the object, too, which
// others change.
type Status struct {
	client rest.Interface
	node   string
	facts  func(context.Context) Said
	log    *slog.Logger
	wake   chan struct{}

	store  *cluster.Store[*corev1.Node]
	follow func(context.Context)

	newest  *corev1.Node
	written time.Time
	// Report is how often the status is written though nothing has changed; New sets StatusReport.
	Report time.Duration
}

// NewStatus is for a node that is registered. Facts are asked for by one goroutine,
// often, and must not take long: what takes longer is for its caller to know.
func NewStatus(client *cluster.Client, node string, facts func(context.Context) Said, log *slog.Logger) *Status {
	s := &Status{client: client.REST(corev1.SchemeGroupVersion), node: node, facts: facts, log: log, wake: make(chan struct{}, 1), Report: StatusReport}
	s.store, s.follow = cluster.Follow(client, cluster.Query{
		From:     corev1.SchemeGroupVersion.WithResource(cluster.Nodes),
		Selector: fields.OneTermEqualSelector("metadata.name", node), Log: log,
	}, &corev1.Node{}, func(n *corev1.Node) *corev1.Node { return n })
	return s
}

// Node is the object as it was last heard of, or nil. It is read only.
func (s *Status) Node() *corev1.Node { return s.store.Get(s.node) }

// OnChange has f called with each version of the Node that is heard of. It is for before
// Run, and f must not wait.
func (s *Status) OnChange(f func(*corev1.Node)) {
	s.store.OnChange(func(_ string, _, now *corev1.Node) {
		if now != nil {
			f(now)
		}
	})
}

// Changed has the facts looked at now.
func (s *Status) Changed() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Run writes the status until ctx ends.
func (s *Status) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.follow(ctx)
	}()
	defer func() { <-done }()
	defer cancel()
	var p pace.Pace
	for trouble := ""; ; {
		wait := statusLook
		err := s.write(ctx)
		if err != nil && ctx.Err() == nil {
			if text := err.Error(); text != trouble {
				s.log.Warn("cannot write the status of the node, and try again", "node", s.node, "error", err)
				trouble = text
			}
			wait = p.After(err)
			if !pace.Sleep(ctx, wait) {
				return nil
			}
			continue
		}
		trouble = ""
		p.Reset()
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.wake:
		case <-s.store.Changes():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// write makes the object say what is true, if it does not, or has not been told
// for long.
func (s *Status) write(ctx context.Context) error {
	if !s.store.Status().Synced {
		return nil
	}
	heard := s.store.Get(s.node)
	if heard == nil {
		return fmt.Errorf("node %s is not there any more: somebody has deleted it; restart this node agent to have it registered again", s.node)
	}
	s.newest = newer(s.newest, heard)
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	said := s.facts(ctx)
	patch, err := Patch(s.newest, said.Facts, time.Now(), s.due())
	if err == nil && patch != nil {
		err = s.patch(ctx, types.StrategicMergePatchType, patch, "status")
	}
	if err != nil {
		return err
	}
	// Last: who does not let nodes label themselves must not keep a node from being ready.
	return s.advertise(ctx, said.Handlers)
}

// due says that the API server is told though nothing has changed.
func (s *Status) due() bool { return s.written.IsZero() || time.Since(s.written) >= s.Report }

func (s *Status) advertise(ctx context.Context, handlers []advert.Handler) error {
	if handlers == nil {
		return nil
	}
	patch, err := advert.Patch(s.newest, handlers)
	if err != nil || patch == nil {
		return err
	}
	return s.patch(ctx, types.MergePatchType, patch)
}

func (s *Status) patch(ctx context.Context, kind types.PatchType, patch []byte, sub ...string) error {
	got := &corev1.Node{}
	err := s.client.Patch(kind).Resource(cluster.Nodes).Name(s.node).SubResource(sub...).Body(patch).MaxRetries(0).Do(ctx).Into(got)
	if apierrors.IsConflict(err) { // the node is another one: the watch will tell
		s.newest = nil
	}
	if err != nil {
		return fmt.Errorf("patch node %s: %w", s.node, err)
	}
	s.newest = got
	if len(sub) > 0 {
		s.written = time.Now()
	}
	return nil
}

// newer is the later one of two versions of an object.
func newer(a, b *corev1.Node) *corev1.Node {
	if a == nil || a.UID != b.UID {
		return b
	}
	if order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion); err == nil && order > 0 {
		return a
	}
	return b
}

// Patch is what makes a node say these facts, or nil if it does. Heartbeats alone
// are a reason only if they are due.
func Patch(node *corev1.Node, f nodestatus.Facts, now time.Time, due bool) ([]byte, error) {
	f.Capacity, f.Allocatable = withForeign(f.Capacity, node.Status.Capacity), withForeign(f.Allocatable, node.Status.Capacity)
	status := nodestatus.Of(f, node.Status.Conditions, now)
	has := ours(&node.Status, status.Conditions)
	was, err := merge.Object(has)
	if err != nil {
		return nil, err
	}
	calm := status
	calm.Conditions = slices.Clone(status.Conditions)
	if len(has.DeclaredFeatures) == 0 { // API servers before 1.36 have none, whatever they are told
		calm.DeclaredFeatures = nil
	}
	for i := range calm.Conditions {
		for _, c := range has.Conditions {
			if c.Type == calm.Conditions[i].Type {
				calm.Conditions[i].LastHeartbeatTime = c.LastHeartbeatTime
			}
		}
	}
	if !due {
		is, err := merge.Object(calm)
		if err != nil || len(merge.Diff(was, is, lists)) == 0 {
			return nil, err
		}
	}
	is, err := merge.Object(status)
	if err != nil {
		return nil, err
	}
	changes := merge.Diff(was, is, lists)
	if len(changes) == 0 {
		return nil, nil
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID}, "status": changes})
}

// withForeign keeps extended resources that an administrator has put on a node: all
// that is told of one is its capacity.
func withForeign(ours, there corev1.ResourceList) corev1.ResourceList {
	out := maps.Clone(ours)
	if out == nil {
		out = corev1.ResourceList{}
	}
	for name, quantity := range there {
		domain, _, extended := strings.Cut(string(name), "/")
		if _, known := out[name]; !known && extended && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") {
			out[name] = quantity
		}
	}
	return out
}

// ours is a status without what others say in it: conditions of other types, and
// the volumes that are attached.
func ours(s *corev1.NodeStatus, ours []corev1.NodeCondition) corev1.NodeStatus {
	out := *s
	out.Phase, out.VolumesAttached, out.Conditions = "", nil, nil
	for _, c := range s.Conditions {
		if slices.ContainsFunc(ours, func(o corev1.NodeCondition) bool { return o.Type == c.Type }) {
			out.Conditions = append(out.Conditions, c)
		}
	}
	return out
}
