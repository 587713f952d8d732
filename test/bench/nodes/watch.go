package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// watch notes when the API server has told what of pods.
type watch struct {
	stream apiwatch.Interface

	mu      sync.Mutex
	pods    map[string]*life // by name
	ended   bool
	changed chan struct{}
}

// life is when a pod was seen to be so for the first time; zero if never.
type life struct{ created, bound, ready, gone time.Time }

// newWatch watches all pods of the default namespace from now on.
func newWatch(ctx context.Context, kubeconfig string) (*watch, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	w := &watch{pods: map[string]*life{}, changed: make(chan struct{}, 1)}
	w.stream, err = client.Get().Namespace("default").Resource("pods").
		VersionedParams(&metav1.ListOptions{Watch: true}, scheme.ParameterCodec).Watch(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	go w.follow()
	return w, nil
}

func (w *watch) stop() { w.stream.Stop() }

func (w *watch) follow() {
	for e := range w.stream.ResultChan() {
		if p, ok := e.Object.(*corev1.Pod); ok {
			w.see(p, e.Type == apiwatch.Deleted, time.Now())
		}
	}
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.signal()
}

func (w *watch) signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// see takes note of a version of a pod.
func (w *watch) see(p *corev1.Pod, gone bool, now time.Time) {
	w.mu.Lock()
	defer w.signal()
	defer w.mu.Unlock()
	l := w.pods[p.Name]
	if l == nil {
		l = &life{created: now}
		w.pods[p.Name] = l
	}
	if l.bound.IsZero() && p.Spec.NodeName != "" {
		l.bound = now
	}
	if l.ready.IsZero() && isReady(p) {
		l.ready = now
	}
	if gone {
		l.gone = now
	}
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// of is what is known of a pod.
func (w *watch) of(name string) life {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.pods[name]; l != nil {
		return *l
	}
	return life{}
}

// await waits until all pods are so, and says when the last one was.
func (w *watch) await(ctx context.Context, names []string, when func(life) time.Time) (last time.Time, err error) {
	for {
		var left []string
		for _, name := range names {
			at := when(w.of(name))
			if at.IsZero() {
				left = append(left, name)
			}
			if at.After(last) {
				last = at
			}
		}
		w.mu.Lock()
		ended := w.ended
		w.mu.Unlock()
		switch {
		case len(left) == 0:
			return last, nil
		case ended:
			return last, fmt.Errorf("the watch has ended")
		}
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("wait for %d of %d pods, such as %s: %w", len(left), len(names), left[0], ctx.Err())
		case <-w.changed:
		}
	}
}
