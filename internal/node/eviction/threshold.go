package eviction

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"fairlead.run/internal/node/capacity"
)

// Signal is something that a node can run short of.
type Signal string

// The signals. nodefs is where pods' folders and logs are, imagefs where images
// are.
const (
	MemoryAvailable      Signal = "memory.available"
	AllocatableMemory    Signal = "allocatableMemory.available" // of what all pods may have
	NodefsAvailable      Signal = "nodefs.available"
	NodefsInodesFree     Signal = "nodefs.inodesFree"
	ImagefsAvailable     Signal = "imagefs.available"
	ImagefsInodesFree    Signal = "imagefs.inodesFree"
	PIDAvailable         Signal = "pid.available"
	containerfsAvailable Signal = "containerfs.available"
	containerfsInodes    Signal = "containerfs.inodesFree"
)

// signals are in the order in which they are acted upon: memory first, as it is
// gone the fastest.
var signals = []Signal{
	MemoryAvailable, AllocatableMemory, NodefsAvailable, NodefsInodesFree, ImagefsAvailable, ImagefsInodesFree, PIDAvailable,
}

// starved is the resource of which a pod has too much where a signal is short.
var starved = map[Signal]corev1.ResourceName{
	MemoryAvailable: corev1.ResourceMemory, AllocatableMemory: corev1.ResourceMemory,
	NodefsAvailable: corev1.ResourceEphemeralStorage, ImagefsAvailable: corev1.ResourceEphemeralStorage,
	NodefsInodesFree: "inodes", ImagefsInodesFree: "inodes",
	PIDAvailable: "pids",
}

var condition = map[Signal]corev1.NodeConditionType{
	MemoryAvailable: corev1.NodeMemoryPressure, AllocatableMemory: corev1.NodeMemoryPressure,
	NodefsAvailable: corev1.NodeDiskPressure, ImagefsAvailable: corev1.NodeDiskPressure,
	NodefsInodesFree: corev1.NodeDiskPressure, ImagefsInodesFree: corev1.NodeDiskPressure,
	PIDAvailable: corev1.NodePIDPressure,
}

// Value is an amount, or a share of what there is.
type Value struct {
	Amount resource.Quantity
	Share  float64 // of 1; Amount counts if it is 0
}

// Of is the value where there is this much.
func (v Value) Of(capacity int64) int64 {
	if v.Share > 0 {
		return int64(v.Share * float64(capacity))
	}
	return v.Amount.Value()
}

// quantity is how the value is told.
func (v Value) quantity(capacity int64) string {
	if v.Share > 0 {
		return resource.NewQuantity(v.Of(capacity), resource.BinarySI).String()
	}
	return v.Amount.String()
}

// Threshold is passed when less than its value is available.
type Threshold struct {
	Signal Signal
	Value  Value
	// Grace is for how long it may be passed before a pod is evicted; 0 is at once.
	Grace time.Duration
	// Reclaim is how much more than Value is to be available in the end.
	Reclaim Value
}

// Settings are what flags and files say.
type Settings struct {
	// Hard thresholds by signal, as "memory.available": "100Mi" or "10%". Nil is
	// DefaultHard; a map that is not nil takes the place of all of it.
	Hard           map[string]string
	Soft           map[string]string
	SoftGrace      map[string]string // for each of Soft, as "1m30s"
	MinimumReclaim map[string]string
}

// DefaultHard are the kubelet's thresholds.
var DefaultHard = map[string]string{
	string(MemoryAvailable):   "100Mi",
	string(NodefsAvailable):   "10%",
	string(NodefsInodesFree):  "5%",
	string(ImagefsAvailable):  "15%",
	string(ImagefsInodesFree): "5%",
}

// ParseList reads what a flag says: "memory.available<100Mi,nodefs.available<10%",
// and with "=" as operator "memory.available=1m30s".
func ParseList(text, operator string) (map[string]string, error) {
	out := map[string]string{}
	if strings.TrimSpace(text) == "" {
		return out, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		signal, value, ok := strings.Cut(strings.TrimSpace(part), operator)
		signal, value = strings.TrimSpace(signal), strings.TrimSpace(value)
		switch {
		case !ok || signal == "" || value == "":
			return nil, fmt.Errorf("%q is no eviction setting; write it as memory.available%sVALUE", part, operator)
		case out[signal] != "":
			return nil, fmt.Errorf("%s is set twice: %s and %s", signal, out[signal], value)
		}
		out[signal] = value
	}
	return out, nil
}

// Parse reads the thresholds, in the order in which they are acted upon. A hard
// threshold for memory also holds for what all pods may have together.
func (s Settings) Parse() ([]Threshold, error) {
	if s.Hard == nil {
		s.Hard = DefaultHard
	}
	var errs []error
	hard := parseValues("hard eviction threshold", s.Hard, &errs)
	soft := parseValues("soft eviction threshold", s.Soft, &errs)
	reclaim := parseValues("minimum reclaim", s.MinimumReclaim, &errs)
	grace := parseGraces(s.SoftGrace, &errs)
	var out []Threshold
	for _, signal := range signals {
		if v, ok := hard[signal]; ok {
			out = append(out, Threshold{Signal: signal, Value: v, Reclaim: reclaim[signal]})
		}
		if v, ok := soft[signal]; ok {
			out = append(out, Threshold{Signal: signal, Value: v, Reclaim: reclaim[signal], Grace: grace[signal]})
		}
		_, isSoft := s.Soft[string(signal)]
		_, hasGrace := s.SoftGrace[string(signal)]
		switch {
		case isSoft && !hasGrace:
			errs = append(errs, fmt.Errorf("soft eviction threshold %s has no grace period; set one", signal))
		case hasGrace && !isSoft:
			errs = append(errs, fmt.Errorf("grace period of %s is for a soft eviction threshold that is not set; set one", signal))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return withAllocatable(out), nil
}

func withAllocatable(list []Threshold) []Threshold {
	is := func(s Signal) func(Threshold) bool {
		return func(t Threshold) bool { return t.Signal == s && t.Grace == 0 }
	}
	i := slices.IndexFunc(list, is(MemoryAvailable))
	if i < 0 || slices.ContainsFunc(list, is(AllocatableMemory)) {
		return list
	}
	t := list[i]
	t.Signal = AllocatableMemory
	return slices.SortedStableFunc(slices.Values(append(list, t)), func(a, b Threshold) int {
		return slices.Index(signals, a.Signal) - slices.Index(signals, b.Signal)
	})
}

func known(signal string) error {
	switch s := Signal(signal); {
	case slices.Contains(signals, s):
		return nil
	case s == containerfsAvailable, s == containerfsInodes:
		return fmt.Errorf("%s cannot be set, as containers are either on nodefs or on imagefs; set that one", signal)
	}
	var all []string
	for _, s := range signals {
		all = append(all, string(s))
	}
	return fmt.Errorf("%q is no eviction signal; use one of %s", signal, strings.Join(all, ", "))
}

// parseValues leaves out what is switched off by 0% or 100%.
func parseValues(what string, list map[string]string, errs *[]error) map[Signal]Value {
	out := map[Signal]Value{}
	for _, signal := range slices.Sorted(maps.Keys(list)) {
		text := list[signal]
		v, err := parseValue(text)
		if unknown := known(signal); unknown != nil {
			err = unknown
		}
		switch {
		case err != nil:
			*errs = append(*errs, fmt.Errorf("%s: %w", what+" of "+signal, err))
		case text != "0%" && text != "100%":
			out[Signal(signal)] = v
		}
	}
	return out
}

func parseValue(text string) (Value, error) {
	if share, ok := strings.CutSuffix(text, "%"); ok {
		p, err := strconv.ParseFloat(share, 64)
		if err != nil || math.IsNaN(p) || p < 0 || p > 100 {
			return Value{}, fmt.Errorf("%q is no share; write it as 10%%, from 0%% to 100%%", text)
		}
		return Value{Share: p / 100}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return Value{}, fmt.Errorf("%q is no quantity; write it as 100Mi or 10%%", text)
	}
	if q.Sign() < 0 {
		return Value{}, fmt.Errorf("%s is less than nothing", text)
	}
	return Value{Amount: q}, nil
}

func parseGraces(list map[string]string, errs *[]error) map[Signal]time.Duration {
	out := map[Signal]time.Duration{}
	for _, signal := range slices.Sorted(maps.Keys(list)) {
		d, err := time.ParseDuration(list[signal])
		if err == nil && d <= 0 {
			err = fmt.Errorf("%s is no time; for none set a hard threshold", list[signal])
		}
		if unknown := known(signal); unknown != nil {
			err = unknown
		}
		if err != nil {
			*errs = append(*errs, fmt.Errorf("grace period of %s: %w", signal, err))
			continue
		}
		out[Signal(signal)] = d
	}
	return out
}

// Withheld is what pods are not promised, because eviction begins before it is
// given to them.
func Withheld(list []Threshold, m capacity.Machine) corev1.ResourceList {
	out := corev1.ResourceList{}
	for _, t := range list {
		if t.Grace > 0 {
			continue
		}
		switch t.Signal {
		case MemoryAvailable:
			out[corev1.ResourceMemory] = *resource.NewQuantity(t.Value.Of(m.Memory), resource.BinarySI)
		case NodefsAvailable:
			out[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(t.Value.Of(m.Disk), resource.BinarySI)
		case PIDAvailable:
			out[capacity.PIDs] = *resource.NewQuantity(t.Value.Of(m.Pids), resource.DecimalSI)
		}
	}
	return out
}
