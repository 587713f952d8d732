package lifecycle

import (
	"context"
	"iter"
	"net/netip"
	"os"
	"time"

	"fairlead.run/internal/pod"
)

// Store keeps the record of every pod. Each call is one transaction.
type Store interface {
	// Put writes the record of one pod, new or changed.
	Put(ctx context.Context, r *pod.Record) error
	// Delete forgets a pod. Deleting what does not exist is no error.
	Delete(ctx context.Context, id pod.ID) error
	// Load reads all records. One that cannot be read is in broken, by id, and
	// hides no other.
	Load(ctx context.Context) (records []*pod.Record, broken map[pod.ID]error, err error)
}

// Sandboxes makes and removes what holds a pod together: its folder, its
// pinned namespaces, /dev/shm, and the files that its containers share.
type Sandboxes interface {
	// Create makes all of it. It is idempotent.
	Create(ctx context.Context, id pod.ID, c *pod.Config) (pod.Sandbox, error)
	// WriteFiles writes resolv.conf, hosts and hostname once the addresses are known.
	WriteFiles(ctx context.Context, r *pod.Record) error
	PodLimits
	// Stop unpins the namespaces, so that the kernel can drop them, and frees /dev/shm.
	Stop(ctx context.Context, id pod.ID) error
	// Remove deletes what is left. Neither minds what is already gone.
	Remove(ctx context.Context, id pod.ID) error
	// Observe says whether the namespaces are still pinned.
	Observe(ctx context.Context, r *pod.Record) pod.Seen
	// Leftovers are pods that have files here and are not live: files outlive the
	// boot, and the record of their pod does not.
	Leftovers(live func(pod.ID) bool) ([]pod.ID, error)
}

// PodLimits changes the limits of pods.
type PodLimits interface {
	// Resize changes the limits of the pod, which has those of r, to others.
	Resize(ctx context.Context, r *pod.Record, to *pod.Config) error
	// LimitProcess gives limits to the pod's own process, where that runs all its
	// containers. errdefs.ErrPrecondition says that more is in use.
	LimitProcess(ctx context.Context, r *pod.Record, to *pod.Resources) error
}

// Network attaches pods to the network. Pods on the node's network never get here.
type Network interface {
	// Attach is idempotent: an attached pod gets the same addresses.
	Attach(ctx context.Context, r *pod.Record) ([]netip.Addr, error)
	// Detach is idempotent, and no error for a pod that never was attached.
	Detach(ctx context.Context, id pod.ID) error
	// Check says what of a running pod's network is not in order: an error that
	// wraps errdefs.ErrPrecondition. Any other says that it could not be found out.
	Check(ctx context.Context, r *pod.Record) error
	// Status is nil while pods can be attached, or says why not.
	Status(ctx context.Context) error
	// Reconcile releases every attachment that an earlier process left and whose
	// pod is not live. Pods may be attached while it works.
	Reconcile(ctx context.Context, live func(pod.ID) bool) error
}

// Tracer is a driver that can tell of pods and containers whose record is lost.
type Tracer interface {
	// Traces tells of those that known does not say to be known. What it could
	// not read is in the error, beside what it could.
	Traces(ctx context.Context, known func(id string) bool) ([]pod.Trace, error)
}

// Images finds images and holds their layers while containers use them.
type Images interface {
	// Use resolves ref, a name or an id, and keeps its layers until Release. A
	// container may use several images.
	Use(ctx context.Context, ref string, by pod.ContainerID) (Image, error)
	// Release is idempotent.
	Release(ctx context.Context, by pod.ContainerID) error
	// SyncUses tells of the containers that an earlier process has made, and of the
	// ids of their images. What Use and Release have said before it stands. Until
	// it has been called, no layer is deleted.
	SyncUses(ctx context.Context, live map[pod.ContainerID][]string) error
}

// Image is what a container needs of its image.
type Image struct {
	pod.ContainerImage
	Config pod.ImageConfig
	Lower  []string // the layers' folders, topmost first
}

// Roots mounts the root file systems of containers.
type Roots interface {
	// Mount mounts the layers and a writable folder on the rootfs of a container
	// of that pod, and returns that path. With a label, every file in it has that
	// one. It is idempotent.
	Mount(ctx context.Context, of *pod.Record, id pod.ContainerID, lower []string, label string) (path string, err error)
	// MountImage mounts an image alone, read-only, for a mount of a container of
	// that pod, and returns where. It is idempotent.
	MountImage(ctx context.Context, of *pod.Record, v pod.VolumeRequest) (path string, err error)
	// Unmount and Remove do not mind what is already gone. Unmount takes away what
	// MountImage has mounted, too.
	Unmount(ctx context.Context, id pod.ContainerID) error
	Remove(ctx context.Context, id pod.ContainerID) error
	Changes
	// Leftovers are containers that have something here and are not in live: a
	// writable layer outlives the boot, and the record of its container does not.
	Leftovers(live map[pod.ContainerID]bool) ([]pod.ContainerID, error)
}

// Changes carries what a container has changed from one root file system to another.
type Changes interface {
	// Diff writes what a container that does not run has changed to a new file.
	Diff(ctx context.Context, id pod.ContainerID, to string) error
	// Restore applies what Diff has written in the folder of a checkpoint to a root
	// that is mounted, and keeps what was captured of the processes in Images.
	Restore(ctx context.Context, id pod.ContainerID, from string) error
	Images(id pod.ContainerID) string
}

// Labels gives SELinux labels. It only works them out; they are empty where the
// host or the handler has none.
type Labels interface {
	// Pod are the labels of a new pod. Where the caller asks for no level, pick
	// chooses one of those that it is given.
	Pod(r *pod.Record, h pod.HandlerInfo, pick func(levels iter.Seq[string]) string) (pod.Labels, error)
	// Container are the labels of a container of the pod.
	Container(r *pod.Record, c *pod.Container, h pod.HandlerInfo) (pod.Labels, error)
}

// Bundles writes what an OCI runtime reads: config.json from the pod's own
// fields, and the folders and files that it names.
type Bundles interface {
	// Write makes the bundle and returns who the process runs as.
	Write(ctx context.Context, in BundleRequest) (pod.Bundle, error)
	// CheckSandbox refuses what the pod's own process could not have, also where
	// the pod has none.
	CheckSandbox(ctx context.Context, r *pod.Record, h pod.HandlerInfo) error
	// WriteSandbox makes the bundle of the pod's own process.
	WriteSandbox(ctx context.Context, r *pod.Record, h pod.HandlerInfo) (pod.Bundle, error)
	// Update rewrites the resources in the bundle of a container.
	Update(ctx context.Context, r *pod.Record, c *pod.Container) error
	// Remove deletes a bundle. It does not mind one that is already gone.
	Remove(ctx context.Context, id string) error
}

// BundleRequest is what Bundles.Write works from.
type BundleRequest = pod.BundleRequest

// Handlers resolves runtime handlers.
type Handlers interface {
	// Get resolves a name, "" being the default. The error of an unknown or
	// failed one names the handlers that work here.
	Get(name string) (Handler, error)
	// Serving resolves the handler of a pod that exists, in the revision that its
	// record has, working or not: its containers must be stopped and removed all
	// the same.
	Serving(name, revision string) (Handler, error)
	// List describes all, working or not, in the order of their names.
	List() []pod.HandlerInfo
}

// Handler runs the processes of containers. Every method may be called again
// after a crash of the caller, and then completes or repeats the first call.
type Handler interface {
	Info() pod.HandlerInfo
	// Start runs the bundle's process and returns once it runs.
	Start(ctx context.Context, s StartRequest) (pod.RunningProcess, error)
	// Exec runs one more process in a running container.
	Exec(ctx context.Context, e ExecRequest) (Exec, error)
	// Kill signals the first process, or with all everything in the container.
	Kill(ctx context.Context, c *pod.Container, sig string, all bool) error
	// Update gives a running container the limits that its bundle says now.
	Update(ctx context.Context, id string, b pod.Bundle) error
	// Delete makes the runtime forget a container whose process is gone. It
	// kills what is left in it. It is idempotent.
	Delete(ctx context.Context, id string) error
	// Observe says whether the process lives, and if not how it ended.
	Observe(ctx context.Context, id string, p *pod.RunningProcess) pod.Seen
}

// Warmer is a Handler that starts a process more quickly if it was told some
// milliseconds before that one will be started. Nothing may come of it.
type Warmer interface{ Warm() }

func warm(h Handler) {
	if w, ok := h.(Warmer); ok {
		w.Warm()
	}
}

// Quitter is a Handler that can give up a start that an earlier daemon has begun,
// and waits for its end. There need not be one.
type Quitter interface {
	GiveUp(ctx context.Context, id string) error
}

// Together is a Handler that may run all containers of a pod in the pod's own
// process, so that their limits hold for all of them together.
type Together interface{ Together() bool }

func together(h Handler) bool {
	t, ok := h.(Together)
	return ok && t.Together()
}

// Checkpointer is a Handler that can write down what a container's processes are
// at. Whether it can on this host is in its features.
type Checkpointer interface {
	// Freeze stops all processes of a container until Thaw. Both are idempotent,
	// and Thaw does not mind a container that is gone.
	Freeze(ctx context.Context, id string) error
	Thaw(ctx context.Context, id string) error
	// Capture writes the state of a frozen container into an existing folder. When
	// ctx ends, what writes is killed, and the container may be frozen or not.
	Capture(ctx context.Context, c *pod.Container, to string) error
}

// Checkpoints keeps the folders in which checkpoints are made. A folder stands
// for a container that may be frozen.
type Checkpoints interface {
	// Make makes an empty folder; Remove does not mind that there is none.
	Make(id pod.ContainerID) (dir string, err error)
	Remove(id pod.ContainerID) error
	// Left are the containers that have a folder.
	Left() ([]pod.ContainerID, error)
	// EndWriters kills what an earlier daemon has started to write a checkpoint.
	EndWriters(ctx context.Context, id pod.ContainerID) error
	// Describe writes into a folder who the container is, and more files by name.
	Describe(dir string, r *pod.Record, c *pod.Container, more map[string][]byte) error
	// Export writes a folder as an archive to a path where nothing is.
	Export(ctx context.Context, dir, to string) error
	Restorer
}

// Restorer reads checkpoints.
type Restorer interface {
	// Read lists the containers in the checkpoint of a pod.
	Read(ctx context.Context, folder string) ([]pod.Captured, error)
	// Fits says why a bundle is not that of the container that was captured into
	// the folder, or nil.
	Fits(dir, bundle string) error
}

// What the core and its drivers both name is declared in package pod.
type (
	// StartRequest is pod.StartRequest.
	StartRequest = pod.StartRequest
	// ExecRequest is pod.ExecRequest.
	ExecRequest = pod.ExecRequest
	// Exec is pod.Exec.
	Exec = pod.Exec
	// Attachment is pod.Attachment.
	Attachment = pod.Attachment
)

// Streams reaches the output and input of containers.
type Streams interface {
	// Attach copies the container's output from now on to the given files, until
	// the returned attachment is closed.
	Attach(ctx context.Context, id pod.ContainerID, stdout, stderr *os.File, stdin bool) (Attachment, error)
	ReopenLog(ctx context.Context, id pod.ContainerID) error
	Resize(ctx context.Context, id pod.ContainerID, width, height uint16) error
}

// Plugins are told what happens to pods and containers, and may refuse or change
// some of it (NRI). Each call may take as long as every plugin's timeout.
type Plugins interface {
	// Active says whether anybody listens.
	Active() bool
	// Pod and Container tell of an event. Only the errors of PluginRunPod and
	// PluginStart are refusals. What ends is told of once, however often. No
	// container's lock may be held at PluginStopped: it may change any of them.
	Pod(ctx context.Context, e pod.PluginEvent, r *pod.Record) error
	Container(ctx context.Context, e pod.PluginEvent, r *pod.Record, c *pod.Container) error
	// UpdatePod tells of limits that the pod is to get. An error refuses them.
	UpdatePod(ctx context.Context, r *pod.Record, overhead, limits *pod.Resources) error
	// Update says what becomes of new limits of a container; nil is what was
	// asked for. An error refuses them. No lock may be held: it may change others.
	Update(ctx context.Context, r *pod.Record, c *pod.Container, want *pod.Resources) (*pod.Resources, error)
}

// Exits tells how processes ended.
type Exits interface {
	// Run calls seen for every exit that is recorded and then for every new one,
	// at least once each, until ctx ends.
	Run(ctx context.Context, seen func(id string, e pod.Exit)) error
	// Forget drops what is known of a process that ended. It is idempotent.
	Forget(ctx context.Context, id string) error
}

// Clock is time.Now, but for tests of times.
type Clock func() time.Time
