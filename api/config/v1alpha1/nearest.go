package v1alpha1

import "slices"

// Nearest is the name in known that somebody who wrote name has most likely
// meant, or "" if none is near. It is what "did you mean" is made from.
func Nearest(name string, known []string) string {
	best, found := len(name)/3+2, ""
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := distance(name, k, best); d < best {
			best, found = d, k
		}
	}
	return found
}

// distance counts the characters to insert, delete or replace to get from a to
// b. It is given up, and limit returned, when the lengths alone differ by that.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
