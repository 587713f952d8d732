package images

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// flightKey is what makes two pulls the same: what is pulled, and by what.
type flightKey struct{ image, credentials string }

func keyOf(n name, credentials []Credential) flightKey {
	k := flightKey{image: n.full}
	for _, c := range credentials {
		k.credentials += c.Auth.hash()
	}
	return k
}

// flight is a pull that one or more wait for. It goes on as long as one does.
type flight struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the fields below it are set

	image Image
	by    int // index of the credential that worked; -1 for none
	err   error

	// What the Manager's lock guards.
	waiters int
	pods    []*runtimeapi.PodSandboxMetadata
}

// share joins the pull of the same image by the same credentials, or starts it.
func (m *Manager) share(ctx context.Context, r Request, n name, credentials []Credential) (Image, *Credential, error) {
	key := keyOf(n, credentials)
	m.mu.Lock()
	f := m.flights[key]
	if f == nil {
		f = m.launch(ctx, r, n, credentials)
		m.flights[key] = f
	}
	f.join(r)
	m.mu.Unlock()
	select {
	case <-f.done:
	case <-ctx.Done():
		m.leave(key, f)
		return Image{}, nil, ctx.Err()
	}
	if f.err != nil || f.by < 0 {
		return f.image, nil, f.failure()
	}
	// The same credential may be of another secret here than at the first one's.
	return f.image, &credentials[f.by], nil
}

// failure is one for each waiter, which sets times of its own.
func (f *flight) failure() error {
	if e, ok := f.err.(*Error); ok {
		mine := *e
		return &mine
	}
	return f.err
}

func (f *flight) join(r Request) {
	f.waiters++
	pod := r.Sandbox.GetMetadata()
	if pod == nil {
		pod = &runtimeapi.PodSandboxMetadata{Name: r.Pod.Name, Namespace: r.Pod.Namespace, Uid: string(r.Pod.UID)}
	}
	f.pods = append(f.pods, pod)
}

// leave ends the flight with its last waiter, and returns when it has.
func (m *Manager) leave(key flightKey, f *flight) {
	m.mu.Lock()
	f.waiters--
	last := f.waiters == 0
	if last && m.flights[key] == f {
		delete(m.flights, key)
	}
	m.mu.Unlock()
	if last {
		f.cancel()
		<-f.done
	}
}

// launch starts a pull that does not end with who asked for it first. Whoever
// leaves it last waits for its end, so that nothing is left of it.
func (m *Manager) launch(ctx context.Context, r Request, n name, credentials []Credential) *flight {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &flight{cancel: cancel, done: make(chan struct{}), by: -1}
	go func() {
		defer cancel()
		defer close(f.done)
		f.err = m.fly(ctx, f, pullOf{r.Sandbox, n, credentials})
		m.mu.Lock()
		defer m.mu.Unlock()
		if key := keyOf(n, credentials); m.flights[key] == f {
			delete(m.flights, key)
		}
	}()
	return f
}

type pullOf struct {
	sandbox     *runtimeapi.PodSandboxConfig
	name        name
	credentials []Credential
}

func (m *Manager) fly(ctx context.Context, f *flight, p pullOf) error {
	asked := time.Now()
	if m.rate != nil {
		if err := m.rate.Wait(ctx); err != nil {
			return err
		}
	}
	if m.slots != nil {
		if err := m.slots.Acquire(ctx, 1); err != nil {
			return err
		}
		defer m.slots.Release(1)
	}
	begun := time.Now()
	f.image.Waited = begun.Sub(asked)
	if err := m.records.begin(p.name.full); err != nil {
		return &Error{Reason: ErrImagePull, Message: err.Error(), cause: err}
	}
	m.mu.Lock()
	pods := f.pods[:len(f.pods):len(f.pods)]
	m.mu.Unlock()
	ref, by, err := Try(ctx, m.cfg.Puller, Pull{Image: p.name.asked, For: pods, Sandbox: p.sandbox}, p.credentials)
	if err != nil {
		how := failed
		if ctx.Err() != nil {
			how = left
		}
		m.records.end(p.name.full, how)
		return pullFailure(p.name.asked, err)
	}
	f.image.Ref, f.image.Pulled, f.image.Took = ref, true, time.Since(begun)
	for i := range p.credentials {
		if by == &p.credentials[i] {
			f.by = i
		}
	}
	f.image.Info, err = m.status(ctx, ref, p.sandbox.GetAnnotations())
	if err == nil && f.image.Info == nil {
		err = &Error{Reason: ImageInspectError, Message: fmt.Sprintf("the runtime has pulled image %s as %s, and says now that it does not have it", p.name.asked, ref)}
	}
	if err != nil {
		m.records.end(p.name.full, left) // it is here, and nothing says by whom
		return err
	}
	how := recorded
	if !m.records.add(p.name, f.image.Info.GetId(), by) {
		how = left
	}
	m.records.end(p.name.full, how)
	return nil
}
