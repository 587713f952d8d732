package criserver

import (
	"context"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

// ContainerStatus describes one container.
func (s *Server) ContainerStatus(_ context.Context, r *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	p, c, err := s.findContainer(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	resp := &cri.ContainerStatusResponse{Status: encodeContainerStatus(p, c)}
	if r.GetVerbose() {
		resp.Info, err = encodeInfo(map[string]any{"info": containerInfo(p, c)})
	}
	return resp, err
}

func encodeContainerStatus(p *pod.Record, c *pod.Container) *cri.ContainerStatus {
	out := &cri.ContainerStatus{
		Id:          string(c.ID),
		Metadata:    encodeContainerMetadata(c.Config.Metadata),
		State:       encodeContainerState(c.State),
		CreatedAt:   nanoseconds(c.CreatedAt),
		StartedAt:   nanoseconds(c.StartedAt),
		FinishedAt:  nanoseconds(c.FinishedAt),
		ExitCode:    c.ExitCode,
		Image:       encodeUsedImage(c),
		ImageRef:    c.Image.Ref,
		Reason:      c.Reason,
		Message:     c.Message,
		Labels:      c.Config.Labels,
		Annotations: c.Config.Annotations,
		Mounts:      encodeMounts(c.Config.Mounts),
		LogPath:     p.LogPath(c),
		ImageId:     c.Image.ID,
		StopSignal:  encodeSignal(c.StopSignal),
	}
	for i, id := range c.Image.Volumes {
		if i < len(out.Mounts) && out.Mounts[i].Image != nil {
			out.Mounts[i].Image.ImageRef = id
		}
	}
	if r := c.Limits(); r != nil {
		out.Resources = &cri.ContainerResources{Linux: encodeResources(r)}
	}
	if u := c.User; u != nil {
		out.User = &cri.ContainerUser{Linux: &cri.LinuxContainerUser{Uid: u.UID, Gid: u.GID, SupplementalGroups: u.SupplementalGroups}}
	}
	return out
}

// encodeUsedImage is the image by a name that people know. A kubelet creates
// containers by the id of what it pulled, and shows users what it finds here.
func encodeUsedImage(c *pod.Container) *cri.ImageSpec {
	out := encodeImageSpec(&c.Config.Image)
	hex := strings.TrimPrefix(out.Image, "sha256:")
	if !strings.HasPrefix(strings.TrimPrefix(c.Image.ID, "sha256:"), hex) {
		return out // it is no id
	}
	for _, name := range []string{out.UserSpecifiedImage, c.Image.Name} {
		if name != "" {
			out.Image = name
			break
		}
	}
	return out
}

// containerDetails is the verbose answer.
type containerDetails struct {
	PID       int                  `json:"pid"`
	State     pod.State            `json:"state"`
	SandboxID pod.ID               `json:"sandboxID"`
	Handler   string               `json:"runtimeHandler"`
	Image     pod.ContainerImage   `json:"image"`
	Process   *pod.RunningProcess  `json:"process,omitempty"`
	Config    *cri.ContainerConfig `json:"config"`
}

func containerInfo(p *pod.Record, c *pod.Container) containerDetails {
	d := containerDetails{
		State: c.State, SandboxID: p.ID, Handler: p.Handler, Image: c.Image,
		Process: c.Process, Config: encodeContainerConfig(&c.Config),
	}
	if c.Process != nil && c.State == pod.Running {
		d.PID = c.Process.Inside()
	}
	return d
}
