package pod

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Trace is what a driver still has of a pod or a container beside the record:
// from traces a pod can be told whose record is lost, well enough to stop and
// remove it. Fields that the driver does not know are empty.
type Trace struct {
	Pod      ID
	Metadata Metadata // of the pod
	Labels   map[string]string
	Handler  string
	Made     time.Time // when the thing that tells was made, about
	// Durable says that it is kept on disk: it may be of an earlier boot, and is
	// no proof that the pod exists.
	Durable bool
	// Pause says that the pod has a process of its own.
	Pause bool
	// Container is the container that this is of; nil for the pod itself.
	Container *ContainerTrace
}

// ContainerTrace is the part of a Trace that is about a container.
type ContainerTrace struct {
	ID       ContainerID
	Metadata ContainerMetadata
	Labels   map[string]string
	Image    string   // id
	Volumes  []string // ids of the images that its mounts show
}

// What is said of pods without a record.
const (
	lostPod       = "there is no record of it, only what it has on this host: the file of records was lost; stop and remove the pod, and its owner makes another"
	lostContainer = "the record of its pod is lost; stop and remove the pod, and its owner makes another"
)

// IsID says whether s has the form of an ID or a ContainerID.
func IsID(s string) bool {
	return len(s) == 64 && !slices.ContainsFunc([]byte(s), func(c byte) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'f')
	})
}

// Salvage makes records of the pods whose own cannot be read, which are in
// broken with the reason, and of those that only traces tell of. They are
// Unknown and have no Version: nothing may take them for what was written.
func Salvage(broken map[ID]error, traces []Trace) []*Record {
	found := map[ID]*Record{}
	for id, err := range broken {
		found[id] = lost(id, "its record cannot be read; stop and remove the pod, and its owner makes another: "+err.Error())
	}
	for _, t := range traces {
		if found[t.Pod] == nil && !t.Durable && t.Pod != "" {
			found[t.Pod] = lost(t.Pod, lostPod)
		}
	}
	for _, t := range traces {
		if r := found[t.Pod]; r != nil {
			r.add(t)
		}
	}
	for id, r := range found {
		if r.Config.Metadata.Name == "" {
			r.Config.Metadata.Name = id.Short()
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *Record) int { return cmp.Compare(a.ID, b.ID) })
}

func lost(id ID, reason string) *Record {
	return &Record{ID: id, State: Unknown, Reason: reason}
}

// add notes what a trace tells.
func (r *Record) add(t Trace) {
	if t.Metadata.Name != "" {
		r.Config.Metadata = t.Metadata
	}
	if len(t.Labels) > 0 { // by which a kubelet knows its pods
		r.Config.Labels = t.Labels
	}
	if t.Handler != "" {
		r.Handler, r.Requested = t.Handler, t.Handler
	}
	if r.CreatedAt.IsZero() || !t.Made.IsZero() && t.Made.Before(r.CreatedAt) {
		r.CreatedAt = t.Made
	}
	if t.Pause {
		r.Sandbox.Pause = &RunningProcess{}
	}
	if t.Container == nil || r.Container(t.Container.ID) != nil {
		return
	}
	r.Containers = append(r.Containers, &Container{
		ID: t.Container.ID, State: Unknown, Reason: ReasonUnknown, Message: lostContainer, CreatedAt: t.Made,
		Config: ContainerConfig{
			Metadata: t.Container.Metadata, Labels: t.Container.Labels, Image: ImageSpec{Image: t.Container.Image},
		},
		Image:      ContainerImage{ID: t.Container.Image, Ref: t.Container.Image, Volumes: t.Container.Volumes},
		StopSignal: "SIGTERM",
	})
}

// Salvaged says whether the record was made by Salvage.
func (r *Record) Salvaged() bool { return r.Version == 0 }
