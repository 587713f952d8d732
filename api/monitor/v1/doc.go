// Package v1 is the wire between fairlead-monitor and its callers: the
// messages, their bounds and the rules of the conversation.
//
// A caller connects to StateDir/monitor/monitor.sock (SOCK_STREAM, mode 0600,
// only root is served) and sends one Request; the monitor answers with one
// Reply, except where an operation says otherwise. A frame is a length of four
// bytes, big endian, and that many bytes of JSON. Descriptors travel as
// SCM_RIGHTS with the first bytes of the frame that names them. A connection
// may carry several requests, one after the other.
//
// The package holds plain data. It opens nothing and imports nothing of
// Fairlead; the caller's side is internal/monitor/client.
package v1

import "encoding/json"

// Version is the version of this conversation. A monitor answers a request of
// another version with KindUnimplemented.
const Version = 1

// Bounds of a frame, in bytes of JSON. A longer frame ends the connection.
const (
	MaxRequest = 1 << 20
	MaxReply   = 16 << 20
)

// MaxDescriptors is how many descriptors may come with one frame.
const MaxDescriptors = 4

// Op names an operation.
type Op string

// The operations, with the type of the body, the descriptors that come with
// the request, and the answer.
const (
	OpInfo       Op = "info"        // -> Info
	OpStart      Op = "start"       // StartRequest -> Started, with Keep descriptors named by Kept
	OpExec       Op = "exec"        // ExecRequest, descriptors named by Stdio -> Started, the terminal as descriptor
	OpWait       Op = "wait"        // IDRequest -> Exit, once there is one
	OpEvents     Op = "events"      // EventsRequest -> Exit, Exit, ... until the caller hangs up
	OpList       Op = "list"        // ListRequest -> ProcessList
	OpSignal     Op = "signal"      // SignalRequest ->
	OpReopenLog  Op = "reopen-log"  // IDRequest ->
	OpResize     Op = "resize"      // ResizeRequest ->
	OpAttach     Op = "attach"      // AttachRequest, write ends -> Attached, input as descriptor; then AttachNote both ways
	OpCloseStdin Op = "close-stdin" // IDRequest ->
	OpKeep       Op = "keep"        // IDRequest -> Started, descriptors named by Kept
	OpGive       Op = "give"        // IDRequest, a terminal that was kept -> once what it holds is in the log
	OpGiveUp     Op = "give-up"     // IDRequest -> ; the OpStart or OpExec under way then fails
	OpForget     Op = "forget"      // IDRequest ->
	OpShutdown   Op = "shutdown"    // ShutdownRequest ->
)

// Request is what a caller sends.
type Request struct {
	Version int             `json:"version"`
	Op      Op              `json:"op"`
	Body    json.RawMessage `json:"body,omitempty"`
}

// Reply is what the monitor answers: a body, or an error.
type Reply struct {
	Error *Error          `json:"error,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

// Kind is the kind of an error; each stands for one value of internal/errdefs.
type Kind string

// The kinds of errors.
const (
	KindNotFound      Kind = "not-found"
	KindAlreadyExists Kind = "already-exists"
	KindInvalid       Kind = "invalid-argument"
	KindPrecondition  Kind = "precondition"
	KindUnavailable   Kind = "unavailable"
	KindExhausted     Kind = "exhausted"
	KindUnimplemented Kind = "unimplemented"
	KindDeadline      Kind = "deadline"
	KindInternal      Kind = "internal"
)

// Error says why a request failed.
type Error struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
}

// Error implements error.
func (e *Error) Error() string { return e.Message }
