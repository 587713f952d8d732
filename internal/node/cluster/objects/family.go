package objects

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"fairlead.run/internal/cluster"
)

// promptly is how soon a watch begins again. The API server's authorizer hears of
// a pod a moment after the node does, and refuses what the pod refers to until then.
var promptly = wait.Backoff{Duration: 50 * time.Millisecond, Cap: 10 * time.Second, Steps: 20, Factor: 2, Jitter: 0.2}

type object interface {
	runtime.Object
	metav1.Object
	comparable
}

// family is the objects of one resource that pods refer to. Each has a watch of its
// own: a node may not watch others'.
type family[O object] struct {
	client    *cluster.Client
	from      schema.GroupVersionResource
	like      func() O
	immutable func(O) bool
	changed   func([]types.UID)
	wake      chan struct{}

	mu    sync.Mutex
	items map[types.NamespacedName]*item[O]
}

// item is one object, watched as long as pods refer to it.
type item[O object] struct {
	key    types.NamespacedName
	pods   map[types.UID]bool
	store  *cluster.Store[O]
	follow func(context.Context)
	ready  chan struct{}      // closed once it is known whether the object is there
	cancel context.CancelFunc // nil until it is followed
}

func newFamily[O object](client *cluster.Client, from schema.GroupVersionResource, like func() O, immutable func(O) bool) *family[O] {
	return &family[O]{
		client: client, from: from, like: like, immutable: immutable,
		wake: make(chan struct{}, 1), items: map[types.NamespacedName]*item[O]{},
	}
}

// hold notes all that a pod refers to.
func (f *family[O]) hold(uid types.UID, namespace string, names map[string]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range names {
		key := types.NamespacedName{Namespace: namespace, Name: name}
		it := f.items[key]
		if it == nil {
			it = f.newItem(key)
			f.items[key] = it
		}
		it.pods[uid] = true
	}
	for key, it := range f.items {
		if it.pods[uid] && (key.Namespace != namespace || !names[key.Name]) {
			f.drop(it, uid)
		}
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// drop takes a pod from an item, and ends the item with its last one. The caller
// holds the lock.
func (f *family[O]) drop(it *item[O], uid types.UID) {
	delete(it.pods, uid)
	if len(it.pods) > 0 {
		return
	}
	delete(f.items, it.key)
	if it.cancel != nil {
		it.cancel()
	}
}

func (f *family[O]) newItem(key types.NamespacedName) *item[O] {
	it := &item[O]{key: key, pods: map[types.UID]bool{}, ready: make(chan struct{})}
	it.store, it.follow = cluster.Follow(f.client, cluster.Query{
		From: f.from, Namespace: key.Namespace, Selector: fields.OneTermEqualSelector("metadata.name", key.Name), Retry: promptly,
	}, f.like(), func(o O) O {
		o.SetManagedFields(nil)
		return o
	})
	return it
}

// run follows the items until ctx ends.
func (f *family[O]) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		for _, attend := range f.fresh(ctx) {
			running.Go(attend)
		}
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
	}
}

// fresh are the items that nobody follows yet, as what follows them.
func (f *family[O]) fresh(ctx context.Context) []func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []func()
	for _, it := range f.items {
		if it.cancel != nil {
			continue
		}
		own, cancel := context.WithCancel(ctx)
		it.cancel = cancel
		out = append(out, func() { f.attend(own, it) })
	}
	return out
}

// attend follows one item, and tells those who hold it.
func (f *family[O]) attend(ctx context.Context, it *item[O]) {
	var following sync.WaitGroup
	defer following.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	following.Go(func() { it.follow(ctx) })
	for known := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-it.store.Changes():
		}
		if !it.store.Status().Synced {
			continue
		}
		if !known {
			known = true
			close(it.ready)
		}
		f.mu.Lock()
		pods := make([]types.UID, 0, len(it.pods))
		for uid := range it.pods {
			pods = append(pods, uid)
		}
		f.mu.Unlock()
		slices.Sort(pods)
		f.changed(pods)
		var none O
		if o := it.store.Get(it.key.String()); o != none && f.immutable(o) {
			return
		}
	}
}

// get is an object that a pod refers to. It waits until something is known.
func (f *family[O]) get(ctx context.Context, namespace, name string) (O, error) {
	var none O
	key := types.NamespacedName{Namespace: namespace, Name: name}
	f.mu.Lock()
	it := f.items[key]
	f.mu.Unlock()
	if it == nil { // no pod here refers to it: who asks must know why
		o := f.like()
		if err := f.client.REST(f.from.GroupVersion()).Get().Namespace(namespace).Resource(f.from.Resource).Name(name).Do(ctx).Into(o); err != nil {
			return none, fmt.Errorf("get %s %s: %w", f.from.Resource, key, err)
		}
		return o, nil
	}
	select {
	case <-it.ready:
	case <-ctx.Done():
		trouble := it.store.Status().Trouble
		if trouble == "" {
			trouble = "the API server has not answered yet"
		}
		return none, fmt.Errorf("get %s %s: %w: %s", f.from.Resource, key, context.Cause(ctx), trouble)
	}
	if o := it.store.Get(key.String()); o != none {
		return o, nil
	}
	return none, fmt.Errorf("get %s %s: %w", f.from.Resource, key, apierrors.NewNotFound(f.from.GroupResource(), name))
}
