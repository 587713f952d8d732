package v1

import "time"

// ConsoleSocket is the element of StartRequest.Command and ExecRequest.Command
// that the monitor replaces by the path of the socket on which the runtime
// shall deliver the terminal.
const ConsoleSocket = "{console-socket}"

// Bounds and defaults of requests.
const (
	DefaultTimeout    = time.Minute // of a runtime command
	DefaultLogMaxLine = 16 << 10    // bytes of one log line before it is split
	MinLogMaxLine     = 256
	MaxLogMaxLine     = 24 << 10
	MaxID             = 128     // bytes of an id: letters, digits, '_', '.', '-'
	MinMark           = 1 << 52 // of ExecRequest.Mark, which is less than twice as large
)

// WindowSize is the size of a terminal in characters. Zero means unknown.
type WindowSize struct {
	Width  uint16 `json:"width,omitempty"`
	Height uint16 `json:"height,omitempty"`
}

// StartRequest asks for a container: the monitor makes its input and output,
// runs the command of the OCI runtime and adopts the process that it leaves.
//
// Larger than other structs: it is a message, and each field stands alone.
type StartRequest struct {
	ID string `json:"id"`
	// Command is the runtime's, detaching: argv[0] is an absolute path.
	Command []string `json:"command"`
	// Sealed runs the command's program from a copy in memory that cannot be
	// changed. crun then makes none itself.
	Sealed bool `json:"sealed,omitempty"`
	// Env is the whole environment of the command, "NAME=value".
	Env []string `json:"env,omitempty"`
	// PIDFile is where the command writes the pid of the container's process,
	// as seen from the monitor's PID namespace. Removed before the command.
	PIDFile string `json:"pidFile"`
	// RuntimeLog, if set, is the file that the command itself was told to log
	// to; its end becomes part of the error of a failed start.
	RuntimeLog string `json:"runtimeLog,omitempty"`
	// Cgroup is where the command will put the container, from the top of the
	// hierarchy that accounts for memory. Without it, a container that ends at
	// once may be killed for want of memory unnoticed.
	Cgroup string `json:"cgroup,omitempty"`
	// Sandbox is the id of the container in whose process this one runs, if any:
	// the kernel kills the two together when memory runs out.
	Sandbox string `json:"sandbox,omitempty"`
	// IODir is made if it is missing, and holds the FIFOs.
	IODir string `json:"ioDir"`
	// Label, if set, is the SELinux label of the FIFOs.
	Label string `json:"label,omitempty"`
	// Owner is whom the FIFOs belong to, so that the process can open them again
	// by path. The zero value is root.
	Owner Owner `json:"owner,omitzero"`
	// LogPath is the log in the CRI's format. Empty: output is discarded.
	LogPath string `json:"logPath,omitempty"`
	// LogDir is the folder out of which no link on the way to LogPath leads. Empty:
	// the folder of LogPath.
	LogDir string `json:"logDir,omitempty"`
	// LogMaxLine is the length in bytes at which a line is split; zero means
	// DefaultLogMaxLine.
	LogMaxLine int `json:"logMaxLine,omitempty"`
	// Stdin asks for an input that stays open while nobody is attached; without
	// it the input is /dev/null. StdinOnce closes it after the first attached
	// caller that may have written has gone.
	Stdin     bool `json:"stdin,omitempty"`
	StdinOnce bool `json:"stdinOnce,omitempty"`
	// TTY asks for a terminal; Command then holds the element ConsoleSocket.
	TTY  bool       `json:"tty,omitempty"`
	Size WindowSize `json:"size,omitzero"`
	// Timeout bounds the command; zero means DefaultTimeout.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Keep asks for what OpKeep gives.
	Keep bool `json:"keep,omitempty"`
	// Token tells a request that is sent again because its answer was lost from
	// a new one: it gets the answer even if the process has ended meanwhile.
	// The client sets it.
	Token string `json:"token,omitempty"`
}

// ExecRequest asks for one more process in a container. The caller keeps its
// input and output; the monitor passes the descriptors on and closes them.
type ExecRequest struct {
	ID         string        `json:"id"`
	Command    []string      `json:"command"`
	Sealed     bool          `json:"sealed,omitempty"`
	Env        []string      `json:"env,omitempty"`
	PIDFile    string        `json:"pidFile"`
	RuntimeLog string        `json:"runtimeLog,omitempty"`
	TTY        bool          `json:"tty,omitempty"`
	Size       WindowSize    `json:"size,omitzero"`
	Timeout    time.Duration `json:"timeout,omitempty"`
	// Stdio says which of standard input, output and error come as descriptors,
	// in this order. The others are /dev/null. All false with TTY.
	Stdio [3]bool `json:"stdio"`
	// Mark, unless it is 0, is the hard limit RLIMIT_RTTIME that the command gives
	// the process, and that no other has. What the process starts inherits it, so
	// that OpSignal with All finds all of that.
	Mark uint64 `json:"mark,omitempty"`
	// MarkAnywhere says that the command leaves a process that stands in for the one
	// with the mark, which is in another cgroup.
	MarkAnywhere bool `json:"markAnywhere,omitempty"`
	// OOMScoreAdj is that of the command, and so of the process unless the command sets
	// another one, which not all do. Without it, it is the one that the monitor began with.
	OOMScoreAdj *int `json:"oomScoreAdj,omitempty"`
	// Token is as in StartRequest.
	Token string `json:"token,omitempty"`
}

// Started describes a process that runs, or ran.
type Started struct {
	ID  string `json:"id"`
	PID int    `json:"pid"`
	// StartTime is field 22 of /proc/PID/stat; with PID it names one process.
	// Zero if the process was gone before it could be read.
	StartTime uint64    `json:"startTime"`
	StartedAt time.Time `json:"startedAt"`
	// Kept names the descriptors that come with the answer, in their order.
	Kept []Kept `json:"kept,omitempty"`
}

// Owner is a user and a group of the host.
type Owner struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// Kept is something of a container's that a caller keeps open, so that it is
// still there if both of the monitor's processes die: what the container has
// written, and how and when it ended.
type Kept string

// What can be kept.
const (
	KeptProcess  Kept = "process"  // a pidfd
	KeptStdout   Kept = "stdout"   // the read end of a FIFO
	KeptStderr   Kept = "stderr"   // the same
	KeptTerminal Kept = "terminal" // the master end; see OpGive
)

// ProcessKind says what a process is to the monitor.
type ProcessKind string

// The kinds of processes.
const (
	KindContainer ProcessKind = "container" // OpStart
	KindExec      ProcessKind = "exec"      // OpExec
)

// State is where a process stands. Starting -> Running -> Exited; Draining is
// the short time in which the process has ended and its last output is copied.
type State string

// The states.
const (
	Starting State = "starting"
	Running  State = "running"
	Draining State = "draining"
	Exited   State = "exited"
)

// LostCode is the Code of an Exit whose real code nobody saw.
const LostCode = -1

// Exit is how a process ended.
type Exit struct {
	// Seq grows with each exit that the monitor publishes, over all its
	// restarts in one boot.
	Seq  uint64      `json:"seq"`
	ID   string      `json:"id"`
	Kind ProcessKind `json:"kind"`
	PID  int         `json:"pid"`
	// Code is the exit code, 128+Signal after a signal, LostCode when Lost.
	Code   int `json:"code"`
	Signal int `json:"signal,omitempty"`
	// FinishedAt is when the first saw it who watched: a process of the
	// monitor's, or a caller that keeps it open (OpKeep).
	FinishedAt time.Time `json:"finishedAt"`
	// Found says that nobody watched: it ended before FinishedAt, when it was
	// found to have.
	Found bool `json:"found,omitempty"`
	// OOMKilled says that the kernel killed a process of the container for
	// memory. Always false for an exec.
	OOMKilled bool `json:"oomKilled,omitempty"`
	// Lost says that the process ended while both halves of the monitor were
	// dead, so that its code cannot be known.
	Lost bool `json:"lost,omitempty"`
}

// Process is one entry of OpList.
type Process struct {
	Started
	Kind    ProcessKind `json:"kind"`
	State   State       `json:"state"`
	TTY     bool        `json:"tty,omitempty"`
	LogPath string      `json:"logPath,omitempty"`
	// LogError says why output is not reaching the log at the moment. It waits
	// in the FIFO and is written once the cause is gone.
	LogError string `json:"logError,omitempty"`
	// NoTerminal says that the terminal went with a monitor of which both
	// processes died. Who has kept it can give it back (OpGive).
	NoTerminal bool  `json:"noTerminal,omitempty"`
	Exit       *Exit `json:"exit,omitempty"`
}
