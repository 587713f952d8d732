package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/podspec"
)

// podView is a pod as ps shows it.
type podView struct {
	ID         string          `json:"id"`
	Namespace  string          `json:"namespace"`
	Name       string          `json:"name"`
	UID        string          `json:"uid"`
	Class      string          `json:"runtimeClass,omitempty"`
	Handler    string          `json:"handler,omitempty"`
	Addresses  []string        `json:"addresses,omitempty"`
	State      string          `json:"state"`
	CreatedAt  time.Time       `json:"createdAt"`
	Containers []containerView `json:"containers"`

	annotations map[string]string
}

// containerView is a container as ps shows it.
type containerView struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Attempt   uint32    `json:"attempt"`
	Image     string    `json:"image"`
	State     string    `json:"state"`
	CreatedAt time.Time `json:"createdAt"`
}

func (a *app) psCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List pods, with their class, handler and address",
		Args:  args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.checkOutput(); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(s *session) error { return a.ps(cmd.Context(), s) })
		},
	}
	a.outputFlag(cmd)
	return cmd
}

func (a *app) ps(ctx context.Context, s *session) error {
	pods, err := listPods(ctx, s.Runtime)
	if err != nil {
		return err
	}
	for i := range pods {
		// Gone between the two calls: it keeps its row, without an address.
		resp, err := s.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pods[i].ID})
		if err != nil {
			continue
		}
		if ip := resp.GetStatus().GetNetwork().GetIp(); ip != "" {
			pods[i].Addresses = append(pods[i].Addresses, ip)
		}
		for _, ip := range resp.GetStatus().GetNetwork().GetAdditionalIps() {
			pods[i].Addresses = append(pods[i].Addresses, ip.GetIp())
		}
		if h := resp.GetStatus().GetRuntimeHandler(); h != "" {
			pods[i].Handler = h
		}
	}
	return a.print(pods, func() [][]string {
		rows := [][]string{{"POD", "CLASS", "HANDLER", "ADDRESS", "STATE", "CONTAINERS", "AGE", "ID"}}
		for _, p := range pods {
			running := 0
			for _, c := range p.Containers {
				if c.State == "Running" {
					running++
				}
			}
			rows = append(rows, []string{
				podName(p.Namespace, p.Name), p.Class, p.Handler, strings.Join(p.Addresses, ","), p.State,
				fmt.Sprintf("%d/%d", running, len(p.Containers)), age(p.CreatedAt), short(p.ID),
			})
		}
		return rows
	})
}

// short is an id as people read it.
func short(id string) string { return id[:min(13, len(id))] }

// listPods reads all pods and containers, by namespace and name. Of each
// container only the latest attempt is kept.
func listPods(ctx context.Context, client runtimeapi.RuntimeServiceClient) ([]podView, error) {
	sandboxes, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	list, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	containers := map[string][]containerView{}
	for _, c := range list.GetContainers() {
		containers[c.GetPodSandboxId()] = append(containers[c.GetPodSandboxId()], viewContainer(c))
	}
	pods := make([]podView, 0, len(sandboxes.GetItems()))
	for _, s := range sandboxes.GetItems() {
		p := podView{
			ID: s.GetId(), Namespace: s.GetMetadata().GetNamespace(), Name: s.GetMetadata().GetName(), UID: s.GetMetadata().GetUid(),
			Class: s.GetAnnotations()[podspec.AnnotationClass], Handler: s.GetRuntimeHandler(),
			State: "Stopped", CreatedAt: time.Unix(0, s.GetCreatedAt()),
			Containers: latest(containers[s.GetId()]), annotations: s.GetAnnotations(),
		}
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			p.State = podState(p.Containers)
		}
		pods = append(pods, p)
	}
	slices.SortFunc(pods, func(a, b podView) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.ID, b.Namespace+"/"+b.Name+"/"+b.ID)
	})
	return pods, nil
}

// podState sums up the containers of a sandbox that is up.
func podState(list []containerView) string {
	if len(list) == 0 {
		return "Pending"
	}
	for _, c := range list {
		if c.State == "Running" {
			return "Running"
		}
	}
	return "Exited"
}

func viewContainer(c *runtimeapi.Container) containerView {
	image := c.GetImage().GetUserSpecifiedImage()
	if image == "" {
		image = c.GetImage().GetImage()
	}
	state := strings.TrimPrefix(c.GetState().String(), "CONTAINER_")
	return containerView{
		ID: c.GetId(), Name: c.GetMetadata().GetName(), Attempt: c.GetMetadata().GetAttempt(), Image: image,
		State: state[:1] + strings.ToLower(state[1:]), CreatedAt: time.Unix(0, c.GetCreatedAt()),
	}
}

// latest keeps the last attempt of each container, oldest container first.
func latest(list []containerView) []containerView {
	byName := map[string]containerView{}
	for _, c := range list {
		if have, ok := byName[c.Name]; !ok || c.Attempt > have.Attempt || (c.Attempt == have.Attempt && c.CreatedAt.After(have.CreatedAt)) {
			byName[c.Name] = c
		}
	}
	out := make([]containerView, 0, len(byName))
	for _, c := range byName {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b containerView) int {
		if n := a.CreatedAt.Compare(b.CreatedAt); n != 0 {
			return n
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out
}
