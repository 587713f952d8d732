package runtimeclass

import (
	"fmt"
	"strings"
	"testing"

	nodev1 "k8s.io/api/node/v1"
)

// plainly is the distance by the whole table.
func plainly(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

func TestNearest(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, test := range []struct {
		word, nearest string
		candidates    []string
	}{
		{"gvisr", "gvisor", []string{"gvisor", "kata"}},
		{"gvisor", "givsor", []string{"kata", "givsor"}},
		{"kata", "cata", []string{"cata", "data"}},
		{"kata", "katana", []string{"data-1", "katana"}},
		{"runc", "", []string{"gvisor", "kata"}},
		{"", "a", []string{"a", "bb"}},
		{long, long[1:], []string{"b" + long[:40], long[1:]}},
		{long + "a", "", []string{long}},
		{"gvisor", "", nil},
	} {
		if got := nearest(test.word, test.candidates); got != test.nearest {
			t.Errorf("%q among %q: %q, and not %q", test.word, test.candidates, got, test.nearest)
		}
	}
}

// The distance is that of the whole table, or both are above the bound.
func FuzzDistance(f *testing.F) {
	f.Add("gvisor", "givsor", 3)
	f.Add("", "a", 0)
	f.Add(strings.Repeat("ab", 32), strings.Repeat("ba", 40), 22)
	f.Add(strings.Repeat("a", 64), strings.Repeat("a", 63)+"b", 22)
	f.Fuzz(func(t *testing.T, a, b string, most int) {
		if len(a) > longestSlip || len(b) > 253 {
			return
		}
		got, want := slipOf(a).distance(b, most), plainly(a, b)
		if got != want && (got <= most || want <= most) {
			t.Errorf("%q and %q, up to %d: %d, and not %d", a, b, most, got, want)
		}
	})
}

// BenchmarkMissing looks for a name among 5,000 of its length, and makes the sentence.
func BenchmarkMissing(b *testing.B) {
	for name, made := range map[string]func(i int) string{
		"alike": func(i int) string {
			return fmt.Sprintf("team-%04d-sandboxed-with-gvisor-and-a-name-that-is-rather-long", i)
		},
		"others": func(i int) string { return strings.Repeat(fmt.Sprintf("%04d-", i), 12) },
	} {
		var names []string
		for i := range 5000 {
			names = append(names, made(i))
		}
		all := listed(names)
		b.Run(name, func(b *testing.B) {
			for range b.N {
				if _, err := Find(all, "team-xxxx-sandboxed-with-gvisor-and-a-name-that-is-rather-long"); err == nil || err.Error() == "" {
					b.Fatal("found")
				}
			}
		})
	}
}

// listed is classes of which only the names are known.
type listed []string

// Get finds none.
func (l listed) Get(string) *nodev1.RuntimeClass { return nil }

// Names is all of them.
func (l listed) Names() []string { return l }
