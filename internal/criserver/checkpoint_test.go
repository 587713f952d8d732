package criserver

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/errdefs"
)

func TestCheckpointContainer(t *testing.T) {
	f := newFake()
	s := f.server(t, nil)
	id := string(f.pods[0].Containers[2].ID)
	_, err := s.CheckpointContainer(t.Context(), &cri.CheckpointContainerRequest{ContainerId: id[:3], Location: "/a//b.tar", Timeout: 7})
	if err != nil || len(f.calls) != 1 || !strings.HasPrefix(f.calls[0], "CheckpointContainer "+id[:3]) || !strings.HasSuffix(f.calls[0], " to /a/b.tar within 7s") {
		t.Fatalf("%v %q", err, f.calls)
	}
	var status cri.ContainerStatus
	if err := json.Unmarshal(f.files[0]["status.dump"], &status); err != nil || status.Id != id {
		t.Errorf("its status is of %q: %v", status.Id, err)
	}
	for want, r := range map[string]*cri.CheckpointContainerRequest{
		"container_id is required":  {Location: "/x"},
		"location is required":      {ContainerId: id},
		"location is \"x\"":         {ContainerId: id, Location: "x"},
		"location has a NUL":        {ContainerId: id, Location: "/x\x00"},
		"timeout is -1":             {ContainerId: id, Location: "/x", Timeout: -1},
		"timeout is 10000000000000": {ContainerId: id, Location: "/x", Timeout: 10000000000000},
	} {
		if _, err := s.CheckpointContainer(t.Context(), r); !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s: %v", want, err)
		}
	}
	if _, err := s.CheckpointContainer(t.Context(), &cri.CheckpointContainerRequest{ContainerId: "none", Location: "/x"}); !errors.Is(err, errdefs.ErrNotFound) {
		t.Error(err)
	}
	if len(f.calls) != 1 {
		t.Errorf("a bad request reached the core: %q", f.calls)
	}
}

func TestCheckpointPod(t *testing.T) {
	f := newFake()
	s := f.server(t, nil)
	p := f.pods[0]
	id := string(p.Containers[2].ID)
	_, err := s.CheckpointPod(t.Context(), &cri.CheckpointPodRequest{PodSandboxId: string(p.ID), OutputPath: "/a/", ContainerIds: []string{id, "stranger"}})
	if err != nil || !slices.Equal(f.calls, []string{"CheckpointPod " + p.ID.Short() + " of 2 to /a"}) {
		t.Fatalf("%v %q", err, f.calls)
	}
	var options struct {
		Version    int
		Containers []string
	}
	if err := json.Unmarshal(f.files[0][podOptionsFile], &options); err != nil || options.Version != 1 || !slices.Equal(options.Containers, []string{p.Containers[2].Config.Metadata.Name}) {
		t.Errorf("%+v %v", options, err)
	}
	var dump struct{ Metadata struct{ Name string } }
	if err := json.Unmarshal(f.files[0][podFile], &dump); err != nil || dump.Metadata.Name != p.Config.Metadata.Name {
		t.Errorf("%+v %v", dump, err)
	}
	if len(f.files) != 2 || f.files[1][statusFile] == nil {
		t.Errorf("the container's status is missing: %v", f.files)
	}
	for want, r := range map[string]*cri.CheckpointPodRequest{
		"pod_sandbox_id is required": {OutputPath: "/x", ContainerIds: []string{id}},
		"output_path is required":    {PodSandboxId: string(p.ID), ContainerIds: []string{id}},
		"output_path is \"x\"":       {PodSandboxId: string(p.ID), OutputPath: "x", ContainerIds: []string{id}},
		"container_ids is empty":     {PodSandboxId: string(p.ID), OutputPath: "/x"},
		"options has \"speed\"":      {PodSandboxId: string(p.ID), OutputPath: "/x", ContainerIds: []string{id}, Options: map[string]string{"speed": "1"}},
	} {
		if _, err := s.CheckpointPod(t.Context(), r); !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s: %v", want, err)
		}
	}
	if len(f.calls) != 1 {
		t.Errorf("a bad request reached the core: %q", f.calls)
	}
}

func TestRestorePod(t *testing.T) {
	f := newFake()
	s := f.server(t, nil)
	request := func() *cri.RestorePodRequest {
		return &cri.RestorePodRequest{
			CheckpointPath: "/a/", RuntimeHandler: "runc", Config: &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: "p", Uid: "u", Namespace: "n"}},
			ContainerConfigs: []*cri.ContainerConfig{{Metadata: &cri.ContainerMetadata{Name: "c"}, Image: &cri.ImageSpec{Image: "i"}}},
		}
	}
	got, err := s.RestorePod(t.Context(), request())
	if err != nil || !slices.Equal(f.calls, []string{`RestorePod p from /a on "runc" with 1`}) {
		t.Fatalf("%v %q", err, f.calls)
	}
	if got.PodSandboxId != "newpod" || len(got.RestoredContainers) != 1 || got.RestoredContainers[0].Name != "c" || got.RestoredContainers[0].ContainerId != "newcontainer" {
		t.Errorf("%v", got)
	}
	for want, change := range map[string]func(*cri.RestorePodRequest){
		"checkpoint_path is required":        func(r *cri.RestorePodRequest) { r.CheckpointPath = "" },
		"checkpoint_path is \"x\"":           func(r *cri.RestorePodRequest) { r.CheckpointPath = "x" },
		"container_configs is empty":         func(r *cri.RestorePodRequest) { r.ContainerConfigs = nil },
		"container_configs[0].metadata.name": func(r *cri.RestorePodRequest) { r.ContainerConfigs[0].Metadata.Name = "" },
		"config.metadata":                    func(r *cri.RestorePodRequest) { r.Config.Metadata = nil },
		"options has \"x\"":                  func(r *cri.RestorePodRequest) { r.Options = map[string]string{"x": ""} },
	} {
		r := request()
		change(r)
		if _, err := s.RestorePod(t.Context(), r); !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s: %v", want, err)
		}
	}
	if len(f.calls) != 1 {
		t.Errorf("a bad request reached the core: %q", f.calls)
	}
}
