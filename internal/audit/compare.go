package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"fairlead.run/internal/pod"
)

// Finding is one thing that does not agree with the records.
type Finding struct {
	Thing   pod.Held
	Problem Problem
	Pod     *pod.Record // whose it is; nil if nobody's
	Means   string
	Action  string // what a repair does, or what helps instead
	Repair  bool   // whether a repair can do something
	rank    int
}

// Code is the finding's code.
func (f *Finding) Code() Code { return CodeOf(f.Thing.Kind, f.Problem) }

// views are what was seen of a node, in this order: records, things, records,
// things, records. Everything is recorded before it is made and unmade before
// its record goes, so this order tells a leftover from what an operation has
// in its hands. What was there while no record had it, and still is there
// afterwards, no operation will touch again: ids are used once.
type views struct {
	records [3][]*pod.Record
	held    [2][]pod.Held
}

// compare finds what does not agree. It touches nothing.
func compare(v views, wants func(*pod.Record) []pod.Held) []Finding {
	known := v.known()
	first, last := byKey(v.held[0]), byKey(v.held[1])
	var out []Finding
	for _, h := range v.held[1] {
		if _, before := first[h.Key()]; before {
			out = append(out, v.judge(h, known)...)
		}
	}
	wanted := make([]index, len(v.records))
	for i, list := range v.records {
		wanted[i] = index{}
		for _, r := range list {
			for _, h := range wants(r) {
				wanted[i][h.Key()] = h
			}
		}
	}
	for key, h := range wanted[2] {
		if first.has(key) || last.has(key) || !wanted[0].has(key) || !wanted[1].has(key) {
			continue
		}
		out = append(out, describe(h, Missing, known[h.Owner])...)
	}
	slices.SortFunc(out, func(a, b Finding) int { return compareFindings(&a, &b) })
	return out
}

func compareFindings(a, b *Finding) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.Thing.Name, b.Thing.Name))
}

// judge says what is wrong with something that is there, if anything is.
func (v views) judge(h pod.Held, known map[string]*pod.Record) []Finding {
	r := known[h.Owner]
	switch {
	case h.Fault != "" && (h.Owner == "" || r != nil):
		return describe(h, Faulty, r)
	case h.Owner == "" || r == nil:
		found := describe(h, Leftover, nil)
		if b := v.unreadable(); b != nil && h.Owner != "" {
			// A record that cannot be read does not tell its containers.
			for i := range found {
				found[i].Repair, found[i].Action = false, fmt.Sprintf("remove pod %s first: its record cannot be read, and this may be of one of its containers", b.ID.Short())
			}
		}
		return found
	case h.Owner == string(r.ID) && ofRunningPod[h.Kind] && v.stopped(r.ID):
		return describe(h, Leftover, r)
	}
	return nil
}

// ofRunningPod are the kinds that a pod gives back when it stops.
var ofRunningPod = map[pod.Kind]bool{
	pod.KindNamespace: true, pod.KindMount: true, pod.KindAttachment: true, pod.KindResult: true, pod.KindLink: true,
	pod.KindAddress: true, pod.KindPort: true, pod.KindElement: true,
}

// describe is the finding, or none where there is no rule for it.
func describe(h pod.Held, p Problem, r *pod.Record) []Finding {
	rule, rank, ok := ruleOf(h.Kind, p)
	if !ok {
		return nil
	}
	f := Finding{Thing: h, Problem: p, Pod: r, Means: rule.Means, Action: rule.Advice, rank: rank}
	var c *pod.Container
	if r != nil {
		c = r.Container(pod.ContainerID(h.Owner))
	}
	if rule.Repair != "" && (rule.can == nil || r == nil || rule.can(r, c)) {
		f.Repair, f.Action = true, rule.Repair
	}
	if h.Fault != "" {
		f.Means += ": " + h.Fault
	}
	return []Finding{f}
}

// known are the records by the ids of pods and containers, of whoever was on
// record at any time; the latest record counts.
func (v views) known() map[string]*pod.Record {
	out := map[string]*pod.Record{}
	for _, list := range v.records {
		for _, r := range list {
			out[string(r.ID)] = r
			for _, c := range r.Containers {
				out[string(c.ID)] = r
			}
		}
	}
	return out
}

// stopped says whether the pod was stopped at all times.
func (v views) stopped(id pod.ID) bool {
	for _, list := range v.records {
		i := slices.IndexFunc(list, func(r *pod.Record) bool { return r.ID == id })
		if i < 0 || list[i].State != pod.Exited {
			return false
		}
	}
	return true
}

// unreadable is a record that cannot be read, or nil.
func (v views) unreadable() *pod.Record {
	for _, list := range v.records {
		if i := slices.IndexFunc(list, Unreadable); i >= 0 {
			return list[i]
		}
	}
	return nil
}

// Unreadable says whether a record stands for one that could not be read.
func Unreadable(r *pod.Record) bool { return r.Version == 0 }

// index is a set of things by key.
type index map[pod.Held]pod.Held

func (x index) has(key pod.Held) bool { _, ok := x[key]; return ok }

func byKey(list []pod.Held) index {
	out := make(index, len(list))
	for _, h := range list {
		out[h.Key()] = h
	}
	return out
}
