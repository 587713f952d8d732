package devices

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Device is one, as others on the node are told of it.
type Device struct {
	Resource, ID string
	// Nodes are the NUMA nodes that it is at; none if its plugin does not say.
	Nodes []int64
}

// Given are the devices that a container has, by resource and id. A pod that has ended has
// none.
func (m *Manager) Given(pod types.UID, container string) []Device {
	if m.cfg.Ended(pod) {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[pod]
	if p == nil {
		return nil
	}
	var out []Device
	for resource, g := range p.Containers[container] {
		for _, id := range g.Devices {
			out = append(out, Device{Resource: resource, ID: id, Nodes: g.Nodes[id]})
		}
	}
	return sorted(out)
}

// Working are all devices that work, by resource and id, whoever has them.
func (m *Manager) Working() []Device {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Device
	for resource, p := range m.plugins {
		for id, d := range p.devices {
			if d.works && p.connected {
				out = append(out, Device{Resource: resource, ID: id, Nodes: d.nodes})
			}
		}
	}
	return sorted(out)
}

func sorted(all []Device) []Device {
	slices.SortFunc(all, func(a, b Device) int { return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.ID, b.ID)) })
	return all
}

// nodes are the NUMA nodes of devices of which the plugin has told any. The caller holds mu.
func (p *plugin) nodes(ids []string) map[string][]int64 {
	out := map[string][]int64{}
	for _, id := range ids {
		if nodes := p.devices[id].nodes; len(nodes) > 0 {
			out[id] = nodes
		}
	}
	return out
}
