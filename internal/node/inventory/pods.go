// Package inventory lists what runs at a CRI endpoint, and finds pods by what
// people call them, in plain values that can be shown. It also reaches what a
// person looks at: addresses of streams, paths of logs, images.
//
// It changes nothing but images that it is told to remove.
package inventory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/node/podspec"
)

// Pod is a pod sandbox and its containers.
type Pod struct {
	ID        string   `json:"id"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	UID       string   `json:"uid"`
	Class     string   `json:"runtimeClass,omitempty"`
	Handler   string   `json:"handler,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	State     string   `json:"state"`
	Reason    string   `json:"reason,omitempty"` // why State is Unknown
	// NetworkFault is what is not in order with the network of a pod that runs.
	NetworkFault string      `json:"networkFault,omitempty"`
	CreatedAt    time.Time   `json:"createdAt"`
	Containers   []Container `json:"containers"`

	// Annotations and Labels are the sandbox's; they are not shown.
	Annotations map[string]string `json:"-"`
	Labels      map[string]string `json:"-"`
}

// Container is the latest attempt of a container.
type Container struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Attempt   uint32    `json:"attempt"`
	Image     string    `json:"image"`
	State     string    `json:"state"`
	Message   string    `json:"message,omitempty"` // why State is Unknown
	CreatedAt time.Time `json:"createdAt"`
	// Ports are those that its manifest names; they are not shown.
	Ports []corev1.ContainerPort `json:"-"`
}

// List reads all pods and containers, by namespace and name. Of each
// container only the latest attempt is kept.
func List(ctx context.Context, client runtimeapi.RuntimeServiceClient) ([]Pod, error) {
	sandboxes, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	list, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	containers := map[string][]Container{}
	for _, c := range list.GetContainers() {
		containers[c.GetPodSandboxId()] = append(containers[c.GetPodSandboxId()], viewContainer(c))
	}
	pods := make([]Pod, 0, len(sandboxes.GetItems()))
	for _, s := range sandboxes.GetItems() {
		p := Pod{
			ID: s.GetId(), Namespace: s.GetMetadata().GetNamespace(), Name: s.GetMetadata().GetName(), UID: s.GetMetadata().GetUid(),
			Class: s.GetAnnotations()[podspec.AnnotationClass], Handler: s.GetRuntimeHandler(),
			State: "Stopped", CreatedAt: time.Unix(0, s.GetCreatedAt()),
			Containers: latest(containers[s.GetId()]), Annotations: s.GetAnnotations(), Labels: s.GetLabels(),
		}
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			p.State = podState(p.Containers)
		}
		pods = append(pods, p)
	}
	slices.SortFunc(pods, func(a, b Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.ID, b.Namespace+"/"+b.Name+"/"+b.ID)
	})
	return pods, nil
}

// Previous is the attempt of a container before the one that is listed.
func Previous(ctx context.Context, client runtimeapi.RuntimeServiceClient, p *Pod, c *Container) (*Container, error) {
	if c.Attempt == 0 {
		return nil, fmt.Errorf("container %s of pod %s was not restarted, so that there is nothing previous: %w", c.Name, p.ShortName(), errdefs.ErrNotFound)
	}
	list, err := client.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{podspec.LabelPodUID: p.UID}}})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	var found *Container
	for _, item := range list.GetContainers() {
		v := viewContainer(item)
		if v.Name == c.Name && v.Attempt < c.Attempt && (found == nil || v.Attempt > found.Attempt) {
			found = &v
		}
	}
	if found == nil {
		return nil, fmt.Errorf("the attempt of container %s of pod %s before this one was removed, and its log with it: %w", c.Name, p.ShortName(), errdefs.ErrNotFound)
	}
	return found, nil
}

// podState sums up the containers of a sandbox that is up.
func podState(list []Container) string {
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

func viewContainer(c *runtimeapi.Container) Container {
	image := c.GetImage().GetUserSpecifiedImage()
	if image == "" {
		image = c.GetImage().GetImage()
	}
	state := strings.TrimPrefix(c.GetState().String(), "CONTAINER_")
	return Container{
		ID: c.GetId(), Name: c.GetMetadata().GetName(), Attempt: c.GetMetadata().GetAttempt(), Image: image,
		State: state[:1] + strings.ToLower(state[1:]), CreatedAt: time.Unix(0, c.GetCreatedAt()),
		Ports: podspec.PortsOf(c.GetAnnotations()),
	}
}

// latest keeps the last attempt of each container, oldest container first.
func latest(list []Container) []Container {
	byName := map[string]Container{}
	for _, c := range list {
		if have, ok := byName[c.Name]; !ok || c.Attempt > have.Attempt || (c.Attempt == have.Attempt && c.CreatedAt.After(have.CreatedAt)) {
			byName[c.Name] = c
		}
	}
	out := make([]Container, 0, len(byName))
	for _, c := range byName {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Container) int {
		if n := a.CreatedAt.Compare(b.CreatedAt); n != 0 {
			return n
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out
}
