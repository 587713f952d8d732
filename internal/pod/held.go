package pod

import "context"

// Kind says what a Held is.
type Kind string

// The kinds of things that pods and images have on a host.
const (
	KindRecord     Kind = "record"     // of a pod, in state.db
	KindProcess    Kind = "process"    // that the monitor follows
	KindState      Kind = "state"      // what an OCI runtime keeps of a container
	KindTrial      Kind = "trial"      // the folder of a trial container of a handler
	KindCgroup     Kind = "cgroup"     // of a pod or a container
	KindAttachment Kind = "attachment" // an entry of the network ledger
	KindLink       Kind = "link"       // the host's end of a pod's interface
	KindAddress    Kind = "address"    // of a pod
	KindPort       Kind = "port"       // of the node, held for a pod
	KindElement    Kind = "element"    // a host port in nftables
	KindTable      Kind = "table"      // of nftables
	KindResult     Kind = "result"     // of a CNI plugin, in the library's cache
	KindNamespace  Kind = "namespace"  // pinned for a pod
	KindMount      Kind = "mount"      // of a root file system, /dev/shm, ...
	KindFIFO       Kind = "fifo"       // of a container's input or output
	KindBundle     Kind = "bundle"     // config.json and its folder
	KindFolder     Kind = "folder"     // of a pod
	KindWritable   Kind = "writable"   // layer: what a container wrote
	KindCheckpoint Kind = "checkpoint" // the folder of one that is being made
	KindUse        Kind = "use"        // of an image by a container, which keeps its layers
	KindLease      Kind = "lease"      // of a pull, which keeps what it fetches
	KindImage      Kind = "image"      // a name and what it needs
	KindSnapshot   Kind = "snapshot"   // an unpacked layer
	KindBlob       Kind = "blob"       // a file of an image as it was fetched
)

// Held is one thing that a driver has on the host, or that it should have. Kind
// and Name together tell it from all others.
type Held struct {
	Kind Kind
	Name string // the path or name by which people find it
	// Owner is the id of the pod or container that it is for; "" if it is for
	// nobody.
	Owner string
	// Fault is what is wrong with a thing that is there; "" if nothing is.
	Fault string
}

// Key tells a thing from all others.
func (h Held) Key() Held { return Held{Kind: h.Kind, Name: h.Name} }

// Keeper is the side of a driver that an audit looks at: what it has on the
// host, and how to put that right. It is optional for a driver; one that has
// nothing of its own needs none.
type Keeper interface {
	// Held lists what is there because of pods, containers and images. What is
	// in order and belongs to no single pod may be left out. The records help
	// to tell whose a thing is: one whose owner is not among them has the
	// Owner that it says itself, or none.
	//
	// What the driver itself is still taking down, on nobody's record any more,
	// is left out too.
	Held(ctx context.Context, records []*Record) ([]Held, error)
	// Wants lists what has to be there for as long as the record is as it is.
	Wants(r *Record) []Held
	// Drop removes a thing that is of no use. Nobody else has one with its name
	// then or later. It does not mind what is already gone.
	Drop(ctx context.Context, h Held) error
	// Restore puts back what Wants names, or mends its fault. Nobody changes the
	// pod meanwhile. Where that cannot be done, the error wraps
	// errdefs.ErrPrecondition and says what helps.
	Restore(ctx context.Context, r *Record, h Held) error
}

// Examiner is a Keeper of which some faults only others can tell, who have to be
// asked about each pod: that costs processes and time.
type Examiner interface {
	// Examine lists what of a running pod is not in order, beside what Held says.
	// An error says that this could not be found out; one that wraps
	// errdefs.ErrNotFound, that there is nothing to ask about.
	Examine(ctx context.Context, r *Record) ([]Held, error)
}
