package workload

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/manifest"
	"fairlead.run/internal/node/manifest/template"
)

// What Kubernetes does where a Job does not say.
const (
	defaultBackoffLimit = 6
	firstBackoff        = 10 * time.Second
	longestBackoff      = 10 * time.Minute
)

// maxEnded bounds the pods of a Job that are kept for their logs after their end.
const maxEnded = 100

// JobRecord is what has become of a Job. Its pods have slots, from 0 to one less
// than its completions, of which each is to succeed once.
type JobRecord struct {
	Spec    string      `json:"spec"` // a hash of what must not change; another one makes another Job
	State   State       `json:"state"`
	Reason  string      `json:"reason,omitempty"`
	Message string      `json:"message,omitempty"`
	Started time.Time   `json:"started"` // or resumed
	Ended   time.Time   `json:"ended"`
	Done    Numbers     `json:"done"`              // slots that have succeeded
	Tries   map[int]int `json:"tries,omitempty"`   // how many pods of a slot have failed
	Ignored int         `json:"ignored,omitempty"` // of these, as its podFailurePolicy says
	Streak  int         `json:"streak,omitempty"`  // pods that failed since one has succeeded
	Fell    time.Time   `json:"fell"`              // when the last one of them failed
}

// job decides about one Job.
type job struct {
	*batchv1.Job
	record JobRecord
	again  time.Time
	hash   string
	slots  int  // in all
	queue  bool // without completions: one success is enough, and the rest ends by itself
	pods   []jobPod
	fatal  string // why a pod that has failed is the end of all, by its podFailurePolicy
}

// jobPod is a pod of the Job that is seen.
type jobPod struct {
	Seen
	slot, try int
}

func newJob(spec *batchv1.Job, r *JobRecord, pods Pods) *job {
	j := &job{Job: spec, hash: jobHash(spec), queue: spec.Spec.Completions == nil}
	j.slots = template.Number(spec.Spec.Completions, template.Number(spec.Spec.Parallelism, 1))
	if r != nil && r.Spec == j.hash {
		j.record = *r
		j.record.Tries = maps.Clone(r.Tries)
	}
	j.record.Spec = j.hash
	for key, s := range pods {
		if slot, try, ok := j.parse(key); ok {
			j.pods = append(j.pods, jobPod{Seen: s, slot: slot, try: try})
		}
	}
	// A failure counts for the backoff if nothing has succeeded after it.
	slices.SortFunc(j.pods, func(a, b jobPod) int {
		return cmp.Or(a.Ended.Compare(b.Ended), -strings.Compare(string(a.Phase), string(b.Phase)), strings.Compare(a.Name, b.Name))
	})
	return j
}

// jobHash is one of what an API server does not let anybody change.
func jobHash(j *batchv1.Job) string {
	what := []any{j.Namespace, j.Name, j.Spec.Completions, template.Indexed(j), j.Spec.Template}
	if p := j.Spec.PodFailurePolicy; p != nil {
		what = append(what, p)
	}
	text, err := json.Marshal(what)
	if err != nil {
		panic(err) // it was JSON before
	}
	sum := sha256.Sum256(text)
	return fmt.Sprintf("%x", sum[:8])
}

// letters may all be in a name.
var letters = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// name is the name of a pod. It is that of no other try and of no other version of
// the Job.
func (j *job) name(slot, try int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", j.hash, slot, try))
	return fmt.Sprintf("%s-%d-%.5s", j.Name, slot, letters.EncodeToString(sum[:4]))
}

// parse is the reverse of name.
func (j *job) parse(key manifest.Key) (slot, try int, ok bool) {
	rest, mine := strings.CutPrefix(key.Name, j.Name+"-")
	number, _, cut := strings.Cut(rest, "-")
	slot, err := strconv.Atoi(number)
	if !mine || !cut || err != nil || key.Namespace != j.Namespace {
		return 0, 0, false
	}
	for try := range j.record.Tries[slot] + 1 {
		if key.Name == j.name(slot, try) {
			return slot, try, true
		}
	}
	return 0, 0, false
}

func (j *job) suspended() bool { return j.Spec.Suspend != nil && *j.Spec.Suspend }

// next brings the record up to date and makes the pods that are wanted.
func (j *job) next(now time.Time) wanted {
	r := &j.record
	if r.State == Complete || r.State == Failed {
		return j.leave(now)
	}
	for _, p := range j.pods {
		j.count(p, now)
	}
	if j.suspended() {
		r.State, r.Started = Suspended, time.Time{}
		return j.made(nil)
	}
	if r.Started.IsZero() {
		r.Started = now
	}
	r.State = Running
	if j.end(now) {
		return j.leave(now)
	}
	return j.made(j.active(now))
}

// count takes notice of a pod that has ended, once.
func (j *job) count(p jobPod, now time.Time) {
	r := &j.record
	at := p.Ended
	if at.IsZero() {
		at = now
	}
	switch {
	case p.try != r.Tries[p.slot] || r.Done.Has(p.slot): // it was counted
	case p.Phase == corev1.PodSucceeded:
		r.Done, r.Streak = r.Done.With(p.slot), 0
	case p.Phase == corev1.PodFailed && !j.suspended(): // else it was ended for that
		if r.Tries == nil {
			r.Tries = map[int]int{}
		}
		r.Tries[p.slot]++
		r.Streak++
		switch action, why := j.judged(p); action {
		case batchv1.PodFailurePolicyActionIgnore:
			r.Ignored++
		case batchv1.PodFailurePolicyActionFailJob:
			j.fatal = why
		}
		if at.After(r.Fell) || r.Fell.After(now) {
			r.Fell = at.UTC()
		}
	}
}

func (j *job) failed() int {
	n := 0
	for _, tries := range j.record.Tries {
		n += tries
	}
	return n - j.record.Ignored
}

// end says whether the Job is over, and records how.
func (j *job) end(now time.Time) bool {
	r := &j.record
	limit, restarts, running := template.Number(j.Spec.BackoffLimit, defaultBackoffLimit), 0, 0
	for _, p := range j.pods {
		if !p.ended() {
			running++
			restarts += p.Restarts
		}
	}
	inPlace := j.Spec.Template.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
	deadline := time.Time{}
	if d := j.Spec.ActiveDeadlineSeconds; d != nil {
		deadline = r.Started.Add(time.Duration(*d) * time.Second)
	}
	switch {
	case j.fatal != "":
		r.State, r.Reason, r.Message = Failed, batchv1.JobReasonPodFailurePolicy, j.fatal
	case j.queue && r.Done.Len() > 0 && running == 0, !j.queue && r.Done.Len() >= j.slots:
		r.State = Complete
	case j.failed() > limit, inPlace && restarts > 0 && restarts >= limit:
		r.State, r.Reason, r.Message = Failed, batchv1.JobReasonBackoffLimitExceeded, fmt.Sprintf("its pods have failed more often than its backoffLimit of %d allows", limit)
	case !deadline.IsZero() && !now.Before(deadline):
		r.State, r.Reason, r.Message = Failed, batchv1.JobReasonDeadlineExceeded, fmt.Sprintf("it was active for longer than its activeDeadlineSeconds of %d", *j.Spec.ActiveDeadlineSeconds)
	default:
		j.soon(deadline)
		return false
	}
	r.Ended = now
	return true
}

// active are the slots whose pods are to run: as many as may run at once, lowest
// first. What is not there yet waits for the backoff.
func (j *job) active(now time.Time) map[int]bool {
	r := &j.record
	there := map[int]bool{}
	for _, p := range j.pods {
		if !p.ended() && p.try == r.Tries[p.slot] {
			there[p.slot] = true
		}
	}
	wait := j.waits(now)
	out := map[int]bool{}
	parallel := template.Number(j.Spec.Parallelism, 1)
	for slot, places := 0, parallel; slot < j.slots && places > 0; slot++ {
		switch {
		case r.Done.Has(slot):
			if j.queue {
				places-- // its place is not taken again
			}
			continue
		case there[slot], !wait && !(j.queue && r.Done.Len() > 0):
			out[slot] = true
		case wait:
			j.soon(j.backoff())
		}
		places--
	}
	return out
}

// backoff is when pods are made again.
func (j *job) backoff() time.Time { return j.record.Fell.Add(j.pause()) }

// waits says that no pods are to be made before backoff. Where the last one has failed
// after now, the clock was set back: nobody knows by how much, and the Job must not wait
// until the clock is there again.
func (j *job) waits(now time.Time) bool {
	return j.backoff().After(now) && !j.record.Fell.After(now)
}

// pause is how long no pods are made after one has failed.
func (j *job) pause() time.Duration {
	switch n := j.record.Streak - 1; {
	case n < 0:
		return 0
	case n < 6:
		return min(firstBackoff<<n, longestBackoff)
	}
	return longestBackoff
}

func (j *job) soon(t time.Time) { j.again = Sooner(j.again, t) }

// wanted are pods of a workload.
type wanted struct {
	run  []*corev1.Pod
	keep []*corev1.Pod // have ended
}

// leave keeps the ended pods of a Job that is over, for some time or as long as it
// is written.
func (j *job) leave(now time.Time) wanted {
	if ttl := j.Spec.TTLSecondsAfterFinished; ttl != nil {
		until := j.record.Ended.Add(time.Duration(*ttl) * time.Second)
		if !now.Before(until) {
			return wanted{}
		}
		j.soon(until)
	}
	return j.made(nil)
}

// made makes the pods of active slots, and those that have ended and count. Others
// that have ended did so because they were not wanted.
func (j *job) made(active map[int]bool) wanted {
	var out wanted
	ended := slices.DeleteFunc(slices.Clone(j.pods), func(p jobPod) bool {
		succeeded := p.Phase == corev1.PodSucceeded && j.record.Done.Has(p.slot)
		return !p.ended() || (p.try == j.record.Tries[p.slot] && !succeeded)
	})
	slices.SortStableFunc(ended, func(a, b jobPod) int { return b.Ended.Compare(a.Ended) })
	for _, p := range ended[:min(len(ended), maxEnded)] {
		out.keep = append(out.keep, template.JobPod(j.Job, p.Name, p.slot))
	}
	for _, slot := range slices.Sorted(maps.Keys(active)) {
		out.run = append(out.run, template.JobPod(j.Job, j.name(slot, j.record.Tries[slot]), slot))
	}
	return out
}

func (j *job) status() Status {
	r := &j.record
	s := Status{State: r.State, Reason: r.Reason, Message: r.Message, Wanted: j.slots, Succeeded: r.Done.Len(), Failed: j.failed(), Started: r.Started, Ended: r.Ended}
	for _, p := range j.pods {
		if !p.ended() {
			s.Active++
		}
		if p.Ready {
			s.Ready++
		}
	}
	return s
}
