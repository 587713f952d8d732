package load

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The names of calls that only look.
const (
	ListPods        = "ListPodSandbox"
	ListContainers  = "ListContainers"
	PodStatus       = "PodSandboxStatus"
	ContainerStatus = "ContainerStatus"
	Status          = "Status"
	ContainerStats  = "ContainerStats"
	PodStats        = "PodSandboxStats"
	ListStats       = "ListContainerStats"
	ListPodStats    = "ListPodSandboxStats"
	ListMetrics     = "ListPodSandboxMetrics"
	// DecodeMetrics is no call, but what the client does with the answer to one:
	// no server makes the call shorter than that.
	DecodeMetrics = "decoding of ListPodSandboxMetrics"
)

// enough is the time after which a call is not made again: with hundreds of
// containers some daemons need a minute for one of them.
const enough = 30 * time.Second

// Look lists everything, and asks for the state of one pod and its container,
// n times each, or as often as begins within enough. pods are all that there
// are, and so many their containers.
func (t Target) Look(ctx context.Context, pods []*Pod, containers, n int) error {
	rt := t.System.Runtime
	spent := map[string]time.Duration{}
	var metrics *runtimeapi.ListPodSandboxMetricsResponse // the last
	keep := func(r *runtimeapi.ListPodSandboxMetricsResponse) { metrics = r }
	for i := range n {
		p := pods[i*len(pods)/n]
		for _, step := range append(t.lists(ctx, len(pods), containers, keep), []step{
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
			{ContainerStats, func() error {
				_, err := rt.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: p.Container})
				return err
			}},
			{PodStats, func() error {
				_, err := rt.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: p.ID})
				return err
			}},
		}...) {
			if spent[step.name] > enough {
				continue
			}
			begin := time.Now()
			if err := t.take(step.name, step.call); err != nil {
				return t.failed(err)
			}
			spent[step.name] += time.Since(begin)
		}
	}
	return t.decode(metrics, n)
}

// decode measures how long a client takes to decode an answer that it has got.
func (t Target) decode(metrics *runtimeapi.ListPodSandboxMetricsResponse, n int) error {
	raw, err := proto.Marshal(metrics)
	if err != nil {
		return t.failed(err)
	}
	for range n {
		err := t.take(DecodeMetrics, func() error { return proto.Unmarshal(raw, &runtimeapi.ListPodSandboxMetricsResponse{}) })
		if err != nil {
			return t.failed(err)
		}
	}
	return nil
}

// step is one call that is measured.
type step struct {
	name string
	call func() error
}

// lists are the calls that list everything. metrics gets the answer to the one for
// metrics.
func (t Target) lists(ctx context.Context, pods, containers int, metrics func(*runtimeapi.ListPodSandboxMetricsResponse)) []step {
	rt := t.System.Runtime
	return []step{
		{ListPods, func() error {
			r, err := rt.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
			return counted(len(r.GetItems()), pods, err)
		}},
		{ListContainers, func() error {
			r, err := rt.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
			return counted(len(r.GetContainers()), containers, err)
		}},
		{ListStats, func() error {
			r, err := rt.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
			return counted(len(r.GetStats()), containers, err)
		}},
		{ListPodStats, func() error {
			r, err := rt.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
			return counted(len(r.GetStats()), pods, err)
		}},
		{ListMetrics, func() error {
			r, err := rt.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
			metrics(r)
			return counted(len(r.GetPodMetrics()), pods, err)
		}},
	}
}

func counted(got, want int, err error) error {
	if err == nil && got != want {
		err = fmt.Errorf("it lists %d and there are %d", got, want)
	}
	return err
}
