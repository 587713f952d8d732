// Package handover is what the monitor's two processes tell each other, and
// what one of them tells its successor across an exec in place.
//
// The inner process gives the outer one a copy of every descriptor that could
// not be opened again by name; the outer one gives them all to each new inner
// process that says hello. Both also inherit the lock of the state directory:
// it is free only when neither lives.
package handover

// Op is what a message on the control connection says.
type Op string

// The messages. The connection closing is a message too: the other is dead.
const (
	Hello    Op = "hello"    // inner: send me what you hold
	Held     Op = "held"     // outer: here is the descriptor of Key
	Begin    Op = "begin"    // outer: that was all
	Hold     Op = "hold"     // inner: keep the descriptor of Key
	Drop     Op = "drop"     // inner: close the descriptor of Key
	Ready    Op = "ready"    // inner: I serve
	Upgrade  Op = "upgrade"  // both: exec the binary again
	Shutdown Op = "shutdown" // inner: do not start another one of me
)

// Message is one frame of the control connection.
type Message struct {
	Op  Op     `json:"op"`
	Key string `json:"key,omitempty"`
}

// MaxMessage bounds a Message in bytes of JSON.
const MaxMessage = 4096

// The keys of descriptors; those of a process end in its id.
const (
	KeyListener = "listener"
	KeyEnds     = "ends"    // what the kernel reports of the ends of processes
	KeyStdin    = "stdin/"  // the write end of its input FIFO
	KeyStdout   = "stdout/" // the read end of its output FIFO
	KeyStderr   = "stderr/" // the read end of its error FIFO
	KeyTTY      = "tty/"    // its terminal's master end
	KeyPidfd    = "pidfd/"  // itself, so that the kernel keeps its exit code
)
