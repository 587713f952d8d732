package inventory

import (
	"context"
	"encoding/json"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/handlers"
)

// unknown is the state of what could not be observed. It may be alive.
const unknown = "Unknown"

// AddDetails asks for what the list has not: the pods' addresses, the handlers
// that run them, and the reasons of those that are Unknown. A pod that went
// away meanwhile stays as it is.
func AddDetails(ctx context.Context, client runtimeapi.RuntimeServiceClient, pods []Pod) {
	for i := range pods {
		resp, err := client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pods[i].ID, Verbose: true})
		if err == nil {
			pods[i].add(resp)
		}
		for j := range pods[i].Containers {
			pods[i].Containers[j].addMessage(ctx, client)
		}
	}
}

func (p *Pod) add(resp *runtimeapi.PodSandboxStatusResponse) {
	if ip := resp.GetStatus().GetNetwork().GetIp(); ip != "" {
		p.Addresses = append(p.Addresses, ip)
	}
	for _, ip := range resp.GetStatus().GetNetwork().GetAdditionalIps() {
		p.Addresses = append(p.Addresses, ip.GetIp())
	}
	if h := handlers.Of(resp); h != "" {
		p.Handler = h
	}
	// The CRI has ready and not ready; Fairlead's verbose answer says more, and
	// that of others is not in this form.
	var info struct {
		State        string `json:"state"`
		Reason       string `json:"reason"`
		NetworkFault string `json:"networkFault"`
	}
	if json.Unmarshal([]byte(resp.GetInfo()["info"]), &info) != nil {
		return
	}
	p.NetworkFault = info.NetworkFault
	if info.State == unknown {
		p.State, p.Reason = unknown, info.Reason
	}
}

func (c *Container) addMessage(ctx context.Context, client runtimeapi.RuntimeServiceClient) {
	if c.State != unknown {
		return
	}
	resp, err := client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
	if err == nil {
		c.Message = resp.GetStatus().GetMessage()
	}
}
