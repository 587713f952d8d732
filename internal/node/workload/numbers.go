package workload

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Numbers is a set of numbers from 0, written as "0-3,5".
type Numbers struct{ spans []span }

type span struct{ first, last int }

// find is the place of the first span that ends at n or later.
func (s Numbers) find(n int) int {
	i, _ := slices.BinarySearchFunc(s.spans, n, func(p span, n int) int { return p.last - n })
	return i
}

// Has says whether n is in the set.
func (s Numbers) Has(n int) bool {
	i := s.find(n)
	return i < len(s.spans) && s.spans[i].first <= n
}

// Len is how many numbers the set has.
func (s Numbers) Len() int {
	n := 0
	for _, p := range s.spans {
		n += p.last - p.first + 1
	}
	return n
}

// With is the set with one more number. The set itself stays as it is.
func (s Numbers) With(n int) Numbers {
	if s.Has(n) {
		return s
	}
	i := s.find(n)
	spans := slices.Insert(slices.Clone(s.spans), i, span{n, n})
	if i+1 < len(spans) && spans[i+1].first == n+1 {
		spans[i].last = spans[i+1].last
		spans = slices.Delete(spans, i+1, i+2)
	}
	if i > 0 && spans[i-1].last == n-1 {
		spans[i-1].last = spans[i].last
		spans = slices.Delete(spans, i, i+1)
	}
	return Numbers{spans}
}

// MarshalText writes the set.
func (s Numbers) MarshalText() ([]byte, error) {
	var parts []string
	for _, p := range s.spans {
		part := strconv.Itoa(p.first)
		if p.last > p.first {
			part += "-" + strconv.Itoa(p.last)
		}
		parts = append(parts, part)
	}
	return []byte(strings.Join(parts, ",")), nil
}

// UnmarshalText reads what MarshalText wrote.
func (s *Numbers) UnmarshalText(text []byte) error {
	s.spans = nil
	if len(text) == 0 {
		return nil
	}
	for part := range strings.SplitSeq(string(text), ",") {
		from, to, isSpan := strings.Cut(part, "-")
		if !isSpan {
			to = from
		}
		first, err := strconv.ParseUint(from, 10, 31)
		last, err2 := strconv.ParseUint(to, 10, 31)
		if err != nil || err2 != nil || last < first || (len(s.spans) > 0 && int(first) <= s.spans[len(s.spans)-1].last+1) {
			return fmt.Errorf("%.80q is not a set of numbers such as 0-3,5", text)
		}
		s.spans = append(s.spans, span{int(first), int(last)})
	}
	return nil
}
