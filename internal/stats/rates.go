package stats

import (
	"time"

	"fairlead.run/internal/pod"
)

// minWindow is the shortest time that a rate is worked out over: the kernel adds
// up the time of running processes some hundred times a second.
const minWindow = 100 * time.Millisecond

// rates works out how much a total grows in a second, from one request to the
// next. Who asks too early gets the rate of before.
type rates struct {
	memory memory[sample]
}

type sample struct {
	at    time.Time
	total uint64
	rate  *uint64
}

// add fills in the rate, if the same id was looked at before.
func (r *rates) add(id string, u *pod.CPUUsage) {
	if u == nil || u.Total == nil {
		return
	}
	r.memory.with(id, u.At, func(s *sample) {
		window := u.At.Sub(s.at)
		switch {
		case s.at.IsZero(), *u.Total < s.total: // new, or a cgroup that was made anew
			*s = sample{at: u.At, total: *u.Total}
		case window >= minWindow:
			n := uint64(float64(*u.Total-s.total) / window.Seconds())
			*s = sample{at: u.At, total: *u.Total, rate: &n}
		}
		u.Rate = s.rate
	})
}
