package v1

import "time"

// IDRequest names a process.
type IDRequest struct {
	ID string `json:"id"`
}

// EventsRequest asks for exits: those recorded with a Seq above After, in
// order, then each new one.
type EventsRequest struct {
	After uint64 `json:"after,omitempty"`
}

// ListRequest is the body of OpList, which may be left out. ID asks for that
// process alone; a monitor older than this field answers with all.
type ListRequest struct {
	ID string `json:"id,omitempty"`
}

// ProcessList is the answer to OpList.
type ProcessList struct {
	Processes []Process `json:"processes"`
}

// SignalRequest sends a signal to a process. All includes its descendants, every
// process of its session and, if it has a mark, whatever it has started, also
// after the process itself has ended.
type SignalRequest struct {
	ID     string `json:"id"`
	Signal int    `json:"signal"`
	All    bool   `json:"all,omitempty"`
}

// ResizeRequest sets the size of a container's terminal.
type ResizeRequest struct {
	ID   string     `json:"id"`
	Size WindowSize `json:"size"`
}

// AttachRequest asks for a container's input and output from now on. The write
// ends for output and error come as descriptors, in this order, as far as they
// are asked for.
type AttachRequest struct {
	ID     string `json:"id"`
	Stdin  bool   `json:"stdin,omitempty"`
	Stdout bool   `json:"stdout,omitempty"`
	Stderr bool   `json:"stderr,omitempty"`
}

// Attached is the answer to OpAttach. Stdin says that a descriptor to write
// to comes with it: the FIFO's write end, or the terminal.
type Attached struct {
	Stdin bool `json:"stdin,omitempty"`
	TTY   bool `json:"tty,omitempty"`
}

// AttachNote is what the two sides tell each other while attached. The caller
// sends StdinDone when its input has ended, with Wrote if it may have written.
// The monitor sends one note with Ended before it hangs up, and Error when the
// session did not end with the output.
type AttachNote struct {
	StdinDone bool   `json:"stdinDone,omitempty"`
	Wrote     bool   `json:"wrote,omitempty"`
	Ended     bool   `json:"ended,omitempty"`
	Error     *Error `json:"error,omitempty"`
}

// ShutdownRequest ends the monitor. While processes live it is refused, or
// with Force they are killed first.
type ShutdownRequest struct {
	Force bool `json:"force,omitempty"`
}

// Info describes the monitor itself.
type Info struct {
	Version   string    `json:"version"`  // of the program
	Protocol  int       `json:"protocol"` // Version of this package
	OuterPID  int       `json:"outerPid"`
	InnerPID  int       `json:"innerPid"`
	StartedAt time.Time `json:"startedAt"` // of the inner process
	Processes int       `json:"processes"` // known, with exited ones
	Live      int       `json:"live"`

	// Of the inner process. Heap is what was in use after the last collection of
	// garbage, in bytes.
	Goroutines int    `json:"goroutines,omitempty"`
	Heap       uint64 `json:"heap,omitempty"`
}
