package limits

import (
	"errors"
	"strconv"
	"strings"
)

// covers says whether all numbers of a list like "0-3,7" are in another one.
func covers(all, some string) (bool, error) {
	have, err := spans(all)
	if err != nil {
		return false, err
	}
	want, err := spans(some)
	if err != nil {
		return false, err
	}
	for _, w := range want {
		for n := w[0]; n <= w[1]; n++ {
			if !contains(have, n) {
				return false, nil
			}
		}
	}
	return true, nil
}

func contains(list [][2]int, n int) bool {
	for _, s := range list {
		if n >= s[0] && n <= s[1] {
			return true
		}
	}
	return false
}

var errBackwards = errors.New("the range runs backwards")

func spans(list string) ([][2]int, error) {
	var out [][2]int
	for item := range strings.SplitSeq(list, ",") {
		from, to, is := strings.Cut(item, "-")
		if !is {
			to = from
		}
		a, errA := strconv.Atoi(from)
		b, errB := strconv.Atoi(to)
		if err := errors.Join(errA, errB); err != nil {
			return nil, err
		}
		if b < a {
			return nil, errBackwards
		}
		out = append(out, [2]int{a, b})
	}
	return out, nil
}
