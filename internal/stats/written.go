package stats

import (
	"context"
	"time"

	"fairlead.run/internal/pod"
)

// firstSum is how long who asks for a sum waits for the first walks through the
// layers that nobody has asked about before.
const firstSum = time.Second

// Written adds up what containers have written to their layers, as the last walk
// through each of them found it, and asks for new walks. Its time is that of the
// oldest walk. A layer that no walk has come through yet is not in it.
func (m *Meter) Written(ctx context.Context, ids []pod.ContainerID) pod.LayerUsage {
	ctx, cancel := context.WithTimeout(ctx, firstSum)
	defer cancel()
	out := pod.LayerUsage{At: time.Now(), Path: m.cfg.LayerPath}
	for _, id := range ids { // all are asked for before one is waited for
		m.layers.of(id)
	}
	for _, id := range ids {
		if !m.layers.await(ctx, id) {
			continue
		}
		if u := m.layers.last(id); u != nil {
			out.Bytes += u.Bytes
			out.Inodes += u.Inodes
			if u.At.Before(out.At) {
				out.At = u.At
			}
		}
	}
	return out
}
