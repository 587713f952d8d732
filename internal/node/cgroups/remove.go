package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// lookAgain is between two looks at processes that were killed.
const lookAgain = 10 * time.Millisecond

// classes are in the order of the tree.
var classes = []corev1.PodQOSClass{corev1.PodQOSGuaranteed, corev1.PodQOSBurstable, corev1.PodQOSBestEffort}

// Pods are the UIDs of all pods that have a cgroup in some hierarchy. Those whose
// pod nobody knows any more are orphans; Remove removes them.
func (m *Manager) Pods() ([]types.UID, error) {
	all, err := m.list()
	if err != nil {
		return nil, err
	}
	var out []types.UID
	for _, f := range all {
		out = append(out, f.uid)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func (m *Manager) list() ([]found, error) {
	seen := map[string]found{}
	for _, class := range classes {
		tier := m.tier(class)
		for _, dir := range m.paths(tier) {
			entries, err := os.ReadDir(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("list the cgroups of pods: %w", err)
			}
			m.gather(seen, tier, entries)
		}
	}
	return slices.Collect(maps.Values(seen)), nil
}

func (m *Manager) gather(seen map[string]found, tier name, entries []fs.DirEntry) {
	for _, e := range entries {
		if uid, ok := m.uidOf(tier, e.Name()); ok && e.IsDir() {
			n := tier.child(podPrefix + string(uid))
			seen[n.path()] = found{uid, n}
		}
	}
}

// Remove ends what still runs in the pod's cgroup and removes it with all below.
// The pod may be unknown; one without a cgroup is removed already.
func (m *Manager) Remove(ctx context.Context, uid types.UID) error {
	if uid == "" || filepath.Base(string(uid)) != string(uid) {
		return fmt.Errorf("remove the cgroup of pod %q: that is no UID", uid)
	}
	var errs []error
	for _, class := range classes {
		n := m.tier(class).child(podPrefix + string(uid))
		if !m.anywhere(n) {
			m.forget(n)
			continue
		}
		errs = append(errs, m.remove(ctx, n))
	}
	return errors.Join(errs...)
}

// Clear removes the whole tree if no pod is in it, and with it the cgroups that it is
// in, if nothing else is in these.
func (m *Manager) Clear(ctx context.Context) error {
	left, err := m.Pods()
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("remove the cgroup %s: %d pods are in it", m.top.in(m.driver), len(left))
	}
	var errs []error
	for _, class := range slices.Backward(classes) { // the first is the top itself
		if n := m.tier(class); m.anywhere(n) {
			errs = append(errs, m.remove(ctx, n))
		}
	}
	for n := len(m.top) - 1; n > 0 && m.driver != Systemd; n-- { // systemd ends slices itself
		for _, dir := range m.paths(m.top[:n]) {
			_ = os.Remove(dir) // it stays if somebody is in it
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) forget(n name) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.applied, n.path())
}

func (m *Manager) anywhere(n name) bool {
	for _, dir := range m.paths(n) {
		if _, err := os.Stat(dir); err == nil {
			return true
		}
	}
	return false
}

func (m *Manager) remove(ctx context.Context, n name) error {
	where := n.in(m.driver)
	if err := m.kill(ctx, n); err != nil {
		return fmt.Errorf("end what runs in the cgroup %s: %w", where, err)
	}
	defer m.stats.done(destroy, time.Now())
	lib, err := manager.NewWithPaths(m.library(n, &cgroups.Resources{SkipDevices: true}), m.paths(n))
	if err != nil {
		return fmt.Errorf("find the cgroup %s: %w", where, err)
	}
	destroyed := lib.Destroy()
	// Runtimes make some in hierarchies that the library leaves to systemd.
	for _, dir := range m.paths(n) {
		if err := cgroups.RemovePath(dir); err != nil {
			return fmt.Errorf("remove the cgroup %s: %w", dir, errors.Join(err, destroyed))
		}
	}
	m.forget(n)
	return nil
}

// kill returns when nothing runs in the cgroup or below it in any hierarchy.
func (m *Manager) kill(ctx context.Context, n name) error {
	if cgroups.IsCgroup2UnifiedMode() {
		// Before Linux 5.14 there is no such file, and each is killed by itself.
		_ = cgroups.WriteFile(m.paths(n)[""], "cgroup.kill", "1")
	}
	for {
		left := 0
		for _, dir := range m.paths(n) {
			k, err := killIn(dir)
			if err != nil {
				return err
			}
			left += k
		}
		if left == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes do not end: %w", left, context.Cause(ctx))
		case <-time.After(lookAgain):
		}
	}
}

// killIn kills what is in one hierarchy and says how many that were. The second
// look is for a pid that has become another process's before it was held.
func killIn(dir string) (int, error) {
	before, err := pids(dir)
	if err != nil || len(before) == 0 {
		return 0, err
	}
	held := map[int]int{}
	defer func() {
		for _, fd := range held {
			_ = unix.Close(fd)
		}
	}()
	for _, pid := range before {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			held[pid] = fd
		}
	}
	now, err := pids(dir)
	if err != nil {
		return 0, err
	}
	for _, pid := range now {
		if fd, ok := held[pid]; ok {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
	}
	return len(now), nil
}

func pids(dir string) ([]int, error) {
	list, err := cgroups.GetAllPids(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	return list, err
}
