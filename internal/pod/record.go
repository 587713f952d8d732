package pod

import (
	"net/netip"
	"path"
	"time"
)

// ReasonUnknown is the CRI reason of a container that could not be observed, or
// whose end nobody saw.
const ReasonUnknown = "ContainerStatusUnknown"

// RecordVersion is the version of Record that this build writes.
const RecordVersion = 1

// Record is everything that Fairlead knows about one pod and its containers.
// It is the only place where these facts are kept; memory is a cache of it.
type Record struct {
	Version   int    `json:"version"`
	ID        ID     `json:"id"`
	Handler   string `json:"handler"`                   // the handler that runs the pod, never empty
	Revision  string `json:"handlerRevision,omitempty"` // of the handler, which the pod keeps; empty where none is kept
	Requested string `json:"requestedHandler"`          // runtime_handler as the caller sent it
	State     State  `json:"state"`
	Reason    string `json:"reason,omitempty"` // why State is Unknown
	// NetworkFault is what was not in order with the network of the pod, which
	// runs all the same, when it was last checked; "" if nothing was.
	NetworkFault string       `json:"networkFault,omitempty"`
	CreatedAt    time.Time    `json:"createdAt"`
	Config       Config       `json:"config"`
	Sandbox      Sandbox      `json:"sandbox"`
	Labels       Labels       `json:"labels,omitzero"` // of its own process, and of the files that its containers share
	Containers   []*Container `json:"containers,omitempty"`
}

// Sandbox is what holds a pod together on this host.
type Sandbox struct {
	Dir    string          `json:"dir,omitempty"`    // of what ends with the boot
	Files  string          `json:"files,omitempty"`  // of FileResolvConf, FileHosts and FileHostname, on disk; see FilesDir
	NetNS  string          `json:"netns,omitempty"`  // pinned namespace; empty means the node's
	IPCNS  string          `json:"ipcns,omitempty"`  // as NetNS
	UTSNS  string          `json:"utsns,omitempty"`  // as NetNS
	UserNS string          `json:"userns,omitempty"` // as NetNS; it owns the three above
	PIDNS  string          `json:"pidns,omitempty"`  // /proc/PID/ns/pid of Pause; empty unless the pod shares it
	Cgroup string          `json:"cgroup,omitempty"` // the cgroup that holds the containers', as Config.CgroupParent or the built-in one
	IPs    []netip.Addr    `json:"ips,omitempty"`    // the primary address first
	Pause  *RunningProcess `json:"pause,omitempty"`  // only where a sandbox process is needed
	Shm    string          `json:"shm,omitempty"`    // the pod's /dev/shm on the host; empty means the node's
	// OwnKernel says that Pause is a sandbox in which the containers run. Their
	// cgroups say nothing of them, and the pod's addresses are inside it.
	OwnKernel bool `json:"ownKernel,omitempty"`
}

// Container is a container of the pod.
type Container struct {
	ID         ContainerID     `json:"id"`
	State      State           `json:"state"`
	Reason     string          `json:"reason,omitempty"`  // CRI reason of Exited: "Completed", "Error", "OOMKilled", "StartError", ...
	Message    string          `json:"message,omitempty"` // for people
	CreatedAt  time.Time       `json:"createdAt"`
	StartedAt  time.Time       `json:"startedAt,omitzero"`
	FinishedAt time.Time       `json:"finishedAt,omitzero"`
	ExitCode   int32           `json:"exitCode,omitempty"` // 128 + signal where a signal ended it
	Process    *RunningProcess `json:"process,omitempty"`
	Bundle     string          `json:"bundle,omitempty"` // folder of config.json
	Config     ContainerConfig `json:"config"`
	Image      ContainerImage  `json:"image"`
	User       *User           `json:"user,omitempty"`
	StopSignal string          `json:"stopSignal"` // resolved: the request's, the image's or SIGTERM
	Adjusted   *Adjusted       `json:"adjusted,omitempty"`
}

// RunningProcess identifies a process beyond the reuse of its pid.
type RunningProcess struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"startTime"` // field 22 of /proc/PID/stat, clock ticks since boot
	// StartedAt is when the runtime had started it; zero where nobody noted it.
	StartedAt time.Time `json:"startedAt,omitzero"`
	// AskedToEnd says that it was sent its stop signal.
	AskedToEnd bool `json:"askedToEnd,omitempty"`
	// Task is the container's own process on this host, where PID is that of one
	// that stands in for it and lives as long. Zero where there is none.
	Task int `json:"task,omitempty"`
}

// Inside is the process that has the container's namespaces.
func (p RunningProcess) Inside() int {
	if p.Task != 0 {
		return p.Task
	}
	return p.PID
}

// ContainerImage is the image that a container was made from.
type ContainerImage struct {
	ID   string `json:"id"`             // digest of the image's configuration
	Ref  string `json:"ref,omitempty"`  // name@digest where one is known, else ID
	Name string `json:"name,omitempty"` // a tag where it had one, else Ref
	// Volumes are the ids of the images that the container's mounts show, in the
	// order of the mounts; "" for a mount that shows none.
	Volumes []string `json:"volumes,omitempty"`
}

// User is who the first process of a container runs as, as it was resolved.
type User struct {
	UID                int64   `json:"uid"`
	GID                int64   `json:"gid"`
	SupplementalGroups []int64 `json:"supplementalGroups,omitempty"`
}

// Use is the handler that the pod is on.
func (r *Record) Use() HandlerUse { return HandlerUse{r.Handler, r.Revision} }

// Container returns the container with that id, or nil.
func (r *Record) Container(id ContainerID) *Container {
	for _, c := range r.Containers {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// LogPath is the absolute path of the container's log, or "" if it has none.
func (r *Record) LogPath(c *Container) string {
	if r.Config.LogDirectory == "" || c.Config.LogPath == "" {
		return ""
	}
	return path.Join(r.Config.LogDirectory, path.Join("/", c.Config.LogPath))
}
