package pod

import "time"

// Checkpoint is what a checkpoint of one container is to be.
type Checkpoint struct {
	Location string        // of the archive, absolute; nothing may be there
	Timeout  time.Duration // zero is the default
	// Files are put into it beside what the handler captures, by their names.
	Files map[string][]byte
}

// PodCheckpoint is what a checkpoint of containers of a pod is to be.
type PodCheckpoint struct {
	Location   string // an empty folder, absolute
	Containers []ContainerID
	// Files are put into it, by their names.
	Files map[string][]byte
	// ContainerFiles are put beside what the handler captures of each container.
	ContainerFiles map[ContainerID]map[string][]byte
}

// Restore is what a pod is restored from.
type Restore struct {
	From       string // the folder of a PodCheckpoint
	Config     Config
	Handler    string // as of RunPod
	Containers []ContainerConfig
}

// Restored is a container that was restored.
type Restored struct {
	Name string
	ID   ContainerID
}

// Captured is a container in a PodCheckpoint.
type Captured struct {
	Name string
	Dir  string // its folder
}
