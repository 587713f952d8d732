package eviction

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"fairlead.run/internal/node/capacity"
	"fairlead.run/internal/node/lasting"
	"fairlead.run/internal/node/podspec"
	"fairlead.run/internal/node/priority"
)

// DefaultTransition is the kubelet's.
const DefaultTransition = 5 * time.Minute

const (
	every     = 10 * time.Second
	soon      = time.Second // after an eviction, until what it freed can be seen
	hardGrace = time.Second
	beyond    = 30 * time.Second // its grace a pod may take before the next one has to go
)

// Node is what the Manager needs of its node.
type Node interface {
	// Observe says what is left. What could not be observed is missing, and said by
	// the error.
	Observe(context.Context) (Observations, error)
	// Pods are those with containers that run, as far as they were measured: all if the
	// node runs short, else those that have limits of their own.
	Pods(ctx context.Context, short bool) ([]Pod, error)
	// Evict ends a pod and returns when it has ended, or when ctx ends, with an
	// error if the pod has not; ErrGone is that there is no such pod any more. The pod's status is that of Eviction.Mark from then
	// on.
	Evict(context.Context, Eviction) error
	// RemoveContainers removes what is left of containers that have ended for good.
	RemoveContainers(context.Context) error
	// RemoveImages removes images that no container uses.
	RemoveImages(context.Context) error
	// SetConditions is told when the conditions change, and at the beginning.
	SetConditions([]corev1.NodeConditionType)
	// Event is about the node, and a warning.
	Event(reason, message string)
}

// ErrGone is that a pod was to end that has already.
var ErrGone = errors.New("it is gone already")

// Config is what a Manager goes by.
type Config struct {
	Thresholds []Threshold
	Transition time.Duration
	// MaxGrace bounds the grace of pods at soft thresholds.
	MaxGrace time.Duration
	Layout   Layout
	// Wake brings the next observation forward; it may be nil. See Pressure.
	Wake <-chan struct{}
	Log  *slog.Logger
}

// Manager watches over a node.
type Manager struct {
	cfg     Config
	node    Node
	machine *Machine

	// going are pods that were told to end, and are not told again, with the times that
	// they began: one that takes the place of another has its UID on one machine.
	going map[types.UID]time.Time

	mu  sync.Mutex
	has []corev1.NodeConditionType
}

// New makes a Manager. Run starts it.
func New(cfg Config, node Node) *Manager {
	return &Manager{cfg: cfg, node: node, machine: NewMachine(cfg.Thresholds, cfg.Transition), going: map[types.UID]time.Time{}}
}

// Run observes, and evicts where it must, until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	m.node.SetConditions(nil)
	var told lasting.Failure
	for ctx.Err() == nil {
		pause := every
		evicted, err := m.round(ctx)
		if text := fmt.Sprint(err); err != nil && ctx.Err() == nil && told.Tell(text) {
			m.cfg.Log.Warn("not all that the node could run short of was looked at", "error", err)
			m.node.Event("EvictionBlind", "No pod is evicted for what cannot be measured; see to it before the node runs short: "+text)
		}
		if err == nil {
			told.Over()
		}
		if evicted {
			pause = soon
		}
		select {
		case <-ctx.Done():
		case <-m.cfg.Wake:
		case <-time.After(pause):
		}
	}
	return nil
}

// round is one look and what follows from it.
func (m *Manager) round(ctx context.Context) (evicted bool, err error) {
	seen, err := m.node.Observe(ctx)
	verdict := m.machine.Step(time.Now(), seen)
	m.set(verdict.Conditions)
	pods, failed := m.node.Pods(ctx, len(verdict.Due) > 0)
	if err = errors.Join(err, failed); failed != nil {
		return false, err
	}
	if len(verdict.Due) > 0 {
		m.forget(pods)
	}
	if m.exceeded(ctx, pods) {
		return true, err
	}
	if len(verdict.Due) == 0 {
		return false, err
	}
	t := verdict.Due[0]
	m.cfg.Log.Warn("the node runs short", "signal", t.Signal, "available", seen[t.Signal].Available, "threshold", t.Value.Of(seen[t.Signal].Capacity))
	m.node.Event("EvictionThresholdMet", reclaiming(t.Signal, m.cfg.Layout))
	if enough, failed := m.reclaim(ctx, t); failed != nil || enough {
		return false, errors.Join(err, failed)
	}
	return m.one(ctx, Rank(pods, t.Signal, m.cfg.Layout), t, seen[t.Signal]), err
}

func (m *Manager) set(now []corev1.NodeConditionType) {
	m.mu.Lock()
	changed := !slices.Equal(m.has, now)
	m.has = now
	m.mu.Unlock()
	if changed {
		m.cfg.Log.Info("the pressure on the node has changed", "conditions", now)
		m.node.SetConditions(now)
	}
}

// exceeded evicts all pods that have gone past limits of their own.
func (m *Manager) exceeded(ctx context.Context, pods []Pod) bool {
	any := false
	for _, p := range pods {
		limit, said := Exceeded(p)
		if said == "" || priority.Critical(p.Pod) || m.goes(p.Pod) {
			continue
		}
		m.evict(ctx, Eviction{Pod: p.Pod, Signal: limit, Message: said, Grace: hardGrace})
		any = true
	}
	return any
}

// reclaim gives back what nobody uses, and says whether that was enough.
func (m *Manager) reclaim(ctx context.Context, t Threshold) (bool, error) {
	containers, images := reclaims(t.Signal, m.cfg.Layout)
	if !containers && !images {
		return false, nil
	}
	var errs []error
	if containers {
		errs = append(errs, m.node.RemoveContainers(ctx))
	}
	if images {
		errs = append(errs, m.node.RemoveImages(ctx))
	}
	for _, err := range errs {
		if err != nil {
			m.cfg.Log.Warn("could not give back all that nobody uses", "signal", t.Signal, "error", err)
			m.node.Event("FreeDiskSpaceFailed", "Pods may be evicted for what nobody uses: "+err.Error())
		}
	}
	seen, err := m.node.Observe(ctx)
	if _, known := seen[t.Signal]; !known {
		return false, fmt.Errorf("observe %s again: %w", t.Signal, err) // no pod is evicted on a guess
	}
	return Resolved(t, seen), nil
}

// reclaims says what there is to be given back on the disk of a signal.
func reclaims(s Signal, l Layout) (containers, images bool) {
	onImages := s == ImagefsAvailable || s == ImagefsInodesFree
	if condition[s] != corev1.NodeDiskPressure {
		return false, false
	}
	switch l {
	case ImagesApart:
		return onImages, onImages
	case OnlyImagesApart:
		return !onImages, onImages
	}
	return true, true
}

// one evicts the first of the pods, but for those that are ending already. Whatever came
// of it, the node is looked at anew before the next one has to go.
func (m *Manager) one(ctx context.Context, ranked []Pod, t Threshold, o Observation) bool {
	for _, p := range ranked {
		if m.goes(p.Pod) {
			continue
		}
		e := low(p, t, o)
		e.Grace = m.grace(p.Pod, t)
		m.evict(ctx, e)
		return true
	}
	m.cfg.Log.Warn("the node runs short, and there is no pod left that may be evicted", "signal", t.Signal)
	m.node.Event("NoPodToEvict", fmt.Sprintf(
		"The node is low on %s, and no pod is left that may be evicted: critical ones stay, and others are ending already. See what else of the node uses it, or lower the threshold %s",
		starved[t.Signal], t.Signal))
	return false
}

// grace is the pod's own at a soft threshold, up to the limit.
func (m *Manager) grace(pod *corev1.Pod, t Threshold) time.Duration {
	if t.Grace == 0 {
		return hardGrace
	}
	return min(m.cfg.MaxGrace, time.Duration(podspec.Grace(pod))*time.Second)
}

func (m *Manager) evict(ctx context.Context, e Eviction) {
	m.going[e.Pod.UID] = began(e.Pod)
	m.cfg.Log.Warn("evict a pod", "pod", e.Pod.Namespace+"/"+e.Pod.Name, "uid", e.Pod.UID, "why", e.Message)
	ctx, cancel := context.WithTimeout(ctx, e.Grace+beyond)
	defer cancel()
	if err := m.node.Evict(ctx, e); err != nil {
		m.cfg.Log.Error("a pod could not be evicted", "pod", e.Pod.Namespace+"/"+e.Pod.Name, "error", err)
		if !errors.Is(err, ErrGone) {
			m.node.Event("EvictionNotDone", fmt.Sprintf("Pod %s/%s was told to end for what it uses, and has not ended within %s beyond its grace period, so that the next one is looked for; its own events say what holds it, and kubectl delete --force gives it up",
				e.Pod.Namespace, e.Pod.Name, beyond))
		}
	}
}

// goes says that a pod was told to end.
func (m *Manager) goes(p *corev1.Pod) bool {
	at, told := m.going[p.UID]
	return told && at.Equal(began(p))
}

// began is when a pod was accepted; zero if nobody knows.
func began(p *corev1.Pod) time.Time {
	if t := p.Status.StartTime; t != nil {
		return t.Time
	}
	return time.Time{}
}

// forget forgets pods that are not there any more.
func (m *Manager) forget(but []Pod) {
	maps.DeleteFunc(m.going, func(uid types.UID, _ time.Time) bool {
		return !slices.ContainsFunc(but, func(p Pod) bool { return p.Pod.UID == uid })
	})
}

// Admit says whether the node takes a pod in spite of its conditions. An error is
// a *capacity.Refusal.
func (m *Manager) Admit(pod *corev1.Pod) error {
	m.mu.Lock()
	has := m.has
	m.mu.Unlock()
	if len(has) == 0 || priority.Critical(pod) {
		return nil
	}
	if slices.Equal(has, []corev1.NodeConditionType{corev1.NodeMemoryPressure}) {
		taint := &corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule}
		// The zero logger drops what it is told, which is about numbers that are none.
		if priority.Class(pod) != corev1.PodQOSBestEffort || scheduling.TolerationsTolerateTaint(klog.Logger{}, pod.Spec.Tolerations, taint, true) {
			return nil
		}
	}
	return &capacity.Refusal{Reason: Reason, Message: fmt.Sprintf("The node had condition: %v. ", has)}
}
