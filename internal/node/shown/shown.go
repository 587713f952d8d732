// Package shown is what is told of a pod beside its status, and what was told last, for
// those who ask in between. When it is told is not decided here.
package shown

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Shown is a pod with its status. The zero value shows nothing.
type Shown struct {
	mu     sync.Mutex
	pod    *corev1.Pod
	status *corev1.PodStatus // nil before there is one
	found  bool              // and nobody was told of it yet
}

// Set shows that from now on; nil for both shows nothing.
func (s *Shown) Set(pod *corev1.Pod, st *corev1.PodStatus) { s.set(pod, st, false) }

// Find shows what an earlier agent has written down, which may have ended before it could
// tell of it.
func (s *Shown) Find(pod *corev1.Pod, st *corev1.PodStatus) { s.set(pod, st, true) }

func (s *Shown) set(pod *corev1.Pod, st *corev1.PodStatus, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pod, s.status, s.found = pod, st, found
}

// Found says that what is shown is what an earlier agent has written down.
func (s *Shown) Found() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found
}

// Get is what was set last. Nobody changes it.
func (s *Shown) Get() (*corev1.Pod, *corev1.PodStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pod, s.status
}

// WithStatus is the pod as others see it; nil before there is something to see.
func (s *Shown) WithStatus() *corev1.Pod {
	pod, st := s.Get()
	if pod == nil || st == nil {
		return nil
	}
	out := *pod // what is in it is shared, and nobody changes it
	out.Status = *st
	return &out
}
