package storage

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	storagev1 "k8s.io/api/storage/v1"

	"fairlead.run/internal/node/volume/csi"
)

// renewTick is how often it is looked whether a driver is to be asked. The shortest period that a
// CSIDriver may have is 10 s.
const renewTick = 5 * time.Second

// Asks has drivers asked anew what they say of the node, by f. It is set before Run.
func (s *Storage) Asks(f func(ctx context.Context, driver string) (csi.NodeInfo, error)) { s.ask = f }

// renew asks drivers as often as their objects want it (nodeAllocatableUpdatePeriodSeconds), until
// ctx ends. One that hangs holds up no other.
func (s *Storage) renew(ctx context.Context) {
	var asking sync.WaitGroup
	defer asking.Wait()
	ticks := time.NewTicker(renewTick)
	defer ticks.Stop()
	asked := map[string]time.Time{} // those with a period
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks.C:
			for _, driver := range s.due(asked, now) {
				asking.Go(func() { s.askAgain(ctx, driver) })
			}
		}
	}
}

// due are the drivers whose period has passed. Asked has when each was asked last, or was first
// seen with a period: it has said then how it is.
func (s *Storage) due(asked map[string]time.Time, now time.Time) []string {
	s.drivers.mu.Lock()
	here := slices.Sorted(maps.Keys(s.drivers.here))
	s.drivers.mu.Unlock()
	maps.DeleteFunc(asked, func(driver string, _ time.Time) bool { return !slices.Contains(here, driver) })
	var out []string
	for _, driver := range here {
		period, last := s.period(driver), asked[driver]
		switch {
		case period == 0:
			delete(asked, driver)
			continue
		case !last.IsZero() && now.Sub(last) < period:
			continue
		case !last.IsZero():
			out = append(out, driver)
		}
		asked[driver] = now
	}
	return out
}

// period is zero for a driver that is asked once.
func (s *Storage) period(driver string) time.Duration {
	object, err := s.Driver(driver)
	if err != nil || object == nil || object.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*object.Spec.NodeAllocatableUpdatePeriodSeconds) * time.Second
}

// askAgain asks a driver, once at a time.
func (s *Storage) askAgain(ctx context.Context, driver string) {
	if s.ask == nil {
		return
	}
	_, _, _ = s.asking.Do(driver, func() (any, error) {
		info, err := s.ask(ctx, driver)
		switch {
		case err == nil:
			s.drivers.renew(driver, info)
		case ctx.Err() == nil:
			s.log.Warn("a CSI driver does not say anew how many volumes the node takes", "driver", driver, "error", err)
		}
		return nil, nil
	})
}

// renew takes what a driver says now, if it is still here and that is something else.
func (d *drivers) renew(driver string, info csi.NodeInfo) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was, here := d.here[driver]
	if !here || was.ID == info.ID && was.MaxVolumes == info.MaxVolumes && maps.Equal(was.Topology, info.Topology) {
		return
	}
	d.here[driver] = info
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// isFull says whether a volume could not be attached because the node takes no more of its driver's,
// where the driver says that this may change.
func (s *Storage) isFull(a *storagev1.VolumeAttachment) bool {
	e := a.Status.AttachError
	return e != nil && e.ErrorCode != nil && *e.ErrorCode == int32(codes.ResourceExhausted) && s.period(a.Spec.Attacher) > 0
}
