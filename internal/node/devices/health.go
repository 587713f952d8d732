package devices

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Health is how the devices work that a container has, by resource and id (KEP-4680). Of
// a plugin that has just gone, or has not come yet, what was told last stays; after a
// minute nobody knows.
func (m *Manager) Health(pod types.UID, container string, told []corev1.ResourceStatus) []corev1.ResourceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[pod]
	if p == nil {
		return nil
	}
	var out []corev1.ResourceStatus
	for resource, g := range p.Containers[container] {
		s := corev1.ResourceStatus{Name: corev1.ResourceName(resource)}
		for _, id := range slices.Sorted(slices.Values(g.Devices)) {
			h := corev1.ResourceHealth{ResourceID: corev1.ResourceID(id), Health: m.health(resource, id)}
			if h.Health == "" {
				h.Health = cmp.Or(healthIn(told, s.Name, h.ResourceID), corev1.ResourceHealthStatusUnknown)
			}
			s.Resources = append(s.Resources, h)
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b corev1.ResourceStatus) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// health is how a device works, by its plugin; empty while that may come back. The caller
// holds mu.
func (m *Manager) health(resource, id string) corev1.ResourceHealthStatus {
	p := m.plugins[resource]
	switch {
	case p != nil && p.connected && p.devices[id].works:
		return corev1.ResourceHealthStatusHealthy
	case p != nil && p.connected:
		return corev1.ResourceHealthStatusUnhealthy
	case time.Since(m.awaySince(p)) < awayPatience:
		return ""
	}
	return corev1.ResourceHealthStatusUnknown
}

// awaySince is since when a plugin, which may be nil, is away. The caller holds mu.
func (m *Manager) awaySince(p *plugin) time.Time {
	if p == nil {
		return m.began
	}
	return p.lost
}

func healthIn(told []corev1.ResourceStatus, name corev1.ResourceName, id corev1.ResourceID) corev1.ResourceHealthStatus {
	for _, s := range told {
		for _, r := range s.Resources {
			if s.Name == name && r.ResourceID == id {
				return r.Health
			}
		}
	}
	return ""
}

// tell tells of the pods that have devices of a resource, as their health may be another.
func (m *Manager) tell(resource string) {
	m.mu.Lock()
	var has []types.UID
	for uid, p := range m.pods {
		for _, given := range p.Containers {
			if _, ok := given[resource]; ok {
				has = append(has, uid)
				break
			}
		}
	}
	m.mu.Unlock()
	if len(has) > 0 {
		m.cfg.Concerns(has...)
	}
}

// tellLater tells of them once a plugin that is away now has been so for long.
func (m *Manager) tellLater(resource string) {
	time.AfterFunc(awayPatience+time.Second, func() { m.tell(resource) })
}
