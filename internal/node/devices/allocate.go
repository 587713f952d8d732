package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/plan"
	"fairlead.run/internal/node/podspec"
)

// awayPatience is how long a plugin may be away before pods are refused that ask for its
// devices: it is restarted, or was started at the same time as the node.
const awayPatience = time.Minute

// Admit gives a pod all devices that it asks for. A *capacity.Refusal is that it cannot
// have them; with any other error it may be asked again.
func (m *Manager) Admit(ctx context.Context, pod *corev1.Pod) error {
	m.sweep()
	for _, ct := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		needs := m.needs(&ct)
		for _, name := range slices.Sorted(maps.Keys(needs)) {
			if _, err := m.grant(ctx, want{pod, &ct, name, needs[name]}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Outfit is what a container gets for the devices that it asks for, each time before it
// starts.
func (m *Manager) Outfit(ctx context.Context, pod *corev1.Pod, ct *corev1.Container) (podspec.Given, error) {
	var out podspec.Given
	needs := m.needs(ct)
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		g, err := m.grant(ctx, want{pod, ct, name, needs[name]})
		if err == nil && g.Prepare {
			err = m.prepare(ctx, name, g.Devices)
		}
		if err != nil {
			return out, fmt.Errorf("devices %s: %w", name, err)
		}
		g.Answer.addTo(&out)
	}
	return out, nil
}

// Forget takes back what a pod had of which nothing is left.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	had := m.pods[uid] != nil
	delete(m.pods, uid)
	delete(m.waiting, uid)
	var waiting []types.UID
	if had {
		waiting = slices.Collect(maps.Keys(m.waiting))
		clear(m.waiting)
	}
	m.mu.Unlock()
	if !had {
		return
	}
	if len(waiting) > 0 {
		m.cfg.Concerns(waiting...)
	}
	if err := removePage(m.cfg.Folder, uid); err != nil {
		m.cfg.Log.Warn("it stays recorded which devices a pod had that is gone", "uid", string(uid), "error", err)
	}
}

// sweep takes back what pods had that have ended.
func (m *Manager) sweep() {
	m.mu.Lock()
	all := slices.Collect(maps.Keys(m.pods))
	m.mu.Unlock()
	for _, uid := range all {
		if m.cfg.Ended(uid) {
			m.Forget(uid)
		}
	}
}

// needs is how many devices a container asks for, of those that are given out here.
func (m *Manager) needs(ct *corev1.Container) map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]int{}
	for name, n := range ct.Resources.Limits {
		if m.names[string(name)] && n.Value() > 0 {
			out[string(name)] = int(n.Value())
		}
	}
	return out
}

// want is that a container asks for so many devices of a resource.
type want struct {
	pod      *corev1.Pod
	ct       *corev1.Container
	resource string
	n        int
}

// grant gives a container its devices, or finds that it has them. What it is to have is
// recorded before the plugin is asked: who was killed in between asks for the same.
func (m *Manager) grant(ctx context.Context, w want) (grant, error) {
	m.mu.Lock()
	g, has := grant{}, false
	if p := m.pods[w.pod.UID]; p != nil {
		g, has = p.Containers[w.ct.Name][w.resource]
	}
	m.mu.Unlock()
	if has && g.Answer != nil {
		return g, nil
	}
	p, err := m.here(w.resource)
	if err != nil {
		return g, err
	}
	if !has {
		g.Prepare = p.options.GetPreStartRequired()
		if g, err = m.reserve(w, g, m.preferred(ctx, p, w)); err != nil {
			return g, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := p.client.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: g.Devices}}})
	switch {
	case status.Code(err) == codes.Unavailable || ctx.Err() != nil:
		return g, fmt.Errorf("allocate %s: %w", w.resource, err)
	case err != nil:
		return g, capacity.Unexpected(fmt.Errorf("the device plugin of %s says: %w", w.resource, err))
	case len(r.GetContainerResponses()) != 1:
		return g, capacity.Unexpected(fmt.Errorf("the device plugin of %s has answered for %d containers, and was asked for one", w.resource, len(r.GetContainerResponses())))
	}
	g.Answer = answerOf(r.GetContainerResponses()[0])
	return g, m.record(w, g)
}

// here is the plugin of a resource, once it has told its devices.
func (m *Manager) here(resource string) (plugin, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.plugins[resource]
	if p != nil && p.connected {
		return *p, nil
	}
	if time.Since(m.awaySince(p)) < awayPatience {
		return plugin{}, fmt.Errorf("%s: %w: %w", resource, errAway, errdefs.ErrUnavailable)
	}
	return plugin{}, capacity.Unexpected(fmt.Errorf("%s: %w", resource, errAway))
}

// stock is what there is of a resource for one more container.
type stock struct {
	free  []string // sorted
	reuse []string // of these, what containers of the pod had that end before
}

// stock looks what is free. The caller holds mu.
func (m *Manager) stock(w want) stock {
	taken, had := map[string]bool{}, map[string]bool{}
	for uid, p := range m.pods {
		for name, of := range p.Containers {
			into := taken
			if uid == w.pod.UID && endsFirst(w.pod, name) {
				into = had
			}
			of[w.resource].addTo(into)
		}
	}
	var out stock
	for id, d := range m.plugins[w.resource].devices {
		if !d.works || taken[id] {
			continue
		}
		out.free = append(out.free, id)
		if had[id] {
			out.reuse = append(out.reuse, id)
		}
	}
	slices.Sort(out.free)
	slices.Sort(out.reuse)
	return out
}

// soon is how many devices are free, or are those of pods that leave or have ended: such a one may
// have done so since it was looked what is free.
func (m *Manager) soon(w want) (n int) {
	for uid, has := range m.holders(w.resource) {
		if has > 0 && (m.cfg.Leaves(uid) || m.cfg.Ended(uid)) {
			n += has
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return n + len(m.stock(w).free)
}

// holders is how many devices that work each pod has.
func (m *Manager) holders(resource string) map[types.UID]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[types.UID]int{}
	for uid, p := range m.pods {
		ids := map[string]bool{} // a pod may have one of them in several containers
		for _, of := range p.Containers {
			of[resource].addTo(ids)
		}
		for id := range ids {
			if p := m.plugins[resource]; p != nil && p.devices[id].works {
				out[uid]++
			}
		}
	}
	return out
}

// errLeaving is that devices will be free soon.
var errLeaving = errors.New("the others are those of pods that are still ending")

func (g grant) addTo(set map[string]bool) {
	for _, id := range g.Devices {
		set[id] = true
	}
}

// endsFirst says that a container ends before those after it begin.
func endsFirst(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(ct corev1.Container) bool { return ct.Name == name && !plan.Sidecar(&ct) })
}

// preferred is what the plugin would give of what is free; nil if it has no wish. Without
// an answer any will do.
func (m *Manager) preferred(ctx context.Context, p plugin, w want) []string {
	if !p.options.GetGetPreferredAllocationAvailable() {
		return nil
	}
	m.mu.Lock()
	s := m.stock(w)
	m.mu.Unlock()
	if len(s.free) <= w.n {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := p.client.GetPreferredAllocation(ctx, &api.PreferredAllocationRequest{ContainerRequests: []*api.ContainerPreferredAllocationRequest{{
		AvailableDeviceIDs: s.free, MustIncludeDeviceIDs: s.reuse[:min(len(s.reuse), w.n)], AllocationSize: int32(w.n),
	}}})
	if err != nil || len(r.GetContainerResponses()) != 1 {
		m.cfg.Log.Warn("a device plugin does not say which devices it prefers", "resource", w.resource, "error", err)
		return nil
	}
	return r.GetContainerResponses()[0].GetDeviceIDs()
}

// choose takes so many of what is free: first what is used again, then what is preferred.
func (s stock) choose(n int, preferred []string) []string {
	var out []string
	for _, id := range slices.Concat(s.reuse, preferred, s.free) {
		if len(out) < n && slices.Contains(s.free, id) && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// reserve keeps devices for a container, and says which.
func (m *Manager) reserve(w want, g grant, preferred []string) (grant, error) {
	m.mu.Lock()
	if m.plugins[w.resource] == nil {
		m.mu.Unlock()
		return g, fmt.Errorf("%s: %w: %w", w.resource, errAway, errdefs.ErrUnavailable)
	}
	s := m.stock(w)
	g.Devices = s.choose(w.n, preferred)
	g.Nodes = m.plugins[w.resource].nodes(g.Devices)
	if len(g.Devices) < w.n {
		m.waiting[w.pod.UID] = true
		m.mu.Unlock()
		if m.soon(w) >= w.n {
			return g, fmt.Errorf("%s: of %d devices %d are free, and %w: %w", w.resource, w.n, len(s.free), errLeaving, errdefs.ErrUnavailable)
		}
		return g, capacity.Unexpected(fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", w.resource, w.n, len(s.free)))
	}
	before := m.pods[w.pod.UID]
	m.pods[w.pod.UID] = before.with(w.ct.Name, w.resource, g)
	m.mu.Unlock()
	if err := m.record(w, g); err != nil {
		m.mu.Lock()
		m.pods[w.pod.UID] = before
		if before == nil {
			delete(m.pods, w.pod.UID)
		}
		m.mu.Unlock()
		return g, err
	}
	return g, nil
}

// record writes what a container has. One goroutine at a time works for a pod.
func (m *Manager) record(w want, g grant) error {
	m.mu.Lock()
	p := m.pods[w.pod.UID].with(w.ct.Name, w.resource, g)
	m.pods[w.pod.UID] = p
	m.mu.Unlock()
	return writePage(m.cfg.Folder, w.pod.UID, p)
}

// prepare has the plugin make devices ready, each time before they are used.
func (m *Manager) prepare(ctx context.Context, resource string, ids []string) error {
	p, err := m.here(resource)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := p.client.PreStartContainer(ctx, &api.PreStartContainerRequest{DevicesIds: ids}); err != nil {
		return fmt.Errorf("have the device plugin prepare %v: %w", ids, err)
	}
	return nil
}
