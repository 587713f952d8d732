package pod

// Seen is one observation of a pod or of a container's process.
type Seen struct {
	Err     error // the observation failed; nothing else in Seen counts
	Alive   bool
	Process *RunningProcess // which process it is or was, where that is known
	Exit    *Exit           // how it ended, where that is known
}

// Action is what recovery does about one object.
type Action string

// The actions of recovery. None of them deletes what may be alive.
const (
	// Rollback undoes an operation that a crash cut off.
	Rollback Action = "rollback"
	// Adopt takes the record as it is.
	Adopt Action = "adopt"
	// MarkStarted completes a start that a crash cut off.
	MarkStarted Action = "mark started"
	// MarkExited records the end that was seen, or that it was not seen.
	MarkExited Action = "mark exited"
	// ReportUnknown keeps everything and says that it could not be observed.
	ReportUnknown Action = "report unknown"
)

// Recover decides what becomes of an object after a restart, from the state in
// its record and from what was seen of it.
func Recover(s State, seen Seen) Action {
	switch {
	case s == Creating:
		return Rollback
	case s == Exited:
		return Adopt
	case seen.Err != nil:
		return ReportUnknown
	case s == Created && (seen.Alive || seen.Exit != nil):
		return MarkStarted
	case s == Created:
		return Adopt
	case !seen.Alive:
		return MarkExited
	}
	return Adopt
}
