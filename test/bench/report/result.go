package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"time"
)

// Version is that of the JSON format.
const Version = 1

// Result is one run of the benchmark.
type Result struct {
	Version  int               `json:"version"`
	Date     time.Time         `json:"date"`
	Short    bool              `json:"short"` // a smoke run, whose numbers mean little
	Took     string            `json:"took"`
	Machine  Machine           `json:"machine"`
	Programs map[string]string `json:"programs"` // name to version
	Series   []Series          `json:"series"`
	Trace    []Stage           `json:"trace,omitempty"`
	Profile  []Profile         `json:"profile,omitempty"`
}

// Calm is the load for each processor above which a machine is not at rest.
const Calm = 0.5

// Machine is where the benchmark ran.
type Machine struct {
	CPU     string `json:"cpu"`
	CPUs    int    `json:"cpus"`
	MemMB   int    `json:"memory_mb"`
	Kernel  string `json:"kernel"`
	OS      string `json:"os"`
	Cgroups string `json:"cgroups"`
	Disk    string `json:"disk"`
	// Load is what else ran when the benchmark began: the average of a minute.
	Load float64 `json:"load"`
}

// Key names a series: what, under which load, of whom.
type Key struct {
	Metric   string `json:"metric"`   // "RunPodSandbox"
	Scenario string `json:"scenario"` // "serial"
	Variant  string `json:"variant"`  // "fairlead, crun, built-in"
}

// Series are the measurements of one thing.
type Series struct {
	Key
	Unit   string    `json:"unit"`
	Count  int       `json:"count"`
	P50    float64   `json:"p50"`
	P95    float64   `json:"p95"`
	Rounds []float64 `json:"rounds,omitempty"` // p50 of each round
}

// Stage is a part of an operation of Fairlead's and how long it took.
type Stage struct {
	Variant   string  `json:"variant"`
	Operation string  `json:"operation"`
	Stage     string  `json:"stage"`
	P50       float64 `json:"p50_ms"`
	Count     int     `json:"count"`
}

// Quantile interpolates between the two nearest values; q is 0 to 1.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(values))
	at := q * float64(len(v)-1)
	low := int(at)
	if low+1 == len(v) {
		return v[low]
	}
	return v[low] + (at-float64(low))*(v[low+1]-v[low])
}

// samples are the measurements of one key.
type samples struct {
	unit   string
	all    []float64
	rounds []float64
}

// Collector gathers measurements of several rounds. Its zero value is empty.
type Collector struct {
	byKey map[Key]*samples
	order []Key
}

// Add takes what one round has measured for a key.
func (c *Collector) Add(k Key, unit string, values ...float64) {
	if len(values) == 0 {
		return
	}
	s := c.byKey[k]
	if s == nil {
		if c.byKey == nil {
			c.byKey = map[Key]*samples{}
		}
		s = &samples{unit: unit}
		c.byKey[k] = s
		c.order = append(c.order, k)
	}
	s.all = append(s.all, values...)
	s.rounds = append(s.rounds, Quantile(values, 0.5))
}

// Series are the results, in the order in which their keys came.
func (c *Collector) Series() []Series {
	var out []Series
	for _, k := range c.order {
		s := c.byKey[k]
		out = append(out, Series{
			Key: k, Unit: s.unit, Count: len(s.all),
			P50: Quantile(s.all, 0.5), P95: Quantile(s.all, 0.95), Rounds: s.rounds,
		})
	}
	return out
}

// Find is the series of a key.
func (r *Result) Find(k Key) (Series, bool) {
	i := slices.IndexFunc(r.Series, func(s Series) bool { return s.Key == k })
	if i < 0 {
		return Series{}, false
	}
	return r.Series[i], true
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// Read reads a JSON file.
func Read(path string) (*Result, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the result of a benchmark: %w", err)
	}
	var r Result
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("read the result of a benchmark %s: %w", path, err)
	}
	if r.Version != Version {
		return nil, fmt.Errorf("read the result of a benchmark %s: it has version %d and this program knows %d: run the benchmark again", path, r.Version, Version)
	}
	return &r, nil
}

// Write writes a JSON file.
func (r *Result) Write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write the result of the benchmark: %w", err)
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
