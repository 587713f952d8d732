package crilog

import (
	"sync"
	"time"
)

// underWay are the operations on logs that the kernel has not yet returned
// from, of the whole process: a thread that hangs in one keeps the process from
// an exec, whosever log it is.
var underWay = struct {
	sync.Mutex
	next int
	logs map[int]string // path by number
}{logs: map[int]string{}}

// enter notes that an operation on the log at path begins; its number is for
// leave.
func enter(path string) int {
	underWay.Lock()
	defer underWay.Unlock()
	underWay.next++
	underWay.logs[underWay.next] = path
	return underWay.next
}

func leave(number int) {
	underWay.Lock()
	defer underWay.Unlock()
	delete(underWay.logs, number)
}

// lookAgain is how often Hanging looks.
const lookAgain = 20 * time.Millisecond

// Hanging waits until all operations on logs that are under way have ended, but
// no longer than limit, and returns the log of one that has not, or "".
func Hanging(limit time.Duration) string {
	underWay.Lock()
	last := underWay.next
	underWay.Unlock()
	for end := time.Now().Add(limit); ; time.Sleep(lookAgain) {
		if path := oldest(last); path == "" || time.Now().After(end) {
			return path
		}
	}
}

// oldest is the log of the first operation that began no later than the one
// with the number last and is still under way, or "".
func oldest(last int) (path string) {
	underWay.Lock()
	defer underWay.Unlock()
	for number, p := range underWay.logs {
		if number <= last {
			last, path = number, p
		}
	}
	return path
}
