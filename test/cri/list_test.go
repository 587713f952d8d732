package cri

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestPodStatusAndFilters(t *testing.T) {
	n := startNode(t, "")
	n.pull(busybox)
	began := time.Now().UnixNano()
	a := n.runPod("runc", func(p *runtimeapi.PodSandboxConfig) {
		p.Labels = map[string]string{"app": "a", "tier": "x"}
		p.Annotations = map[string]string{"note": "kept as it is"}
		p.Metadata.Attempt = 3
	})
	b := n.runPod("crun", func(p *runtimeapi.PodSandboxConfig) { p.Labels = map[string]string{"app": "b", "tier": "x"} })
	if _, err := n.runtime.StopPodSandbox(n.ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: b.id}); err != nil {
		t.Fatal(err)
	}
	st, err := n.runtime.PodSandboxStatus(n.ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: a.id, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	s := st.Status
	if s.Metadata.Name != a.config.Metadata.Name || s.Metadata.Attempt != 3 || s.Metadata.Uid != a.config.Metadata.Uid || s.Metadata.Namespace != "test" {
		t.Errorf("%+v", s.Metadata)
	}
	if s.State != runtimeapi.PodSandboxState_SANDBOX_READY || s.RuntimeHandler != "runc" || s.Labels["app"] != "a" || s.Annotations["note"] != "kept as it is" {
		t.Errorf("%+v", s)
	}
	if s.CreatedAt < began || s.CreatedAt > time.Now().UnixNano() || len(st.Info) == 0 {
		t.Errorf("created at %d, info %v", s.CreatedAt, st.Info)
	}
	ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	for name, tt := range map[string]struct {
		filter *runtimeapi.PodSandboxFilter
		want   []string
	}{
		"none":      {nil, []string{a.id, b.id}},
		"id":        {&runtimeapi.PodSandboxFilter{Id: a.id}, []string{a.id}},
		"short id":  {&runtimeapi.PodSandboxFilter{Id: b.id[:13]}, []string{b.id}},
		"state":     {&runtimeapi.PodSandboxFilter{State: ready}, []string{a.id}},
		"label":     {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"tier": "x"}}, []string{a.id, b.id}},
		"labels":    {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"tier": "x", "app": "b"}}, []string{b.id}},
		"all of it": {&runtimeapi.PodSandboxFilter{Id: b.id, State: ready}, nil},
		"unknown":   {&runtimeapi.PodSandboxFilter{Id: "0000"}, nil},
	} {
		l, err := n.runtime.ListPodSandbox(n.ctx(), &runtimeapi.ListPodSandboxRequest{Filter: tt.filter})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, p := range l.Items {
			got[p.Id] = true
		}
		same(t, name, got, tt.want)
	}
}

func same(t *testing.T, name string, got map[string]bool, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: got %v, want %v", name, got, want)
	}
	for _, id := range want {
		if !got[id] {
			t.Errorf("%s: %s is missing", name, id)
		}
	}
}

func TestContainerStatusAndFilters(t *testing.T) {
	n := startNode(t, "")
	image := n.pull(busybox)
	s, other := n.runPod("crun"), n.runPod("runc")
	cfg := script("sleep 1000")
	cfg.Labels, cfg.Annotations = map[string]string{"role": "main"}, map[string]string{"note": "kept"}
	cfg.Metadata.Attempt = 2
	dir := hostDir(t)
	mounts(&runtimeapi.Mount{HostPath: dir, ContainerPath: "/m", Readonly: true})(cfg)
	a := s.start(cfg)
	b := s.create(script("true"))
	c := other.start(script("exit 4"))
	c.wait()

	st := a.status()
	if st.Metadata.Attempt != 2 || st.Labels["role"] != "main" || st.Annotations["note"] != "kept" || st.ImageId != image || st.ImageRef == "" || st.Image.GetImage() == "" {
		t.Errorf("%+v", st)
	}
	if st.LogPath != a.logPath() || len(st.Mounts) != 1 || st.Mounts[0].HostPath != dir || !st.Mounts[0].Readonly || st.User.GetLinux() == nil {
		t.Errorf("%+v", st)
	}
	if got := b.status(); got.State != runtimeapi.ContainerState_CONTAINER_CREATED || got.StartedAt != 0 || got.FinishedAt != 0 {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(filepath.Dir(a.logPath())); err != nil {
		t.Error(err)
	}
	running := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	for name, tt := range map[string]struct {
		filter *runtimeapi.ContainerFilter
		want   []string
	}{
		"none":  {nil, []string{a.id, b.id, c.id}},
		"pod":   {&runtimeapi.ContainerFilter{PodSandboxId: s.id}, []string{a.id, b.id}},
		"state": {&runtimeapi.ContainerFilter{State: running}, []string{a.id}},
		"label": {&runtimeapi.ContainerFilter{LabelSelector: map[string]string{"role": "main"}}, []string{a.id}},
		"id":    {&runtimeapi.ContainerFilter{Id: c.id[:20]}, []string{c.id}},
		"both":  {&runtimeapi.ContainerFilter{PodSandboxId: other.id, State: running}, nil},
	} {
		l, err := n.runtime.ListContainers(n.ctx(), &runtimeapi.ListContainersRequest{Filter: tt.filter})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, ctr := range l.Containers {
			got[ctr.Id] = true
		}
		same(t, name, got, tt.want)
	}
}

func TestTheSameRequestGetsTheSamePod(t *testing.T) {
	n := startNode(t, "")
	n.pull(busybox)
	s := n.runPod("crun")
	again, err := n.runtime.RunPodSandbox(n.ctx(), &runtimeapi.RunPodSandboxRequest{Config: s.config, RuntimeHandler: "crun"})
	if err != nil || again.PodSandboxId != s.id {
		t.Errorf("%v %v", again, err)
	}
	cfg := script("sleep 1000")
	c := s.create(cfg)
	id, err := s.tryCreate(cfg)
	if err != nil || id != c.id {
		t.Errorf("%v %v", id, err)
	}
	for range 2 {
		if err := c.tryStart(); err != nil {
			t.Error(err)
		}
	}
}
