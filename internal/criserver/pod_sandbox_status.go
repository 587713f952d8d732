package criserver

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/pod"
)

// PodSandboxStatus describes one pod and its containers.
func (s *Server) PodSandboxStatus(_ context.Context, r *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	p, err := s.findPod(r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	resp := &cri.PodSandboxStatusResponse{
		Status: encodePodStatus(p), ContainersStatuses: encodeStatuses(p), Timestamp: s.now().UnixNano(),
	}
	if r.GetVerbose() {
		resp.Info, err = encodeInfo(map[string]any{"info": podInfo(p)})
	}
	return resp, err
}

func encodePodStatus(p *pod.Record) *cri.PodSandboxStatus {
	return &cri.PodSandboxStatus{
		Id:        string(p.ID),
		Metadata:  encodePodMetadata(p.Config.Metadata),
		State:     encodePodState(p.State),
		CreatedAt: nanoseconds(p.CreatedAt),
		Network:   encodeNetwork(p),
		Linux: &cri.LinuxPodSandboxStatus{
			Namespaces: &cri.Namespace{Options: encodeNamespaces(&p.Config.Security.Namespaces)},
		},
		Labels:         p.Config.Labels,
		Annotations:    p.Config.Annotations,
		RuntimeHandler: p.Requested,
	}
}

// encodeNetwork has the addresses that the pod holds now: none once it was
// stopped, because then they may be another pod's.
func encodeNetwork(p *pod.Record) *cri.PodSandboxNetworkStatus {
	out := &cri.PodSandboxNetworkStatus{}
	if p.State != pod.Running && p.State != pod.Unknown {
		return out
	}
	for i, ip := range p.Sandbox.IPs {
		if i == 0 {
			out.Ip = ip.String()
		} else {
			out.AdditionalIps = append(out.AdditionalIps, &cri.PodIP{Ip: ip.String()})
		}
	}
	return out
}

// podDetails is the verbose answer. Most pods have no process of their own, so
// that pid is zero.
type podDetails struct {
	PID            int                   `json:"pid"`
	State          pod.State             `json:"state"`
	Reason         string                `json:"reason,omitempty"`
	NetworkFault   string                `json:"networkFault,omitempty"`
	Handler        string                `json:"runtimeHandler"`
	NetNS          string                `json:"netnsPath"`
	Sandbox        pod.Sandbox           `json:"sandbox"`
	Config         *cri.PodSandboxConfig `json:"config"`
	ContainerCount int                   `json:"containers"`
}

func podInfo(p *pod.Record) podDetails {
	d := podDetails{
		State: p.State, Reason: p.Reason, Handler: p.Handler, NetNS: p.Sandbox.NetNS,
		Sandbox: p.Sandbox, Config: encodePodConfig(&p.Config), ContainerCount: len(p.Containers),
	}
	if p.State == pod.Running {
		d.NetworkFault = p.NetworkFault
	}
	if p.Sandbox.Pause != nil {
		d.PID = p.Sandbox.Pause.Inside()
	}
	return d
}
