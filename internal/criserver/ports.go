package criserver

import (
	"context"
	"net/netip"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

// Pods is what the server needs of the core for pods. The records that it
// returns are never modified.
type Pods interface {
	RunPod(ctx context.Context, cfg pod.Config, handler string) (pod.ID, error)
	// StopPod and RemovePod are idempotent; an unknown id is no error.
	StopPod(ctx context.Context, id pod.ID) error
	RemovePod(ctx context.Context, id pod.ID) error
	// ResizePod changes the limits of all containers together and the overhead;
	// nil stays as it is.
	ResizePod(ctx context.Context, id pod.ID, containers, overhead *pod.Resources) error
	Checkpoints
	Pods() []*pod.Record
	// FindPod takes a full id or the beginning of exactly one.
	FindPod(id string) (*pod.Record, error)
}

// Containers is what the server needs of the core for containers.
type Containers interface {
	CreateContainer(ctx context.Context, id pod.ID, cfg pod.ContainerConfig) (pod.ContainerID, error)
	StartContainer(ctx context.Context, id pod.ContainerID) error
	// StopContainer and RemoveContainer are idempotent; an unknown id is no error.
	StopContainer(ctx context.Context, id pod.ContainerID, grace time.Duration) error
	RemoveContainer(ctx context.Context, id pod.ContainerID) error
	// FindContainer takes a full id or the beginning of exactly one.
	FindContainer(id string) (*pod.Record, *pod.Container, error)
	UpdateContainer(ctx context.Context, id pod.ContainerID, res *pod.Resources) error
	ReopenLog(ctx context.Context, id pod.ContainerID) error
}

// Checkpoints writes down what containers that run are at. They go on.
type Checkpoints interface {
	CheckpointContainer(ctx context.Context, id pod.ContainerID, q pod.Checkpoint) error
	// CheckpointPod wants full ids of containers.
	CheckpointPod(ctx context.Context, id pod.ID, q pod.PodCheckpoint) error
	// RestorePod makes a pod whose created containers go on from a checkpoint.
	RestorePod(ctx context.Context, q pod.Restore) (pod.ID, []pod.Restored, error)
}

// Events tells what happens to pods and containers.
type Events interface {
	// Follow returns a channel on which everything from now on arrives. It is
	// closed when its reader is too far behind. stop must be called.
	Follow() (seen <-chan pod.Notice, stop func())
}

// Stats measures what pods and containers use. Errors wrap errdefs.ErrNotFound
// for what does not run any more.
type Stats interface {
	Container(r *pod.Record, c *pod.Container) (pod.ContainerUsage, error)
	// Pod measures a pod without telling its containers apart.
	Pod(r *pod.Record) (pod.Usage, error)
	// UsageOf measures in the order of the subjects. What it says may be some
	// seconds old, and says its time.
	UsageOf(ctx context.Context, subjects []pod.Subject) []pod.Measured
	// Written adds up what containers have written to their root file systems.
	Written(ctx context.Context, ids []pod.ContainerID) pod.LayerUsage
	// Families are all metrics that MetricsOf may return.
	Families() []*pod.MetricFamily
	// MetricsOf is as UsageOf.
	MetricsOf(ctx context.Context, subjects []pod.Subject) []pod.Metrics
}

// Handlers lists the runtime handlers, working or not.
type Handlers interface {
	List() []pod.HandlerInfo
}

// Network is what the server needs of the pod network.
type Network interface {
	// Status is nil while pods can be attached, or says why not.
	Status(ctx context.Context) error
	// SetPodCIDR tells the ranges that the cluster gives to this node's pods, at
	// most one of each address family. A network whose configuration names
	// ranges keeps those.
	SetPodCIDR(ctx context.Context, ranges []netip.Prefix) error
}

// Images is what the server needs of the image store.
type Images interface {
	// Pull returns the id of the image.
	Pull(ctx context.Context, p ImagePull) (id string, err error)
	// List returns all images.
	List(ctx context.Context) ([]Image, error)
	// Find resolves a name or an id. errdefs.ErrNotFound says that there is none.
	Find(ctx context.Context, ref string) (Image, error)
	// Remove takes an image with all its names when given its id. It is
	// idempotent.
	Remove(ctx context.Context, ref string) error
	// Usage says what all images take.
	Usage(ctx context.Context) (ImageUsage, error)
}

// Image is one image of this node.
type Image struct {
	ID          string // digest of the configuration
	RepoTags    []string
	RepoDigests []string
	Size        int64  // bytes
	User        string // of the configuration: "", "uid", "name", "uid:gid", "name:group"
	Pinned      bool
	Annotations map[string]string
	// Info is any value for people; its JSON is the verbose answer of ImageStatus.
	Info any
}

// ImagePull says what to pull.
type ImagePull struct {
	Ref     string
	Auth    *ImageAuth   // nil: whatever this node has for that registry
	Pod     pod.Metadata // for whom, where the caller said so
	Handler string       // the runtime handler that will run it; "" is the default
}

// ImageAuth are credentials of one registry.
type ImageAuth struct {
	Username      string
	Password      string
	Auth          string // base64 of "username:password"
	ServerAddress string
	IdentityToken string // of an OAuth2 refresh
	RegistryToken string // a bearer token
}

// ImageUsage is what all images take.
type ImageUsage struct {
	Path   string // a directory on their file system
	Bytes  int64
	Inodes int64
}

// Streams runs processes in containers and serves the streams of exec, attach
// and port-forward.
type Streams interface {
	// ExecSync captures the output of a process. Its deadline is that of ctx.
	ExecSync(ctx context.Context, id pod.ContainerID, command []string) (*cri.ExecSyncResponse, error)
	// The others return the URL on which the client finds the stream. It is
	// good for one use, and only for a while.
	ExecURL(*cri.ExecRequest) (string, error)
	AttachURL(*cri.AttachRequest) (string, error)
	PortForwardURL(*cri.PortForwardRequest) (string, error)
}
