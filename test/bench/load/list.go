package load

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The names of calls that only look.
const (
	ListPods        = "ListPodSandbox"
	ListContainers  = "ListContainers"
	PodStatus       = "PodSandboxStatus"
	ContainerStatus = "ContainerStatus"
	Status          = "Status"
)

// Look lists everything, and asks for the state of one pod and its container,
// n times each. pods are all that there are.
func (t Target) Look(ctx context.Context, pods []*Pod, n int) error {
	rt := t.System.Runtime
	for i := range n {
		p := pods[i*len(pods)/n]
		for _, step := range []struct {
			name string
			call func() error
		}{
			{ListPods, func() error {
				r, err := rt.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
				return counted(len(r.GetItems()), len(pods), err)
			}},
			{ListContainers, func() error {
				r, err := rt.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
				return counted(len(r.GetContainers()), len(pods), err)
			}},
			{PodStatus, func() error {
				_, err := rt.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.ID})
				return err
			}},
			{ContainerStatus, func() error {
				_, err := rt.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: p.Container})
				return err
			}},
			{Status, func() error {
				_, err := rt.Status(ctx, &runtimeapi.StatusRequest{})
				return err
			}},
		} {
			if err := t.take(step.name, step.call); err != nil {
				return t.failed(err)
			}
		}
	}
	return nil
}

func counted(got, want int, err error) error {
	if err == nil && got != want {
		err = fmt.Errorf("it lists %d and there are %d", got, want)
	}
	return err
}
