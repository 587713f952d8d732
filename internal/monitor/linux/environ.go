package linux

import (
	"bytes"
	"os"
	"strconv"
)

// OldestWith returns the oldest living process that has the entry NAME=VALUE in
// the environment that its program was started with.
func OldestWith(entry string) (Stat, bool) {
	all, err := Processes()
	if err != nil {
		return Stat{}, false
	}
	var oldest Stat
	for _, s := range all {
		if s.State == 'Z' || !hasEntry(s.PID, entry) {
			continue
		}
		younger := s.Start > oldest.Start || s.Start == oldest.Start && s.PID > oldest.PID
		if oldest.PID == 0 || !younger {
			oldest = s
		}
	}
	return oldest, oldest.PID != 0
}

func hasEntry(pid int, entry string) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false // it is ending, or is the kernel's
	}
	for e := range bytes.SplitSeq(data, []byte{0}) {
		if string(e) == entry {
			return true
		}
	}
	return false
}
