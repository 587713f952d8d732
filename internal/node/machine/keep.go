package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.run/internal/atomicfile"
	"fairlead.run/internal/hostpath"
	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/priority"
	"fairlead.run/internal/node/source"
	"fairlead.run/internal/node/status"
	"fairlead.run/internal/node/workload"
)

// keep has the agent keep the pods of the manifests, and those that Jobs and the like
// want now. It thinks when manifests or pods have changed, and when the clock says so.
func (m *Machine) keep(ctx context.Context) error {
	for _, p := range m.agent.Remembered() {
		m.beside.remembered.Store(p.UID, p)
	}
	k := rounds{Machine: m}
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
		timer.Stop()
		again := k.round(objects, unread)
		if !again.IsZero() {
			timer.Reset(patience(again, time.Now()))
		}
	}
}

// rounds is what keep knows from one time to the next.
type rounds struct {
	*Machine
	records map[string]workload.Record // nil while they were not read
	jobs    []*manifest.Pod            // pods of Jobs and CronJobs that were last asked for
	planned bool                       // jobs holds all of them
	asked   []manifest.Key             // pods of workloads that were to run
	told    string                     // why Jobs and CronJobs wait
}

// round thinks once; again is when to do so anew, and zero if only a change matters.
// Pods of Jobs and CronJobs wait where what these have done cannot be read, or written
// down; others do not.
func (k *rounds) round(objects *manifest.Objects, unread []string) (again time.Time) {
	in := workload.Input{Workloads: objects.Workloads, Unread: unread, Records: k.records, Pods: workload.Known(k.seen()), Now: time.Now()}
	all, err := k.plan(in)
	if err != nil {
		k.tellOnce(err)
		all, unread = k.hold(in)
	}
	w := k.wanted(objects, all)
	if err != nil {
		for _, p := range k.held(objects) {
			w.add(p)
		}
		w.again = workload.Sooner(w.again, time.Now().Add(retryRecords))
	} else {
		k.told = ""
		if len(unread) == 0 {
			k.forgetOthers(w.pods)
		}
		k.remember(all, w.pods)
	}
	slices.SortStableFunc(w.pods, priority.ByImportance) // the first has its place before others
	k.agent.Set(w.pods, unread...)
	k.asks(objects, all.Statuses, w.asks)
	return w.again
}

// asks notes what the agent was asked for, now that it was.
func (m *Machine) asks(objects *manifest.Objects, statuses map[string]workload.Status, pods map[types.UID]ask) {
	present := m.agent.Present()
	m.mu.Lock()
	defer m.mu.Unlock()
	going := map[types.UID]ask{}
	for _, before := range []map[types.UID]ask{m.last.going, m.last.pods} {
		for uid, a := range before {
			_, wanted := pods[uid]
			if _, is := present[uid]; is && !wanted {
				going[uid] = a
			}
		}
	}
	m.last.objects, m.last.statuses, m.last.pods, m.last.going = objects, statuses, pods, going
}

// plan says what is to be, once that is written down.
func (k *rounds) plan(in workload.Input) (all workload.All, err error) {
	if k.records == nil {
		if k.records, err = k.readRecords(); err != nil {
			return all, &jobsWait{"JobsUnknown", "What Jobs and CronJobs have done cannot be read, and none of their pods is started or ended; that is tried again: " + err.Error()}
		}
		in.Records = k.records
	}
	all = workload.Plan(in)
	if err := k.writeRecords(k.records, all.Records); err != nil {
		return all, &jobsWait{"JobsNotRecorded", "No pod of a Job or CronJob is started or ended until what these have done can be written down, which is tried again: " + err.Error() + hostpath.Advice(err)}
	}
	k.tell(in, all)
	k.records = all.Records
	return all, nil
}

// tell adds events about workloads: what their records say, and which pods are made.
func (k *rounds) tell(in workload.Input, all workload.All) {
	for _, w := range in.Workloads {
		id := w.Kind + " " + w.Key().String()
		for _, e := range workload.News(w, in.Records[id], all.Records[id]) {
			k.events.add(k.reference(e.Kind, manifest.Key{Namespace: e.Namespace, Name: e.Name}), e.Type, e.Reason, e.Message)
		}
	}
	for _, p := range all.Want {
		_, there := in.Pods[p.Key()]
		if there || slices.ContainsFunc(k.asked, func(key manifest.Key) bool { return key == p.Key() }) {
			continue
		}
		owner, name := p.OwnerKind, p.Owner
		if owner == "CronJob" { // its Jobs have pods
			owner, name = "Job", p.Labels[batchv1.JobNameLabel]
		}
		k.events.add(k.reference(owner, manifest.Key{Namespace: p.Namespace, Name: name}), corev1.EventTypeNormal, "SuccessfulCreate", "Created Pod "+p.Name)
	}
	k.asked = k.asked[:0]
	for _, p := range all.Want {
		k.asked = append(k.asked, p.Key())
	}
}

// jobsWait is why Jobs and CronJobs do.
type jobsWait struct{ reason, message string }

func (w *jobsWait) Error() string { return w.message }

// tellOnce tells of what is told already no second time.
func (k *rounds) tellOnce(err error) {
	var why *jobsWait
	if errors.As(err, &why) && k.told != why.message {
		k.told = why.message
		k.warn(why.reason, why.message)
	}
}

// hold plans for what needs no records, and says of which sources nothing that an earlier
// machine has left may be touched, as nobody knows which pods Jobs have.
func (k *rounds) hold(in workload.Input) (all workload.All, unread []string) {
	in.Workloads = slices.DeleteFunc(slices.Clone(in.Workloads), func(w *manifest.Workload) bool { return w.StatefulSet == nil })
	in.Records = nil
	all = workload.Plan(in)
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, s := range k.last.statuses {
		if _, has := all.Statuses[id]; !has {
			all.Statuses[id] = s
		}
	}
	if unread = in.Unread; !k.planned {
		unread = k.cfg.Manifests.Kinds()
	}
	return all, unread
}

// remember keeps which pods of Jobs and CronJobs were asked for.
func (k *rounds) remember(all workload.All, asked []*corev1.Pod) {
	k.jobs, k.planned = nil, true
	for _, p := range k.static(slices.Concat(all.Want, all.Keep)) {
		if p.OwnerKind != "StatefulSet" && slices.ContainsFunc(asked, func(a *corev1.Pod) bool { return a.UID == p.UID }) {
			k.jobs = append(k.jobs, p)
		}
	}
}

// held are the pods of Jobs and CronJobs as they were, but for those whose manifests are
// gone.
func (k *rounds) held(objects *manifest.Objects) (out []*manifest.Pod) {
	for _, p := range k.jobs {
		if slices.ContainsFunc(objects.Workloads, func(w *manifest.Workload) bool {
			return w.Kind == p.OwnerKind && w.Key() == manifest.Key{Namespace: p.Namespace, Name: p.Owner}
		}) {
			out = append(out, p)
		}
	}
	return out
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

// wants is what the agent is to be asked for.
type wants struct {
	pods  []*corev1.Pod
	asks  map[types.UID]ask // also of pods that make place for others now
	again time.Time         // when to think anew; zero for when something has changed
}

func (w *wants) add(p *manifest.Pod) {
	w.asks[p.UID] = askFor(p)
	w.pods = append(w.pods, p.Pod)
}

// wanted are the pods of manifests and workloads. Of those that stay to be looked at
// only such are asked for as the agent has, or knows to have ended: no other one may
// start.
func (m *Machine) wanted(objects *manifest.Objects, all workload.All) wants {
	list := append([]*manifest.Pod(nil), objects.Pods...)
	list = append(list, all.Want...)
	asked := m.static(list)
	w := wants{asks: map[types.UID]ask{}}
	for _, p := range asked {
		w.asks[p.UID] = askFor(p)
	}
	w.pods, w.again = m.replaced(asked, time.Now())
	w.again = workload.Sooner(w.again, all.Again)
	there := map[types.UID]bool{} // also those that have just ended, and are not in the ledger yet
	for _, p := range m.agent.Pods() {
		there[p.UID] = true
	}
	for _, p := range m.static(all.Keep) {
		if there[p.UID] || m.agent.Ended(p.UID) {
			w.add(p)
		}
	}
	return w
}

// static are pods as an API server would have them. One whose priority does not fit its
// class is refused when it is to begin.
func (m *Machine) static(pods []*manifest.Pod) []*manifest.Pod {
	out, classes := source.Static(pods, source.Node{Name: m.cfg.Node.Name}), m.read().Priorities
	for _, p := range out {
		if priority.Resolve(&p.Spec, classes) != nil {
			m.beside.unclassed.Store(p.UID, &p.Spec)
		} else {
			m.beside.unclassed.Delete(p.UID)
		}
	}
	return out
}

// ask is a pod that the agent was asked for.
type ask struct {
	key  manifest.Key
	kind string // of the object that it is there for, which may be the pod itself
	of   manifest.Key
}

func askFor(p *manifest.Pod) ask {
	return ask{p.Key(), cmp.Or(p.OwnerKind, "Pod"), manifest.Key{Namespace: p.Namespace, Name: cmp.Or(p.Owner, p.Name)}}
}

// isOf says whether it is there for an object, or is that object.
func (a ask) isOf(kind string, k manifest.Key) bool {
	return a.kind == kind && a.of == k || kind == "Pod" && a.key == k
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
		s := workload.Seen{Namespace: p.Namespace, Name: p.Name, Phase: p.Status.Phase, Ready: status.Ready(&p.Status) && p.DeletionTimestamp == nil, Status: p.Status}
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
		return nil, fmt.Errorf("read %s: %w; mend it, or remove it to have all of them run again", m.recordFile(), err)
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
