package linux

// Family finds the living processes that belong to the one that pid and start
// name: itself, its descendants, and its session, whose number cannot be
// another's as long as one of them lives. same says whether a process is where
// the leader was, which tells a session from a later one of the same number
// once the leader has ended.
func Family(pid int, start uint64, same func(pid int) bool) ([]Stat, error) {
	all, err := Processes()
	if err != nil {
		return nil, err
	}
	member := map[int]bool{}
	lives := false
	for _, s := range all {
		if s.PID == pid && s.Start == start {
			member[s.PID], lives = true, true
		}
	}
	for _, s := range all {
		if s.Session == pid && s.Start >= start && (lives || same(s.PID)) {
			member[s.PID] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, s := range all {
			if !member[s.PID] && member[s.PPID] {
				member[s.PID], grown = true, true
			}
		}
	}
	var found []Stat
	for _, s := range all {
		if member[s.PID] && s.State != 'Z' {
			found = append(found, s)
		}
	}
	return found, nil
}
