package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// Change is a series that two results have.
type Change struct {
	Key
	Unit     string
	Old, New float64
	// Clear says that both runs had two rounds or more, that the rounds of one do
	// not overlap those of the other, and that the medians are more than a tenth
	// apart, so that chance is a poor explanation.
	Clear bool
}

// Ratio is new to old.
func (c Change) Ratio() float64 { return c.New / c.Old }

// Compare finds what two results have in common, the largest change first.
func Compare(before, after *Result) []Change {
	var out []Change
	for _, a := range after.Series {
		b, ok := before.Find(a.Key)
		if !ok || b.P50 <= 0 || a.P50 <= 0 {
			continue
		}
		c := Change{Key: a.Key, Unit: a.Unit, Old: b.P50, New: a.P50}
		c.Clear = apart(a.Rounds, b.Rounds) && math.Abs(math.Log(c.Ratio())) > math.Log(1.1)
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(x, y Change) int {
		a, b := math.Abs(math.Log(x.Ratio())), math.Abs(math.Log(y.Ratio()))
		switch {
		case a > b:
			return -1
		case a < b:
			return 1
		}
		return 0
	})
	return out
}

// apart says that all rounds of one run are above all of the other. A single
// round does not show how far rounds differ by chance.
func apart(a, b []float64) bool {
	if len(a) < 2 || len(b) < 2 {
		return false
	}
	return slices.Min(a) > slices.Max(b) || slices.Max(a) < slices.Min(b)
}

// WriteChanges says what changed from one result to the next.
func WriteChanges(w io.Writer, before, after *Result) error {
	if before.Machine.CPU != after.Machine.CPU || before.Machine.CPUs != after.Machine.CPUs || before.Machine.Kernel != after.Machine.Kernel {
		fmt.Fprintf(w, "The machines differ: %d x %s, Linux %s and %d x %s, Linux %s. Only ratios to containerd can be compared.\n\n",
			before.Machine.CPUs, before.Machine.CPU, before.Machine.Kernel, after.Machine.CPUs, after.Machine.CPU, after.Machine.Kernel)
	}
	if before.Short || after.Short {
		fmt.Fprintf(w, "One of the two is a short run, whose numbers mean little.\n\n")
	}
	changes := Compare(before, after)
	clearOnes := slices.DeleteFunc(slices.Clone(changes), func(c Change) bool { return !c.Clear })
	fmt.Fprintf(w, "%s against %s: %d of %d series changed clearly.\n\n",
		after.Date.Format("2006-01-02 15:04"), before.Date.Format("2006-01-02 15:04"), len(clearOnes), len(changes))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "METRIC\tSCENARIO\tVARIANT\tBEFORE\tAFTER\tUNIT\tRATIO")
	for _, c := range clearOnes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%.2f\n", c.Metric, c.Scenario, c.Variant, number(c.Old), number(c.New), c.Unit, c.Ratio())
	}
	fmt.Fprintln(t)
	fmt.Fprintln(t, "PROMISE\tBEFORE\tAFTER\tLIMIT\t")
	old := before.Promises()
	for _, p := range after.Promises() {
		was := "-"
		if i := slices.IndexFunc(old, func(q Promise) bool { return q.What == p.What && q.Unit == p.Unit }); i >= 0 {
			was = number(old[i].Got)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", p.What, was, number(p.Got), p.limit(), p.Verdict())
	}
	return t.Flush()
}

func (p Promise) limit() string {
	word := "at most "
	if p.AtLeast {
		word = "at least "
	}
	unit := p.Unit
	if unit != "" {
		unit = " " + unit
	}
	return word + number(p.Limit) + unit
}

// number shows three digits that count.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.1 || a == 0:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
