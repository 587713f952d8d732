// Package release compares the versions of OCI runtimes, and says of which flaws a
// version is known.
//
// It goes by the number that a program prints. A distribution may have mended a
// flaw and kept the number, so that what is said here is a reason to look, and
// nothing is refused for it.
package release

import (
	"math"
	"strconv"
	"strings"
)

// version is a number such as "1.4.0-rc.3+ds1".
type version struct {
	parts [3]int
	rc    int // of a release candidate; the release itself comes after all of them
}

// Valid says whether a version begins with a number.
func Valid(s string) bool {
	_, ok := parse(s)
	return ok
}

// Older says whether a is a version before b. What follows three numbers does not
// count, apart from release candidates; numbers that are missing are 0. A version
// without any number is older than all others.
func Older(a, b string) bool {
	x, known := parse(a)
	y, comparable := parse(b)
	if !known || !comparable {
		return comparable
	}
	return x.before(y)
}

func (v version) before(w version) bool {
	for i := range v.parts {
		if v.parts[i] != w.parts[i] {
			return v.parts[i] < w.parts[i]
		}
	}
	return v.rc < w.rc
}

// branch is what gets releases of its own: "1.2" of "1.2.8".
func (v version) branch() [2]int { return [2]int{v.parts[0], v.parts[1]} }

// parse also takes what gVisor calls its releases, "release-20260905.0".
func parse(s string) (v version, ok bool) {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "release-"), "v")
	for i := range v.parts {
		digits := digitsOf(s)
		n, err := strconv.Atoi(digits)
		if err != nil {
			return version{}, false
		}
		v.parts[i], s = n, s[len(digits):]
		if !strings.HasPrefix(s, ".") || digitsOf(s[1:]) == "" {
			break
		}
		s = s[1:]
	}
	v.rc = math.MaxInt
	if rc, is := strings.CutPrefix(strings.TrimLeft(s, "-~"), "rc"); is {
		// "rc" alone comes before "rc1".
		v.rc, _ = strconv.Atoi(digitsOf(strings.TrimPrefix(rc, ".")))
	}
	return v, true
}

func digitsOf(s string) string {
	return s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
}
