// Package mirror shows static pods in the API server: each has a copy there, the
// mirror pod, which nobody runs. A copy that is deleted or old is made again, and
// one whose source is gone goes.
package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"fairlead.run/internal/cluster"
	"fairlead.run/internal/node/cluster/pace"
)

// The annotations of static pods and of their mirrors.
const (
	AnnotationHash   = "kubernetes.io/config.hash" // of a static pod: its UID, another for each content
	AnnotationSource = "kubernetes.io/config.source"

	annotationMirror = corev1.MirrorPodAnnotationKey
)

const requestPatience = 10 * time.Second

// Is says that a pod of the API server is a mirror, which is not to be run.
func Is(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[annotationMirror]
	return ok
}

// Mirrors keeps the mirror pods of one node right.
type Mirrors struct {
	client rest.Interface
	node   string
	uid    func() types.UID
	warn   func(error)
	wake   chan struct{}

	mu      sync.Mutex
	sources map[string]*corev1.Pod // by namespace/name; nil until they are told
	unread  []string               // what AnnotationSource is of others
	mirrors map[string]*corev1.Pod // nil until they are told
}

// New makes mirrors for a node. UID is that of its Node object: a node may only
// make pods that belong to it. Warn is told of each mirror that cannot be made right, once
// as long as it is for the same reason; it must not wait.
func New(client *cluster.Client, node string, uid func() types.UID, warn func(error)) *Mirrors {
	return &Mirrors{client: client.REST(corev1.SchemeGroupVersion), node: node, uid: uid, warn: warn, wake: make(chan struct{}, 1)}
}

// Set is all static pods there are. Each has the annotations AnnotationHash and
// AnnotationSource. Nothing is deleted before it was called, and no mirror of a pod
// from a source that is unread: there may be such a pod.
func (m *Mirrors) Set(static []*corev1.Pod, unread ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sources, m.unread = byKey(static), unread
	m.signal()
}

// Observe is all mirror pods of the node as the API server has them.
func (m *Mirrors) Observe(mirrors []*corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mirrors = byKey(mirrors)
	m.signal()
}

// Count is how many mirror pods there are.
func (m *Mirrors) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.mirrors)
}

// Of is the mirror of a static pod, or nil as long as it has none.
func (m *Mirrors) Of(static *corev1.Pod) *corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	if has := m.mirrors[key(static)]; has != nil && fits(has, static) {
		return has
	}
	return nil
}

// fits says that a mirror is what it should be.
func fits(mirror, static *corev1.Pod) bool {
	return mirror.Annotations[annotationMirror] == static.Annotations[AnnotationHash] && mirror.DeletionTimestamp == nil
}

func byKey(pods []*corev1.Pod) map[string]*corev1.Pod {
	out := map[string]*corev1.Pod{}
	for _, p := range pods {
		out[key(p)] = p
	}
	return out
}

func key(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

func (m *Mirrors) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// trial is when a pod for which a request failed is looked at again.
type trial struct {
	pace.Pace
	at  time.Time
	why string
}

// Run makes and deletes mirrors until ctx ends.
func (m *Mirrors) Run(ctx context.Context) error {
	trials := map[string]*trial{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		case <-timer.C:
		}
		again := time.Hour
		todo := m.todo()
		maps.DeleteFunc(trials, func(k string, _ *trial) bool { _, ok := todo[k]; return !ok })
		for _, k := range slices.Sorted(maps.Keys(todo)) {
			t := trials[k]
			if t == nil {
				t = &trial{Pace: pace.Pace{Most: time.Minute}}
				trials[k] = t
			}
			if wait := time.Until(t.at); wait > 0 {
				again = min(again, wait)
				continue
			}
			if err := m.do(ctx, todo[k]); err != nil && ctx.Err() == nil {
				again = min(again, m.failed(t, err))
			}
		}
		timer.Reset(again)
	}
}

// failed says how long to wait for the next try.
func (m *Mirrors) failed(t *trial, err error) time.Duration {
	if t.why != err.Error() {
		m.warn(fmt.Errorf("a static pod is not shown by the API server as it is, which is tried again: %w", err))
	}
	wait := t.After(err)
	t.at, t.why = time.Now().Add(wait), err.Error()
	return wait
}

// change is what is wrong with one mirror: has goes, and wants is made.
type change struct{ has, wants *corev1.Pod }

// todo is what is wrong. It is nothing as long as not all is known.
func (m *Mirrors) todo() map[string]change {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]change{}
	if m.sources == nil || m.mirrors == nil {
		return out
	}
	for k, has := range m.mirrors {
		if m.sources[k] == nil && !slices.Contains(m.unread, has.Annotations[AnnotationSource]) {
			out[k] = change{has: has}
		}
	}
	for k, wants := range m.sources {
		if has := m.mirrors[k]; has == nil || !fits(has, wants) {
			out[k] = change{has, wants}
		}
	}
	return out
}

func (m *Mirrors) do(ctx context.Context, c change) error {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	if c.has != nil {
		if err := m.remove(ctx, c.has); err != nil {
			return err
		}
	}
	if c.wants == nil {
		return nil
	}
	return m.make(ctx, c.wants)
}

func (m *Mirrors) remove(ctx context.Context, has *corev1.Pod) error {
	options := &metav1.DeleteOptions{
		TypeMeta:           metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"},
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &has.UID},
	}
	err := m.client.Delete().Namespace(has.Namespace).Resource(cluster.Pods).Name(has.Name).Body(options).MaxRetries(0).Do(ctx).Error()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete mirror pod %s: %w", key(has), err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.mirrors[key(has)]; now != nil && now.UID == has.UID {
		delete(m.mirrors, key(has))
	}
	return nil
}

func (m *Mirrors) make(ctx context.Context, static *corev1.Pod) error {
	made := &corev1.Pod{}
	err := m.client.Post().Namespace(static.Namespace).Resource(cluster.Pods).Body(m.mirror(static)).MaxRetries(0).Do(ctx).Into(made)
	if apierrors.IsAlreadyExists(err) {
		made, err = m.taken(ctx, static)
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		err = fmt.Errorf("the static pod runs, but kubectl will not show it; a static pod may not use a service account, Secrets, ConfigMaps, claims, or anything else that is in the API server: %w", err)
	}
	if err != nil {
		return fmt.Errorf("create the mirror pod of %s: %w", key(static), err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mirrors[key(made)] = made
	return nil
}

// taken is the pod that has the name of a mirror: it may be one that we have made,
// and that the watch does not show yet.
func (m *Mirrors) taken(ctx context.Context, static *corev1.Pod) (*corev1.Pod, error) {
	has := &corev1.Pod{}
	if err := m.client.Get().Namespace(static.Namespace).Resource(cluster.Pods).Name(static.Name).MaxRetries(0).Do(ctx).Into(has); err != nil {
		return nil, err
	}
	if has.Spec.NodeName != m.node || !Is(has) {
		return nil, fmt.Errorf("another pod has that name; give the static pod another one, or delete that pod")
	}
	return has, nil
}

// mirror is what is put into the API server for a static pod.
func (m *Mirrors) mirror(static *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: static.Name, Namespace: static.Namespace, Labels: static.Labels, Annotations: maps.Clone(static.Annotations),
		},
		Spec: *static.Spec.DeepCopy(),
	}
	out.Annotations[annotationMirror] = static.Annotations[AnnotationHash]
	out.Spec.NodeName = m.node
	if uid := m.uid(); uid != "" {
		out.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: m.node, UID: uid, Controller: new(true)}}
	}
	return out
}
