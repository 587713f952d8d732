package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/cluster/pace"
	"fairlead.run/internal/node/volume/csi"
)

// AnnotationNodeID has by which names the drivers know the node, as JSON. Programs that
// attach volumes look there that do not read CSINodes.
const AnnotationNodeID = "csi.volume.kubernetes.io/nodeid"

const csiNodes = "csinodes"

const (
	// settled is after which time a driver is gone that an earlier agent has told of and
	// that has not registered since, and lapse that of one that went. Both are there
	// because drivers are restarted, and pods are not to be kept away for that.
	settled = 2 * time.Minute
	lapse   = 10 * time.Second
	// audit is how often the CSINode is looked at though nothing has happened. A node
	// may not watch it.
	audit = 5 * time.Minute
	// requestPatience is how long the API server may take over it.
	requestPatience = 20 * time.Second
)

// drivers are those of the node, as they have registered.
type drivers struct {
	wake chan struct{}

	told     atomic.Bool // the cluster has a CSINode of this node
	failed   atomic.Pointer[string]
	onChange func() // of what NotReady says

	mu     sync.Mutex
	began  time.Time
	here   map[string]csi.NodeInfo
	leaves map[string]time.Time // when one is told to be gone
}

func newDrivers() drivers {
	return drivers{onChange: func() {}, wake: make(chan struct{}, 1), here: map[string]csi.NodeInfo{}, leaves: map[string]time.Time{}}
}

// Set says that a driver is on the node, or with nil that it is not any more.
func (s *Storage) Set(driver string, info *csi.NodeInfo) {
	d := &s.drivers
	d.mu.Lock()
	defer d.mu.Unlock()
	if info != nil {
		d.here[driver] = *info
		delete(d.leaves, driver)
	} else {
		delete(d.here, driver)
		d.leaves[driver] = time.Now().Add(lapse)
	}
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// OnChange has f called when NotReady says something else. It must not wait, and is set before
// Run.
func (s *Storage) OnChange(f func()) { s.drivers.onChange = f }

// NotReady is why the node must not be ready yet, in a kubelet's words; empty if it may be. Before
// there is a CSINode a scheduler takes a node for one without limits of volumes.
func (s *Storage) NotReady() string {
	switch why := s.drivers.failed.Load(); {
	case s.drivers.told.Load():
		return ""
	case why != nil:
		return "failed to initialize CSINode: " + *why
	}
	return "CSINode is not yet initialized"
}

// wrote notes how it went with the CSINode. Once there was one, the node stays ready.
func (d *drivers) wrote(err error) {
	if d.told.Load() {
		return
	}
	if err == nil {
		d.told.Store(true)
	} else {
		text := err.Error()
		if was := d.failed.Swap(&text); was != nil && *was == text {
			return
		}
	}
	d.onChange()
}

// Check refuses a driver that has another view of where the node is than its labels. As
// long as these are not known it refuses none: such a driver is not told of later.
func (s *Storage) Check(driver string, info csi.NodeInfo) error {
	if node, _ := s.now(); node != nil {
		return agrees(node, driver, info)
	}
	return nil
}

func agrees(node *corev1.Node, driver string, info csi.NodeInfo) error {
	for _, key := range slices.Sorted(maps.Keys(info.Topology)) {
		if has, ok := node.Labels[key]; ok && has != info.Topology[key] {
			return fmt.Errorf("CSI driver %s says that %s of the node is %q, and its label says %q; correct the label, or the driver: %w", driver, key, info.Topology[key], has, errdefs.ErrPrecondition)
		}
	}
	return nil
}

// state is what is to be told: the drivers that are here, and of others whether one stays
// that was told of before.
type state struct {
	here  map[string]csi.NodeInfo
	stays func(driver string) bool
	next  time.Time // when that is another; zero for never
}

func (d *drivers) state(now time.Time) state {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.began.IsZero() {
		d.began = now
	}
	leaves, end := maps.Clone(d.leaves), d.began.Add(settled)
	out := state{here: maps.Clone(d.here), stays: func(driver string) bool {
		if at, known := leaves[driver]; known {
			return now.Before(at)
		}
		return now.Before(end)
	}}
	for _, at := range append(slices.Collect(maps.Values(leaves)), end) {
		if at.After(now) && (out.next.IsZero() || at.Before(out.next)) {
			out.next = at
		}
	}
	return out
}

// publish tells the cluster of the drivers until ctx ends.
func (s *Storage) publish(ctx context.Context) {
	var p pace.Pace
	for trouble := ""; ; {
		st := s.drivers.state(time.Now())
		err := s.tell(ctx, st)
		wait := audit
		if !st.next.IsZero() {
			wait = min(wait, time.Until(st.next))
		}
		if err != nil && ctx.Err() == nil {
			if text := err.Error(); text != trouble {
				s.warn(fmt.Errorf("the cluster does not know the CSI drivers of the node as they are, so that volumes may not be attached, and it is told again: %w", err))
				trouble = text
			}
			wait = p.After(err)
		} else {
			trouble = ""
			p.Reset()
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-s.drivers.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// tell labels the Node first: what finds a driver in the CSINode relies on the labels.
func (s *Storage) tell(ctx context.Context, st state) error {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	node, _ := s.now()
	if node == nil {
		return fmt.Errorf("tell of CSI drivers: there is no Node yet: %w", errdefs.ErrUnavailable)
	}
	odd := st.drop(node)
	err := s.tellNode(ctx, node, st)
	if err == nil {
		err = s.tellCSINode(ctx, node, st)
	}
	s.drivers.wrote(err)
	return errors.Join(err, odd)
}

// drop leaves out the drivers that do not agree with the labels of the Node.
func (st *state) drop(node *corev1.Node) error {
	var errs []error
	for _, driver := range slices.Sorted(maps.Keys(st.here)) {
		if err := agrees(node, driver, st.here[driver]); err != nil {
			errs = append(errs, err)
			delete(st.here, driver)
		}
	}
	return errors.Join(errs...)
}

func (s *Storage) tellNode(ctx context.Context, node *corev1.Node, st state) error {
	patch, err := nodePatch(node, st)
	if err != nil || patch == nil {
		return err
	}
	core := s.client.REST(corev1.SchemeGroupVersion)
	if err := core.Patch(types.MergePatchType).Resource(cluster.Nodes).Name(s.node).Body(patch).MaxRetries(0).Do(ctx).Error(); err != nil {
		return fmt.Errorf("patch node %s: %w", s.node, err)
	}
	return nil
}

// nodePatch is a merge patch of what the Node lacks, or nil. A label that is there stays,
// also when its driver has gone: volumes may be bound to it.
func nodePatch(node *corev1.Node, st state) ([]byte, error) {
	labels, ids, had := map[string]string{}, map[string]string{}, map[string]string{}
	_ = json.Unmarshal([]byte(node.Annotations[AnnotationNodeID]), &had) // what is no JSON is replaced
	for driver, id := range had {
		if st.stays(driver) {
			ids[driver] = id
		}
	}
	for driver, info := range st.here {
		ids[driver] = info.ID
		for key, value := range info.Topology {
			if _, ok := node.Labels[key]; !ok {
				labels[key] = value
			}
		}
	}
	meta := map[string]any{}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	_, annotated := node.Annotations[AnnotationNodeID]
	switch {
	case len(ids) == 0 && annotated:
		meta["annotations"] = map[string]any{AnnotationNodeID: nil}
	case !maps.Equal(ids, had):
		text, err := json.Marshal(ids)
		if err != nil {
			return nil, fmt.Errorf("write the names of the node: %w", err)
		}
		meta["annotations"] = map[string]any{AnnotationNodeID: string(text)}
	}
	if len(meta) == 0 {
		return nil, nil
	}
	meta["uid"] = node.UID
	return json.Marshal(map[string]any{"metadata": meta})
}

func (s *Storage) tellCSINode(ctx context.Context, node *corev1.Node, st state) error {
	rest, has := s.client.REST(storagev1.SchemeGroupVersion), &storagev1.CSINode{}
	err := rest.Get().Resource(csiNodes).Name(s.node).MaxRetries(0).Do(ctx).Into(has)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("get CSINode %s: %w", s.node, err)
	}
	if missing {
		has = nil
	}
	want := csiNode(node, has, st)
	switch {
	case missing:
		err = rest.Post().Resource(csiNodes).Body(want).MaxRetries(0).Do(ctx).Error()
	case equality.Semantic.DeepEqual(has.Spec, want.Spec) && equality.Semantic.DeepEqual(has.OwnerReferences, want.OwnerReferences):
		return nil
	default:
		err = rest.Put().Resource(csiNodes).Name(s.node).Body(want).MaxRetries(0).Do(ctx).Error()
	}
	if err != nil {
		return fmt.Errorf("write CSINode %s: %w", s.node, err)
	}
	return nil
}

// csiNode is what the CSINode is to be; has is nil if there is none.
func csiNode(node *corev1.Node, has *storagev1.CSINode, st state) *storagev1.CSINode {
	out := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	if has != nil {
		out = has.DeepCopy()
	}
	out.TypeMeta = metav1.TypeMeta{Kind: "CSINode", APIVersion: storagev1.SchemeGroupVersion.String()}
	out.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
	list := []storagev1.CSINodeDriver{}
	for _, d := range out.Spec.Drivers {
		if _, here := st.here[d.Name]; !here && st.stays(d.Name) {
			list = append(list, d)
		}
	}
	for name, info := range st.here {
		d := storagev1.CSINodeDriver{Name: name, NodeID: info.ID, TopologyKeys: slices.Sorted(maps.Keys(info.Topology))}
		if info.MaxVolumes > 0 {
			d.Allocatable = &storagev1.VolumeNodeResources{Count: new(int32(min(info.MaxVolumes, math.MaxInt32)))}
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b storagev1.CSINodeDriver) int { return strings.Compare(a.Name, b.Name) })
	out.Spec.Drivers = list
	return out
}
