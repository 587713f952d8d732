package resources

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	statsv1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"fairlead.run/internal/errdefs"
)

// TestUsageBeforeRun is refused: there is nobody yet who measures.
func TestUsageBeforeRun(t *testing.T) {
	if _, err := keeper(false).Usage(t.Context()); !errors.Is(err, errdefs.ErrUnavailable) {
		t.Error(err)
	}
}

// TestRates measures until a container has a rate, and not for ever.
func TestRates(t *testing.T) {
	for from, want := range map[int]int{1: 2, 2: 2, 3: 3, 100: samples} {
		synctest.Test(t, func(t *testing.T) {
			asked, began := 0, time.Now()
			s, err := rated(t.Context(), func() (*statsv1.Summary, error) {
				asked++
				c := statsv1.ContainerStats{CPU: &statsv1.CPUStats{}}
				if asked >= from {
					c.CPU.UsageNanoCores = new(uint64(1))
				}
				return &statsv1.Summary{Pods: []statsv1.PodStats{{Containers: []statsv1.ContainerStats{c, {}}}}}, nil
			})
			if err != nil || s == nil || asked != want || time.Since(began) != time.Duration(want-1)*sampling {
				t.Errorf("rates from %d on: %d measurements in %s, %v", from, asked, time.Since(began), err)
			}
		})
	}
	asked := 0
	if _, err := rated(t.Context(), func() (*statsv1.Summary, error) { asked++; return nil, errors.New("away") }); err == nil || asked != 1 {
		t.Errorf("%d, %v", asked, err)
	}
}
