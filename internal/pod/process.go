package pod

import (
	"context"
	"os"
)

// StartRequest is what a handler starts a container's process from.
type StartRequest struct {
	ID        string // of the container, or of the pod for its own process
	Bundle    Bundle
	LogPath   string // absolute; empty discards the output
	LogDir    string // of the pod; no link below it leads the log out of it
	Stdin     bool
	StdinOnce bool
	TTY       bool
	// Restore is the folder of what was captured of a process, which then goes on;
	// empty begins the process anew. The folder is deleted once it goes on.
	Restore string
}

// ExecRequest is what a handler runs one more process from.
type ExecRequest struct {
	Container *Container
	Command   []string
	TTY       bool
	// Stdio are the process's own ends of stdin, stdout and stderr; nil means
	// /dev/null. With TTY they are not used: Exec.TTY is.
	Stdio [3]*os.File
}

// Exec is a process that a handler started in a running container.
//
// It and Attachment are here and not with the core, which asks for them,
// because the core and its drivers both name them in methods and may not
// import each other.
type Exec interface {
	// Wait blocks until the process ended.
	Wait(ctx context.Context) (Exit, error)
	// Kill ends the process and everything it started.
	Kill(ctx context.Context) error
	// TTY is the terminal's master end, or nil. The caller closes it.
	TTY() *os.File
	// Close forgets the process.
	Close(ctx context.Context) error
}

// Attachment is a client's hold on a container's streams.
type Attachment interface {
	// Stdin is where input goes, or nil. The caller closes it.
	Stdin() *os.File
	// Done is closed when the container ended or the client was too slow.
	Done() <-chan struct{}
	Close() error
}
