package workload

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"fairlead.run/internal/node/manifest/cron"
	"fairlead.run/internal/node/manifest/template"
)

// How many Jobs that are over a CronJob keeps where it does not say.
const (
	keepSuccessful = 3
	keepFailed     = 1
)

// CronRecord is what a CronJob has started.
type CronRecord struct {
	Schedule string    `json:"schedule"` // with its zone; another one counts from when it is new
	Since    time.Time `json:"since"`
	Last     time.Time `json:"last"`            // of the schedule, for which a Job was started
	Missed   time.Time `json:"missed,omitzero"` // the last time for which it was too late
	Held     time.Time `json:"held,omitzero"`   // the last time that had to wait for a Job before it
	Runs     []Run     `json:"runs,omitempty"`
}

// Run is one Job. It keeps what it was made from: a change of the CronJob is for
// later ones.
type Run struct {
	At   time.Time               `json:"at"`
	From batchv1.JobTemplateSpec `json:"from"`
	Job  JobRecord               `json:"job"`
}

func (r Run) over() bool { return r.Job.State == Complete || r.Job.State == Failed }

// made is the Job of a run.
func (r Run) made(c *batchv1.CronJob) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: *r.From.ObjectMeta.DeepCopy(), Spec: *r.From.Spec.DeepCopy()}
	j.Name, j.Namespace = r.name(c), c.Namespace
	return j
}

func (r Run) name(c *batchv1.CronJob) string { return fmt.Sprintf("%s-%d", c.Name, r.At.Unix()/60) }

// cronNext goes on with the Jobs that there are, starts one if it is time, and lets
// go of old ones.
func cronNext(c *batchv1.CronJob, r *CronRecord, pods Pods, now time.Time) (Decision, wanted) {
	m := cronJob{CronJob: c, pods: pods, now: now, zone: zoneOf(c)}
	if r != nil {
		m.record = *r
		m.record.Runs = slices.Clone(r.Runs)
	}
	m.schedule, m.err = cron.Parse(c.Spec.Schedule)
	if text := c.Spec.Schedule + " " + m.zone.String(); m.record.Schedule != text {
		m.record.Schedule, m.record.Since = text, now
	}
	m.advance(m.record.Runs)
	if c.Spec.Suspend == nil || !*c.Spec.Suspend {
		m.start()
	}
	m.forget(Complete, template.Number(c.Spec.SuccessfulJobsHistoryLimit, keepSuccessful))
	m.forget(Failed, template.Number(c.Spec.FailedJobsHistoryLimit, keepFailed))
	return m.decide()
}

func zoneOf(c *batchv1.CronJob) *time.Location {
	if c.Spec.TimeZone != nil {
		if zone, err := time.LoadLocation(*c.Spec.TimeZone); err == nil {
			return zone
		}
	}
	return time.Local
}

// cronJob decides about one CronJob.
type cronJob struct {
	*batchv1.CronJob
	record   CronRecord
	pods     Pods
	now      time.Time
	zone     *time.Location
	schedule cron.Schedule
	err      error // with the schedule
	jobs     map[int64]*job
	want     map[int64]wanted
	next     time.Time
}

// advance brings runs up to date.
func (m *cronJob) advance(runs []Run) {
	if m.jobs == nil {
		m.jobs, m.want = map[int64]*job{}, map[int64]wanted{}
	}
	for i := range runs {
		r := &runs[i]
		j := newJob(r.made(m.CronJob), &r.Job, m.pods)
		m.want[r.At.Unix()] = j.next(m.now)
		m.jobs[r.At.Unix()] = j
		r.Job = j.record
	}
}

// start starts a Job for the latest time of the schedule for which there is none.
func (m *cronJob) start() {
	if m.err != nil {
		return
	}
	r := &m.record
	soon := m.schedule.Next(m.now.In(m.zone))
	if r.Last.After(soon) { // the clock was set back
		r.Last = m.now
	}
	if r.Since.After(soon) {
		r.Since = m.now
	}
	after := r.Since
	if r.Last.After(after) {
		after = r.Last
	}
	m.next = m.schedule.NextFrom(after.In(m.zone), m.now.In(m.zone)).UTC()
	at, due := m.schedule.Last(after.In(m.zone), m.now.In(m.zone))
	at = at.UTC()
	late := m.Spec.StartingDeadlineSeconds != nil && m.now.Sub(at) > time.Duration(*m.Spec.StartingDeadlineSeconds)*time.Second
	if !due || slices.ContainsFunc(r.Runs, func(run Run) bool { return run.At.Unix()/60 == at.Unix()/60 }) {
		return
	}
	if late {
		r.Missed = at
		return
	}
	active := slices.ContainsFunc(r.Runs, func(run Run) bool { return !run.over() })
	switch m.Spec.ConcurrencyPolicy {
	case batchv1.ForbidConcurrent:
		if active {
			r.Held = at
			return // it is started late, unless it is too late then
		}
	case batchv1.ReplaceConcurrent:
		r.Runs = slices.DeleteFunc(r.Runs, func(run Run) bool { return !run.over() })
	}
	r.Last = at
	r.Runs = append(r.Runs, Run{At: at, From: *m.Spec.JobTemplate.DeepCopy()})
	m.advance(r.Runs[len(r.Runs)-1:])
}

// forget lets go of the oldest runs that ended like this.
func (m *cronJob) forget(state State, keep int) {
	n := 0
	for _, r := range m.record.Runs {
		if r.Job.State == state {
			n++
		}
	}
	m.record.Runs = slices.DeleteFunc(m.record.Runs, func(r Run) bool {
		if r.Job.State != state || n <= keep {
			return false
		}
		n--
		return true
	})
}

func (m *cronJob) decide() (Decision, wanted) {
	d := Decision{Record: Record{Cron: &m.record}, Status: Status{State: Running, Last: m.record.Last, Next: m.next}}
	if m.err != nil {
		d.Status.State, d.Status.Message = Failed, m.err.Error()
	}
	if m.Spec.Suspend != nil && *m.Spec.Suspend {
		d.Status.State = Suspended
	}
	d.Again = m.next
	var want wanted
	for _, r := range m.record.Runs {
		j := m.jobs[r.At.Unix()]
		of := m.want[r.At.Unix()]
		want.run, want.keep = append(want.run, of.run...), append(want.keep, of.keep...)
		d.Again = Sooner(d.Again, j.again)
		switch r.Job.State {
		case Complete:
			d.Status.Succeeded++
		case Failed:
			d.Status.Failed++
		default:
			d.Status.Active++
		}
	}
	return d, want
}
