package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/bench/load"
	"fairlead.run/test/bench/peer"
	"fairlead.run/test/bench/report"
)

// variant is a daemon with a handler and a network.
type variant struct {
	kind    peer.Kind
	handler string
}

// names are the daemon and its network as reports have them.
var names = map[peer.Kind][2]string{
	peer.Containerd:      {report.Containerd, report.CNI},
	peer.FairleadCNI:     {report.Fairlead, report.CNI},
	peer.FairleadBuiltin: {report.Fairlead, report.Builtin},
}

func (v variant) String() string {
	return report.Variant(names[v.kind][0], v.handler, names[v.kind][1])
}

// allVariants is the order within the first round.
func allVariants(kinds []peer.Kind) []variant {
	var out []variant
	for _, handler := range []string{"runc", "crun"} {
		for _, k := range kinds {
			out = append(out, variant{k, handler})
		}
	}
	return out
}

// stage are the daemons that take part in a phase.
type stage struct {
	systems map[peer.Kind]*peer.System
}

// startAll starts daemons and pulls the workload into each.
func startAll(ctx context.Context, cfg peer.Config, kinds ...peer.Kind) (*stage, error) {
	s := &stage{systems: map[peer.Kind]*peer.System{}}
	for _, k := range kinds {
		sys, err := peer.Start(ctx, k, cfg)
		if err != nil {
			return nil, errors.Join(err, s.stop())
		}
		s.systems[k] = sys
		if err := pull(ctx, sys, workloadImage); err != nil {
			return nil, errors.Join(err, s.stop())
		}
	}
	return s, nil
}

func pull(ctx context.Context, sys *peer.System, image string) error {
	_, err := sys.Images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	if err != nil {
		return fmt.Errorf("%s: pull %s: %w\n%s", sys.Kind, image, err, sys.Said())
	}
	return nil
}

func (s *stage) stop() error {
	var failed []error
	for _, sys := range s.systems {
		failed = append(failed, sys.Stop())
	}
	return errors.Join(failed...)
}

func (s *stage) target(v variant, times *load.Times) load.Target {
	return load.Target{System: s.systems[v.kind], Handler: v.handler, Image: workloadImage, Times: times}
}

// rotated is the order of a later round, so that none is always the first.
func rotated(all []variant, round int) []variant {
	n := round % len(all)
	return slices.Concat(all[n:], all[:n])
}
