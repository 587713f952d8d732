// Package origin is the part of a bundle that says whose it is: annotations in
// config.json that name the pod, the container and the handler. Sandboxing
// runtimes read some of them, people see them in what runtimes list, and where
// a pod's record is lost they are what tells of its containers.
//
// It is no record: what a pod was asked to be is not in it.
package origin

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"fairlead.run/internal/pod"
)

// The annotations. Those of the CRI's prefix are what containerd and CRI-O call
// them, too.
const (
	Type      = "io.kubernetes.cri.container-type"
	Sandbox   = "io.kubernetes.cri.sandbox-id"
	Name      = "io.kubernetes.cri.sandbox-name"
	Namespace = "io.kubernetes.cri.sandbox-namespace"
	UID       = "io.kubernetes.cri.sandbox-uid"
	Container = "io.kubernetes.cri.container-name"

	SandboxAttempt   = "run.fairlead.sandbox-attempt"
	ContainerAttempt = "run.fairlead.container-attempt"
	Handler          = "run.fairlead.handler"
	Image            = "run.fairlead.image"
	// Volumes are the ids of the images that mounts show, with commas between.
	Volumes = "run.fairlead.image-volumes"
	// Labels are those of the pod and of the container, as JSON.
	SandboxLabels   = "run.fairlead.sandbox-labels"
	ContainerLabels = "run.fairlead.container-labels"
)

// The values of Type.
const (
	TypeContainer = "container"
	TypeSandbox   = "sandbox" // the pod's own process
)

// OfPod adds what the bundle of the pod's own process says.
func OfPod(out map[string]string, r *pod.Record) {
	m := r.Config.Metadata
	out[Type] = TypeSandbox
	out[Sandbox] = string(r.ID)
	out[Name], out[Namespace], out[UID] = m.Name, m.Namespace, m.UID
	out[SandboxAttempt] = strconv.FormatUint(uint64(m.Attempt), 10)
	out[Handler] = r.Handler
	addLabels(out, SandboxLabels, r.Config.Labels)
}

func addLabels(out map[string]string, name string, labels map[string]string) {
	delete(out, name)
	if len(labels) == 0 {
		return
	}
	text, err := json.Marshal(labels)
	if err == nil { // strings always can
		out[name] = string(text)
	}
}

// OfContainer adds what the bundle of a container says.
func OfContainer(out map[string]string, r *pod.Record, c *pod.Container) {
	OfPod(out, r)
	out[Type] = TypeContainer
	out[Container] = c.Config.Metadata.Name
	out[ContainerAttempt] = strconv.FormatUint(uint64(c.Config.Metadata.Attempt), 10)
	out[Image] = c.Image.ID
	delete(out, Volumes)
	if ids := slices.DeleteFunc(slices.Clone(c.Image.Volumes), func(id string) bool { return id == "" }); len(ids) > 0 {
		out[Volumes] = strings.Join(ids, ",")
	}
	addLabels(out, ContainerLabels, c.Config.Labels)
}
