package taskapi

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"fairlead.run/internal/errdefs"
)

// Usage is what a shim counts for a container. What it does not tell is nil.
type Usage struct {
	CPU, User, System *uint64 // processor time in ns
	Memory            *uint64 // bytes, the page cache included
	Processes         *uint64
}

// Stats asks what a container uses. Shims say it as the cgroups of the host would,
// in the form of either version, whatever is below them.
func (e Endpoint) Stats(ctx context.Context, id string) (Usage, error) {
	var m message
	m.text(1, id)
	f, err := e.call(ctx, "Stats", m)
	if err != nil {
		return Usage{}, err
	}
	return parseUsage(f.bytes(1))
}

// parseUsage reads the message Metrics of containerd's cgroups, packed.
func parseUsage(packed []byte) (Usage, error) {
	f, err := parse(packed)
	if err != nil {
		return Usage{}, err
	}
	kind, metrics := string(f.bytes(1)), tree(f.bytes(2))
	switch {
	case strings.HasSuffix(kind, "io.containerd.cgroups.v1.Metrics"):
		return Usage{
			CPU: metrics.count(1, 3, 1, 1), System: metrics.count(1, 3, 1, 2), User: metrics.count(1, 3, 1, 3),
			Memory: metrics.count(1, 4, 33, 2), Processes: metrics.count(1, 2, 1),
		}, nil
	case strings.HasSuffix(kind, "io.containerd.cgroups.v2.Metrics"):
		const us = 1000
		return Usage{
			CPU: metrics.count(us, 2, 1), User: metrics.count(us, 2, 2), System: metrics.count(us, 2, 3),
			Memory: metrics.count(1, 4, 32), Processes: metrics.count(1, 1, 1),
		}, nil
	}
	return Usage{}, fmt.Errorf("the shim tells what a container uses as %.100q: %w", kind, errdefs.ErrUnimplemented)
}

// tree is a message with others in it.
type tree []byte

// count is the number at a path of fields, times its unit; nil where there is none.
func (t tree) count(unit uint64, path ...protowire.Number) *uint64 {
	f, err := parse(t)
	if err != nil {
		return nil
	}
	at, ok := f[path[0]]
	if !ok {
		return nil
	}
	if len(path) > 1 {
		return tree(at.bytes).count(unit, path[1:]...)
	}
	n := at.number * unit
	return &n
}
