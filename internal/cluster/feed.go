package cluster

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// retry is how long a watch that fails waits before it begins again: short enough
// that a policy whose CRD has come back holds soon.
var retry = wait.Backoff{Duration: 500 * time.Millisecond, Cap: 10 * time.Second, Steps: 20, Factor: 2, Jitter: 0.5}

// listPatience is how long an API server may take over a list, or a part of one:
// longer than the minute that it gives itself.
const listPatience = 90 * time.Second

// object is what the API server has, as a pointer.
type object interface {
	runtime.Object
	metav1.Object
}

// source is where a store's objects come from, and what is kept of them.
type source[O object, T any] struct {
	from      schema.GroupVersionResource
	namespace string          // empty for all
	selector  fields.Selector // nil for all
	recent    bool            // what the API server has in memory will do
	retry     *wait.Backoff   // nil for the usual
	like      O               // any of that type
	strip     func(O) O       // must not be used afterwards: what it is given
	keep      func(O) T
}

// feed fills a store with what a reflector hears.
type feed[O object, T any] struct {
	source[O, T]
	*Store[T]
}

// run keeps the store fresh until ctx ends.
func (f *feed[O, T]) run(ctx context.Context, client *Client) {
	backoff := retry
	if f.retry != nil {
		backoff = *f.retry
	}
	r := cache.NewReflectorWithOptions(f.listWatch(client), f.like, f, cache.ReflectorOptions{
		Name: f.resource, Backoff: &backoff,
	})
	// What it logs is about requests, whose ends the store tells of itself.
	r.RunWithContext(klog.NewContext(ctx, klog.Logger{}))
}

func (f *feed[O, T]) listWatch(client *Client) cache.ListerWatcher {
	rest, name := client.REST(f.from.GroupVersion()), f.from.Resource
	narrow := func(o *metav1.ListOptions) {
		if f.selector != nil {
			o.FieldSelector = f.selector.String()
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			narrow(&o)
			if !f.recent {
				inPages(&o)
			}
			bounded, cancel := context.WithTimeout(ctx, listPatience)
			defer cancel()
			list, err := rest.Get().NamespaceIfScoped(f.namespace, f.namespace != "").Resource(name).VersionedParams(&o, metav1.ParameterCodec).Do(bounded).Get()
			f.ended(ctx, err)
			if err != nil {
				return nil, err
			}
			return list, meta.EachListItem(list, f.stripInPlace)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			narrow(&o)
			o.Watch = true
			bounded, cancel := context.WithTimeout(ctx, longest(o))
			w, err := rest.Get().NamespaceIfScoped(f.namespace, f.namespace != "").Resource(name).VersionedParams(&o, metav1.ParameterCodec).Watch(bounded)
			f.ended(ctx, err)
			if err != nil {
				cancel()
				return nil, err
			}
			return stopping{w, cancel}, nil
		},
	}
}

// longest is how long a watch may last. An API server ends it by itself after the
// time that it is given. One that hangs does not, and has told nothing since.
func longest(o metav1.ListOptions) time.Duration {
	if o.TimeoutSeconds == nil {
		return 10 * time.Minute
	}
	return time.Duration(*o.TimeoutSeconds)*time.Second + 30*time.Second
}

// stopping is a watch that gives up its context when it is stopped.
type stopping struct {
	watch.Interface
	cancel context.CancelFunc
}

func (s stopping) Stop() {
	s.Interface.Stop()
	s.cancel()
}

// inPages asks for a part of a list, with the newest there is: API servers have
// no parts of older ones. Those that stream lists are not asked for any.
func inPages(o *metav1.ListOptions) {
	o.ResourceVersion, o.ResourceVersionMatch, o.Limit = "", "", pageSize
}

// stripInPlace makes an object of a list small before the next part comes.
func (f *feed[O, T]) stripInPlace(got runtime.Object) error {
	o, err := f.cast(got)
	if err == nil {
		reflect.ValueOf(o).Elem().Set(reflect.ValueOf(f.strip(o)).Elem())
	}
	return err
}

// ended notes how a request ended, unless it was given up by us.
func (f *feed[O, T]) ended(ctx context.Context, err error) {
	if err == nil || ctx.Err() == nil {
		f.answered(err)
	}
}

// The methods below are a reflector's store.

// Transformer makes objects small before all of them are together: an empty
// corev1.Pod alone takes more than a kilobyte, and a cluster has 100,000.
func (f *feed[O, T]) Transformer() cache.TransformFunc {
	return func(got any) (any, error) {
		o, err := f.cast(got)
		if err != nil {
			return nil, err
		}
		head := metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), ResourceVersion: o.GetResourceVersion()}
		return &kept[T]{head, f.keep(f.strip(o))}, nil
	}
}

// kept is what is kept of an object, as long as the list that it belongs to is
// being read.
type kept[T any] struct {
	metav1.ObjectMeta
	value T
}

// Add puts in what came.
func (f *feed[O, T]) Add(got any) error { return f.Update(got) }

// Update puts in what changed.
func (f *feed[O, T]) Update(got any) error {
	o, err := f.cast(got)
	if err == nil {
		f.set(key(o), f.keep(f.strip(o)))
	}
	return err
}

// Delete takes out what is gone.
func (f *feed[O, T]) Delete(got any) error {
	o, err := f.cast(got)
	if err == nil {
		f.remove(key(o))
	}
	return err
}

// Replace makes a list all that there is.
func (f *feed[O, T]) Replace(list []any, _ string) error {
	all := make(map[string]T, len(list))
	for _, got := range list {
		if k, ok := got.(*kept[T]); ok {
			all[key(k)] = k.value
			continue
		}
		o, err := f.cast(got)
		if err != nil {
			return err
		}
		all[key(o)] = f.keep(f.strip(o))
	}
	f.replace(all)
	f.heard()
	return nil
}

// Resync has nothing to do: nobody wants what has not changed.
func (f *feed[O, T]) Resync() error { return nil }

// UpdateResourceVersion is called for all that the API server says in a watch,
// also that there is nothing new.
func (f *feed[O, T]) UpdateResourceVersion(string) { f.heard() }

func (f *feed[O, T]) cast(got any) (O, error) {
	o, ok := got.(O)
	if !ok {
		return o, fmt.Errorf("keep %s: got a %T", f.from.Resource, got)
	}
	return o, nil
}

// key is the name of an object, after its namespace if it has one.
func key(o metav1.Object) string {
	if ns := o.GetNamespace(); ns != "" {
		return ns + "/" + o.GetName()
	}
	return o.GetName()
}
