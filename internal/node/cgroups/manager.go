package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	v1 "github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/priority"
)

// Config says where the tree is and what holds for all pods.
type Config struct {
	Driver Driver
	// Root is the cgroup that the tree is in; empty or "/" for the top.
	Root string
	// PodPids is how many processes a pod may have; 0 for as many as it likes.
	PodPids int64
	// NoCPUQuota leaves out limits of CPU time; shares stay.
	NoCPUQuota bool
	Log        *slog.Logger
}

// Manager makes, changes and removes the cgroups of pods. Calls for different
// pods may be made at the same time.
type Manager struct {
	driver Driver
	top    name
	cfg    Config
	log    *slog.Logger
	roots  map[string]string // where each hierarchy is, by controller; "" is cgroup v2
	stats  *metrics

	mu      sync.Mutex
	applied map[string]Limits // by name; what was written last
}

// New finds the hierarchies of the host.
func New(cfg Config) (*Manager, error) {
	if _, err := ParseDriver(string(cfg.Driver)); err != nil {
		return nil, err
	}
	root := strings.FieldsFunc(cfg.Root, func(r rune) bool { return r == '/' })
	if slices.Contains(root, "..") || slices.Contains(root, ".") {
		return nil, fmt.Errorf("cgroup root %q leads elsewhere; name it from the top of the hierarchy", cfg.Root)
	}
	m := &Manager{driver: cfg.Driver, top: append(name(root), top), cfg: cfg, log: cfg.Log, stats: newMetrics(), applied: map[string]Limits{}}
	lib, err := manager.New(m.library(m.top, &cgroups.Resources{SkipDevices: true}))
	if err != nil {
		return nil, fmt.Errorf("find the cgroups of the host for the driver %s: %w", cfg.Driver, err)
	}
	m.roots = map[string]string{}
	for controller, dir := range lib.GetPaths() {
		root, ok := strings.CutSuffix(dir, m.top.in(m.driver))
		if !ok {
			return nil, fmt.Errorf("find the cgroups of the host: %s is not where %s would be", dir, m.top.in(m.driver))
		}
		m.roots[controller] = root
	}
	return m, nil
}

// library is a cgroup in the terms of the library.
func (m *Manager) library(n name, r *cgroups.Resources) *cgroups.Cgroup {
	if m.driver != Systemd {
		return &cgroups.Cgroup{Path: n.path(), Resources: r}
	}
	parent := "-" + slice
	if len(n) > 1 {
		parent = n[:len(n)-1].slice()
	}
	return &cgroups.Cgroup{Name: n.slice(), Parent: parent, Systemd: true, Resources: r}
}

func (m *Manager) paths(n name) map[string]string {
	out := make(map[string]string, len(m.roots))
	for controller, root := range m.roots {
		out[controller] = root + n.in(m.driver)
	}
	return out
}

// has says whether the kernel has a controller.
func (m *Manager) has(controller string) bool {
	if !cgroups.IsCgroup2UnifiedMode() {
		return m.roots[controller] != ""
	}
	list, err := os.ReadFile(filepath.Join(m.roots[""], "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(list)), controller)
}

// Limit gives the cgroup of all pods its limits. A zero sets none. It costs a look at one
// folder if nothing is to be done.
func (m *Manager) Limit(ctx context.Context, t capacity.Together) error {
	all := Limits{CPUShares: shares(t.MilliCPU), CPUQuota: unlimited, Memory: orUnlimited(t.Memory), Pids: orUnlimited(t.Pids)}
	if t.MilliCPU == 0 {
		all.CPUShares = maxShares
	}
	return m.ensure(ctx, m.top, all)
}

// Start makes the cgroup of all pods and those of the classes. That not all limits of all
// pods can be had is no error: pods run without, and Limit says why.
func (m *Manager) Start(ctx context.Context, t capacity.Together) error {
	if err := m.Limit(ctx, t); err != nil {
		if _, there := m.there(m.top); !there {
			return err
		}
	}
	for class := range tiers {
		if _, there := m.there(m.tier(class)); there {
			continue // with pods in it, from before a restart; Share looks after it
		}
		if err := m.ensure(ctx, m.tier(class), floor()); err != nil {
			return err
		}
	}
	return nil
}

func orUnlimited(n int64) int64 {
	if n <= 0 {
		return unlimited
	}
	return n
}

func floor() Limits {
	return Limits{CPUShares: minShares, CPUQuota: unlimited, Memory: unlimited, Pids: unlimited}
}

// Share gives the Burstable pods together the CPU that they have asked for. It is
// told of all that run, whenever one begins, ends or is resized, and by one
// goroutine at a time.
func (m *Manager) Share(ctx context.Context, running []*corev1.Pod) error {
	var asked int64
	for _, pod := range running {
		if priority.Class(pod) == corev1.PodQOSBurstable {
			requests := capacity.Requests(pod)
			asked = min(asked+milli(requests.Cpu()), maxMilli)
		}
	}
	l := floor()
	l.CPUShares = shares(asked)
	return m.ensure(ctx, m.tier(corev1.PodQOSBurstable), l)
}

// Ensure makes the pod's cgroup, or gives it what the pod may use now. It costs a
// look at one folder if nothing is to be done.
//
// Of a pod that gets more memory the cgroup goes before its containers, of one
// that gets less after them.
func (m *Manager) Ensure(ctx context.Context, pod *corev1.Pod) error {
	l := PodLimits(pod)
	l.Pids = orUnlimited(m.cfg.PodPids)
	if m.cfg.NoCPUQuota {
		l.CPUQuota = unlimited
	}
	if len(l.Hugepages) > 0 && !m.has("hugetlb") {
		m.log.Warn("this kernel does not account huge pages, so nothing limits them", "pod", pod.UID)
	}
	n := m.podName(pod)
	if _, done := m.done(n, l); done {
		return nil
	}
	err := error(nil)
	if dir, there := m.there(n); there && cgroups.IsCgroup2UnifiedMode() {
		err = affords(dir, l.Memory)
	}
	if err == nil {
		err = m.ensure(ctx, n, l)
	}
	if err != nil {
		return fmt.Errorf("cgroup of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// done looks whether a cgroup is there with these limits.
func (m *Manager) done(n name, l Limits) (dir string, ok bool) {
	dir, there := m.there(n)
	m.mu.Lock()
	defer m.mu.Unlock()
	last, known := m.applied[n.path()]
	return dir, there && known && last.equal(l)
}

func (m *Manager) ensure(ctx context.Context, n name, l Limits) error {
	dir, done := m.done(n, l)
	if done {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := m.apply(n, l); err != nil {
		return fmt.Errorf("give %s its limits: %w", dir, explained(err))
	}
	m.mu.Lock()
	m.applied[n.path()] = l
	m.mu.Unlock()
	return nil
}

// there looks at the hierarchy that every host has.
func (m *Manager) there(n name) (string, bool) {
	root := m.roots["memory"]
	if root == "" {
		root = m.roots[""]
	}
	dir := root + n.in(m.driver)
	_, err := os.Stat(dir)
	return dir, err == nil
}

func (m *Manager) apply(n name, l Limits) error {
	operation := create
	if _, there := m.there(n); there {
		operation = update
	}
	defer m.stats.done(operation, time.Now())
	r := m.resources(l)
	lib, err := manager.NewWithPaths(m.library(n, r), m.paths(n))
	if err != nil {
		return err
	}
	if err := lib.Apply(-1); err != nil { // no process goes into it
		return err
	}
	if m.driver == Systemd || cgroups.IsCgroup2UnifiedMode() {
		return lib.Set(r)
	}
	return m.setV1(n, r)
}

// setV1 does what the library's Set does for the controllers that have limits
// here. That one keeps what it has learnt of blkio without a lock, and a runtime
// in the same process calls it, too.
func (m *Manager) setV1(n name, r *cgroups.Resources) error {
	type group interface {
		Name() string
		Set(path string, r *cgroups.Resources) error
	}
	for _, g := range []group{&v1.CpuGroup{}, &v1.MemoryGroup{}, &v1.PidsGroup{}, &v1.HugetlbGroup{}} {
		if m.roots[g.Name()] == "" {
			continue
		}
		if err := g.Set(m.roots[g.Name()]+n.in(m.driver), r); err != nil {
			return err
		}
	}
	return nil
}

// explained adds to an error what to do about it.
func explained(err error) error {
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("more is in use than the new limit; lower the use or ask for more: %w", err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return fmt.Errorf("the host's cgroups cannot be written; run as root, with /sys/fs/cgroup mounted read-write: %w", err)
	}
	return err
}

// Memory is what the pod's cgroup uses now, in bytes.
func (m *Manager) Memory(pod *corev1.Pod) (int64, error) {
	dir, _ := m.there(m.podName(pod))
	n, err := memory(dir)
	if err != nil {
		return 0, fmt.Errorf("read the memory of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return n, nil
}

// memory is what a cgroup uses.
func memory(dir string) (n int64, err error) {
	file := "memory.usage_in_bytes"
	if cgroups.IsCgroup2UnifiedMode() {
		file = "memory.current"
	}
	text, err := cgroups.ReadFile(dir, file)
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(text, &n)
	return n, err
}

// Name is the cgroup of all pods, as it is called in each hierarchy.
func (m *Manager) Name() string { return m.top.in(m.driver) }

// Top is the folder of the cgroup of all pods that shows their memory.
func (m *Manager) Top() string {
	dir, _ := m.there(m.top)
	return dir
}

// found is a pod's cgroup.
type found struct {
	uid  types.UID
	name name
}
