package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	monitorv1 "fairlead.run/api/monitor/v1"
	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime/oci/cgroup"
	"fairlead.run/internal/runtime/oci/process"
	"fairlead.run/internal/runtime/oci/trial"
	"fairlead.run/internal/stage"
)

// settle is how long pods that have just started are left alone before they are
// looked at.
const settle = 2 * time.Second

// idler is a pod that does nothing.
type idler struct {
	id, bundle string
	group      *cgroup.Group
	end        func()        // of the trial's name
	had        time.Duration // processor time when it was looked at first
}

// Costs runs pods that do nothing, all at once and by the way on which pods
// start, and looks at what runs beside them: for the window at their processor
// time, at its end at their memory. Nothing of them is left, whatever happens.
func (h *Handler) Costs(ctx context.Context, pods int, window time.Duration) (found pod.HandlerCosts, err error) {
	if h.cfg.StandIn == "" {
		return found, fmt.Errorf("there is no fairlead-monitor to run in the pods: %w", errdefs.ErrPrecondition)
	}
	var all []*idler
	defer func() {
		stage.Enter(ctx, "remove the pods")
		for _, i := range all {
			err = errors.Join(err, h.endIdler(ctx, i))
		}
	}()
	if err := sleep(ctx, settle); err != nil { // after what was measured before
		return found, err
	}
	before := h.monitorCost(ctx)
	for n := range pods {
		stage.Enter(ctx, fmt.Sprintf("start pod %d of %d", n+1, pods))
		i, err := h.startIdler(ctx)
		if i != nil {
			all = append(all, i)
		}
		if err != nil {
			return found, err
		}
	}
	stage.Enter(ctx, fmt.Sprintf("watch them for %s", window))
	if err := sleep(ctx, settle); err != nil {
		return found, err
	}
	begin, monitorHad := time.Now(), h.monitorCost(ctx).time
	for _, i := range all {
		if i.had, _, err = i.look(); err != nil {
			return found, err
		}
	}
	if err := sleep(ctx, window); err != nil {
		return found, err
	}
	for _, i := range all {
		has, memory, err := i.look()
		if err != nil {
			return found, err
		}
		found.Pods = append(found.Pods, pod.Cost{Memory: memory, CPU: share(has-i.had, time.Since(begin))})
	}
	after := h.monitorCost(ctx)
	found.Monitor.Memory = max(after.memory-before.memory, 0) / int64(pods)
	found.Monitor.CPU = share(after.time-monitorHad, time.Since(begin)) / float64(pods)
	return found, nil
}

// share is processor time in thousandths of a processor.
func share(used, of time.Duration) float64 { return max(1000*float64(used)/float64(of), 0) }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// startIdler starts a pod that does nothing. What it returns has to be ended,
// with an error as well.
func (h *Handler) startIdler(ctx context.Context) (*idler, error) {
	base := filepath.Join(h.cfg.StateDir, trialsFolder)
	if err := os.MkdirAll(base, 0o700); err != nil {
		return nil, fmt.Errorf("prepare a pod: %w", err)
	}
	unique := randomHex(8)
	i := &idler{id: trialPrefix + unique, bundle: filepath.Join(base, h.def.Name+"-"+unique)}
	i.end = h.cfg.trials.begin(i.id, filepath.Base(i.bundle))
	s := trial.Spec(h.info().OCI, i.id, h.cfg.StandIn, "")
	trial.Idle(s)
	if h.cfg.Systemd {
		trial.BySystemd(s)
	}
	if err := errors.Join(os.Mkdir(i.bundle, 0o700), trial.Write(i.bundle, s)); err != nil {
		return i, fmt.Errorf("prepare a pod: %w", err)
	}
	path, err := h.cgroup(i.bundle)
	if err != nil {
		return i, err
	}
	if i.group, err = cgroup.New(cgroupRoot, path); err != nil {
		return i, err
	}
	if _, err := h.start(ctx, pod.StartRequest{ID: i.id, Bundle: pod.Bundle{Path: i.bundle}}); err != nil {
		return i, fmt.Errorf("start a pod that does nothing: %w", err)
	}
	return i, nil
}

func (h *Handler) endIdler(ctx context.Context, i *idler) error {
	defer i.end()
	d := &Driver{cfg: h.cfg, trials: h.cfg.trials}
	return d.endTrial(ctx, h.tool, i.bundle, i.id)
}

// look is the processor time and the memory of what is in the pod's cgroup, or
// was started for it, and is not its workload. Where the workload is no process
// in there, what the kernel keeps for the cgroup is a part of it.
func (i *idler) look() (used time.Duration, memory int64, err error) {
	pids, err := i.group.PIDs()
	if err != nil {
		return 0, 0, fmt.Errorf("look at pod %s: %w", i.id, err)
	}
	if len(pids) == 0 {
		return 0, 0, fmt.Errorf("pod %s has ended by itself: %w", i.id, errdefs.ErrInternal)
	}
	workload := process.With(trial.Idling)
	outside := !slices.ContainsFunc(pids, func(pid int) bool { return slices.Contains(workload, pid) })
	if outside {
		memory = i.group.KernelMemory()
	}
	pids = append(pids, process.With(i.id)...) // a shim or a stand-in, which need not be in the cgroup
	slices.Sort(pids)
	for _, pid := range slices.Compact(pids) {
		if !slices.Contains(workload, pid) {
			used += process.Time(pid)
			memory += process.Memory(pid)
		}
	}
	return used, memory, nil
}

// monitorCost is what the monitor's two processes take.
type monitorCost struct {
	memory int64
	time   time.Duration
}

func (h *Handler) monitorCost(ctx context.Context) (c monitorCost) {
	m, ok := h.cfg.Monitor.(interface {
		Info(ctx context.Context) (monitorv1.Info, error)
	})
	if !ok {
		return c
	}
	info, err := m.Info(ctx)
	if err != nil {
		h.cfg.Log.Warn("the monitor does not say which its processes are, so that it counts for nothing", "error", err)
		return c
	}
	for _, pid := range []int{info.OuterPID, info.InnerPID} {
		c.memory += process.OwnMemory(pid) // pods run the same program
		c.time += process.Time(pid)
	}
	return c
}
