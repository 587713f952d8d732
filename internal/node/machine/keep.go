package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/source"
	"fairlead.run/internal/node/status"
	"fairlead.run/internal/node/workload"
)

// keep has the agent keep the pods of the manifests, and those that Jobs and the like
// want now. It thinks when manifests or pods have changed, and when the clock says so.
func (m *Machine) keep(ctx context.Context) error {
	records, err := m.readRecords()
	if err != nil {
		return err
	}
	for _, p := range m.agent.Remembered() {
		m.beside.remembered.Store(p.UID, p)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.changed:
		case <-timer.C:
		}
		objects, unread := m.current()
		if objects == nil {
			continue // nobody knows yet which pods are to be
		}
		seen := m.seen()
		all := workload.Plan(workload.Input{Workloads: objects.Workloads, Unread: unread, Records: records, Pods: workload.Known(seen), Now: time.Now()})
		if err := m.writeRecords(records, all.Records); err != nil {
			m.warn("JobsNotRecorded", "No pod is started or ended until what Jobs have done can be written down, which is tried again: "+err.Error()+hostpath.Advice(err))
			timer.Reset(retryRecords)
			continue
		}
		records = all.Records
		m.mu.Lock()
		m.statuses = all.Statuses
		m.mu.Unlock()
		pods, again := m.wanted(objects, all)
		if len(unread) == 0 {
			m.forgetOthers(pods)
		}
		m.agent.Set(pods, unread...)
		timer.Stop()
		if !again.IsZero() {
			timer.Reset(patience(again, time.Now()))
		}
	}
}

// longest is how long nobody looks at the clock while there is something to do at a time:
// timers know neither that it was set, nor how long the machine was asleep.
const longest = 30 * time.Second

// patience is how long to wait until a time, before the clock is looked at again.
func patience(until, now time.Time) time.Duration { return min(until.Sub(now), longest) }

// forgetOthers forgets what was remembered of pods that nobody asks for any more.
func (m *Machine) forgetOthers(wanted []*corev1.Pod) {
	m.beside.remembered.Range(func(uid, _ any) bool {
		if slices.ContainsFunc(wanted, func(p *corev1.Pod) bool { return p.UID == uid }) {
			return true
		}
		m.beside.remembered.Delete(uid) // and the agent what is left of it
		return true
	})
}

// retryRecords is when a folder that cannot be written to is tried again.
const retryRecords = 10 * time.Second

// wanted are the pods of manifests and workloads. Of those that stay to be looked at
// only such are asked for as the agent has, or knows to have ended: no other one may
// start. Again is when to ask anew; zero for when something has changed.
func (m *Machine) wanted(objects *manifest.Objects, all workload.All) (out []*corev1.Pod, again time.Time) {
	list := append([]*manifest.Pod(nil), objects.Pods...)
	list = append(list, all.Want...)
	node := source.Node{Name: m.cfg.Node.Name}
	out, again = m.replaced(source.Static(list, node), time.Now())
	if again.IsZero() || !all.Again.IsZero() && all.Again.Before(again) {
		again = all.Again
	}
	there := map[types.UID]bool{} // also those that have just ended, and are not in the ledger yet
	for _, p := range m.agent.Pods() {
		there[p.UID] = true
	}
	for _, p := range source.Static(all.Keep, node) {
		if there[p.UID] || m.agent.Ended(p.UID) {
			out = append(out, p.Pod)
		}
	}
	return out, again
}

// seen is what the agent has of pods, and what it remembers of such as it has not come
// to since it was started.
func (m *Machine) seen() []workload.Seen {
	pods := m.agent.Pods()
	there := map[types.UID]bool{}
	for _, p := range pods {
		there[p.UID] = true
	}
	m.beside.remembered.Range(func(uid, p any) bool {
		if !there[uid.(types.UID)] {
			pods = append(pods, p.(*corev1.Pod))
		}
		return true
	})
	var out []workload.Seen
	for _, p := range pods {
		s := workload.Seen{Namespace: p.Namespace, Name: p.Name, Phase: p.Status.Phase, Ready: status.Ready(&p.Status)}
		for _, c := range p.Status.ContainerStatuses {
			s.Restarts += int(c.RestartCount)
			if t := c.State.Terminated; t != nil && status.Terminal(p.Status.Phase) && t.FinishedAt.After(s.Ended) {
				s.Ended = t.FinishedAt.Time
			}
		}
		out = append(out, s)
	}
	return out
}

// recordFile is where it is kept what Jobs and CronJobs have done.
func (m *Machine) recordFile() string { return filepath.Join(m.cfg.Root, "workloads.json") }

func (m *Machine) readRecords() (map[string]workload.Record, error) {
	out := map[string]workload.Record{}
	data, err := os.ReadFile(m.recordFile())
	if errors.Is(err, os.ErrNotExist) {
		return out, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		return nil, fmt.Errorf("read what Jobs have done: %w; remove %s to have all of them run again", err, m.recordFile())
	}
	return out, nil
}

// writeRecords writes the records if they have changed.
func (m *Machine) writeRecords(before, after map[string]workload.Record) error {
	old, err := json.Marshal(before)
	if err != nil {
		return err
	}
	data, err := json.Marshal(after)
	if err != nil || string(old) == string(data) {
		return err
	}
	if err := os.MkdirAll(m.cfg.Root, 0o711); err != nil {
		return err
	}
	return atomicfile.WriteSync(m.recordFile(), data, 0o600)
}
