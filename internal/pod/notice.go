package pod

import "time"

// NoticeKind is what happened to a container or a pod, as far as others are told.
type NoticeKind string

// The kinds of notices, in the order in which they come for one container.
const (
	NoticeCreated NoticeKind = "Created"
	NoticeStarted NoticeKind = "Started"
	NoticeStopped NoticeKind = "Stopped"
	NoticeDeleted NoticeKind = "Deleted"
)

// Notice says that something happened. Record is the pod as it was right after
// that, or right before if the pod itself was deleted; it must not be modified.
type Notice struct {
	Kind   NoticeKind
	ID     string // of the container, or of the pod
	At     time.Time
	Record *Record
}
