// Package cron knows the schedules of CronJobs: five fields, or a word such as
// @daily, as Kubernetes takes them.
//
// A schedule goes by the clock on the wall of its time zone. A time that is left out
// when clocks are set forward does not come that day, and one that is there twice
// when they are set back comes twice.
package cron

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Schedule says when something is to be.
type Schedule struct {
	minute, hour, day, month, weekday uint64 // a bit for each value
	anyDay, anyWeekday                bool   // if neither is, one of them is enough
	every                             time.Duration
}

// field is what a field of a schedule may hold.
type field struct {
	name        string
	least, most int
	words       []string // the first one is for least
}

var fields = [5]field{
	{name: "minute", most: 59},
	{name: "hour", most: 23},
	{name: "day of the month", least: 1, most: 31},
	{name: "month", least: 1, most: 12, words: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{name: "day of the week", most: 6, words: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

var words = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

const everyWord = "@every "

// Parse reads a schedule.
func Parse(text string) (Schedule, error) {
	if rest, ok := strings.CutPrefix(text, everyWord); ok {
		d, err := time.ParseDuration(rest)
		if err != nil || d <= 0 {
			return Schedule{}, fmt.Errorf("%q is not a time such as 1h30m", rest)
		}
		return Schedule{every: max(d.Truncate(time.Second), time.Second)}, nil
	}
	if strings.HasPrefix(text, "@") {
		full, ok := words[text]
		if !ok {
			return Schedule{}, errors.New("is not one of @yearly, @monthly, @weekly, @daily, @hourly and @every")
		}
		text = full
	}
	if strings.Contains(text, "TZ=") {
		return Schedule{}, errors.New("a time zone has no place in it; use spec.timeZone")
	}
	parts := strings.Fields(text)
	if len(parts) != len(fields) {
		return Schedule{}, fmt.Errorf("has %d fields and needs 5: minute, hour, day of the month, month and day of the week", len(parts))
	}
	var bits [len(fields)]uint64
	var free [len(fields)]bool
	for i, f := range fields {
		var err error
		if bits[i], free[i], err = f.parse(parts[i]); err != nil {
			return Schedule{}, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	s := Schedule{minute: bits[0], hour: bits[1], day: bits[2], month: bits[3], weekday: bits[4], anyDay: free[2], anyWeekday: free[4]}
	if s.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return Schedule{}, errors.New("no such day exists")
	}
	return s, nil
}

// parse reads one field: its values, and whether it is a star.
func (f field) parse(text string) (bits uint64, free bool, err error) {
	for part := range strings.SplitSeq(text, ",") {
		b, star, err := f.part(part)
		if err != nil {
			return 0, false, err
		}
		bits, free = bits|b, free || star
	}
	return bits, free, nil
}

// part reads a part of a list: "*", "3", "1-5", each with "/2" after it or not.
func (f field) part(text string) (bits uint64, star bool, err error) {
	span, stepText, stepped := strings.Cut(text, "/")
	step := 1
	if stepped {
		if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
			return 0, false, fmt.Errorf("%q is not a step", stepText)
		}
	}
	first, last := f.least, f.most
	star = (span == "*" || span == "?") && step == 1
	if span != "*" && span != "?" {
		from, to, isRange := strings.Cut(span, "-")
		if first, err = f.value(from); err != nil {
			return 0, false, err
		}
		switch {
		case isRange:
			last, err = f.value(to)
		case !stepped:
			last = first
		}
		if err != nil {
			return 0, false, err
		}
	}
	if first > last {
		return 0, false, fmt.Errorf("%q ends before it begins", span)
	}
	for v := first; v <= last; v += step {
		bits |= 1 << v
	}
	return bits, star, nil
}

func (f field) value(text string) (int, error) {
	for i, w := range f.words {
		if strings.EqualFold(w, text) {
			return f.least + i, nil
		}
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || int(n) < f.least || int(n) > f.most {
		return 0, fmt.Errorf("%q is not between %d and %d", text, f.least, f.most)
	}
	return int(n), nil
}

// horizon is longer than the longest time without a 29th of February.
const horizon = 9 // years

// Next is the first time after t, in the zone of t. It is zero if there is none.
func (s Schedule) Next(t time.Time) time.Time {
	if s.every > 0 {
		return t.Add(s.every).Truncate(time.Second)
	}
	t = t.Truncate(time.Minute).Add(time.Minute)
	for end := t.Year() + horizon; t.Year() < end; {
		switch {
		case s.month&(1<<t.Month()) == 0:
			t = midnight(t.Year(), t.Month()+1, 1, t.Location())
		case !s.onDay(t):
			t = midnight(t.Year(), t.Month(), t.Day()+1, t.Location())
		case s.hour&(1<<t.Hour()) == 0:
			t = t.Add(time.Duration(60-t.Minute()) * time.Minute)
		case s.minute&(1<<t.Minute()) == 0:
			t = t.Add(time.Minute)
		default:
			return t
		}
	}
	return time.Time{}
}

func (s Schedule) onDay(t time.Time) bool {
	day, weekday := s.day&(1<<t.Day()) != 0, s.weekday&(1<<t.Weekday()) != 0
	if s.anyDay || s.anyWeekday {
		return day && weekday
	}
	return day || weekday
}

// midnight is the first time of a day. Some days begin at one o'clock.
func midnight(year int, month time.Month, day int, zone *time.Location) time.Time {
	t := time.Date(year, month, day, 0, 0, 0, 0, zone)
	if t.Hour() > 12 {
		t = t.Add(time.Duration(24-t.Hour()) * time.Hour)
	}
	return t
}

// NextFrom is the first time after now, where the schedule began, or came last, at
// since.
func (s Schedule) NextFrom(since, now time.Time) time.Time {
	if s.every == 0 || now.Before(since) {
		return s.Next(now)
	}
	return since.Add((now.Sub(since)/s.every + 1) * s.every)
}

// Last is the latest time that is after one time and not after another, and
// whether there is one. However long it is between the two, it does not take long.
func (s Schedule) Last(after, now time.Time) (time.Time, bool) {
	if s.every > 0 {
		n := now.Sub(after) / s.every
		return after.Add(n * s.every), n > 0
	}
	for _, window := range []time.Duration{time.Hour, 24 * time.Hour, 32 * 24 * time.Hour, 366 * 24 * time.Hour, horizon * 366 * 24 * time.Hour} {
		from := now.Add(-window)
		if from.Before(after) {
			from = after
		}
		last := time.Time{}
		for t := s.Next(from); !t.IsZero() && !t.After(now); t = s.Next(t) {
			last = t
		}
		if !last.IsZero() || from.Equal(after) {
			return last, !last.IsZero()
		}
	}
	return time.Time{}, false
}
