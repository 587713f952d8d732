package cri

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

func TestPodStatusAndFilters(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	began := time.Now().UnixNano()
	a := n.RunPod("runc", func(p *runtimeapi.PodSandboxConfig) {
		p.Labels = map[string]string{"app": "a", "tier": "x"}
		p.Annotations = map[string]string{"note": "kept as it is"}
		p.Metadata.Attempt = 3
	})
	b := n.RunPod("crun", func(p *runtimeapi.PodSandboxConfig) { p.Labels = map[string]string{"app": "b", "tier": "x"} })
	if _, err := n.Runtime.StopPodSandbox(n.Ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: b.ID}); err != nil {
		t.Fatal(err)
	}
	st, err := n.Runtime.PodSandboxStatus(n.Ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: a.ID, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	s := st.Status
	if s.Metadata.Name != a.Config.Metadata.Name || s.Metadata.Attempt != 3 || s.Metadata.Uid != a.Config.Metadata.Uid || s.Metadata.Namespace != "test" {
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
		"none":      {nil, []string{a.ID, b.ID}},
		"id":        {&runtimeapi.PodSandboxFilter{Id: a.ID}, []string{a.ID}},
		"short id":  {&runtimeapi.PodSandboxFilter{Id: b.ID[:13]}, []string{b.ID}},
		"state":     {&runtimeapi.PodSandboxFilter{State: ready}, []string{a.ID}},
		"label":     {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"tier": "x"}}, []string{a.ID, b.ID}},
		"labels":    {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"tier": "x", "app": "b"}}, []string{b.ID}},
		"all of it": {&runtimeapi.PodSandboxFilter{Id: b.ID, State: ready}, nil},
		"unknown":   {&runtimeapi.PodSandboxFilter{Id: "0000"}, nil},
	} {
		l, err := n.Runtime.ListPodSandbox(n.Ctx(), &runtimeapi.ListPodSandboxRequest{Filter: tt.filter})
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
	n := node.Start(t, "")
	image := n.Pull(node.Busybox)
	s, other := n.RunPod("crun"), n.RunPod("runc")
	cfg := node.Script("sleep 1000")
	cfg.Labels, cfg.Annotations = map[string]string{"role": "main"}, map[string]string{"note": "kept"}
	cfg.Metadata.Attempt = 2
	dir := hostDir(t)
	mounts(&runtimeapi.Mount{HostPath: dir, ContainerPath: "/m", Readonly: true})(cfg)
	a := s.Start(cfg)
	b := s.Create(node.Script("true"))
	c := other.Start(node.Script("exit 4"))
	c.Wait()

	st := a.Status()
	if st.Metadata.Attempt != 2 || st.Labels["role"] != "main" || st.Annotations["note"] != "kept" || st.ImageId != image || st.ImageRef == "" || st.Image.GetImage() == "" {
		t.Errorf("%+v", st)
	}
	if st.LogPath != a.LogPath() || len(st.Mounts) != 1 || st.Mounts[0].HostPath != dir || !st.Mounts[0].Readonly || st.User.GetLinux() == nil {
		t.Errorf("%+v", st)
	}
	for _, specified := range []string{"", "friendly/busybox"} {
		byID := node.Script("true")
		byID.Image.Image, byID.Image.UserSpecifiedImage = image, specified
		c := s.Create(byID)
		if got := c.Status().Image.GetImage(); got != cmp.Or(specified, node.Busybox) {
			t.Errorf("an image that is given by its id, specified as %q, is shown as %q", specified, got)
		}
		c.Remove()
	}
	if got := b.Status(); got.State != runtimeapi.ContainerState_CONTAINER_CREATED || got.StartedAt != 0 || got.FinishedAt != 0 {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(filepath.Dir(a.LogPath())); err != nil {
		t.Error(err)
	}
	running := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	for name, tt := range map[string]struct {
		filter *runtimeapi.ContainerFilter
		want   []string
	}{
		"none":  {nil, []string{a.ID, b.ID, c.ID}},
		"pod":   {&runtimeapi.ContainerFilter{PodSandboxId: s.ID}, []string{a.ID, b.ID}},
		"state": {&runtimeapi.ContainerFilter{State: running}, []string{a.ID}},
		"label": {&runtimeapi.ContainerFilter{LabelSelector: map[string]string{"role": "main"}}, []string{a.ID}},
		"id":    {&runtimeapi.ContainerFilter{Id: c.ID[:20]}, []string{c.ID}},
		"both":  {&runtimeapi.ContainerFilter{PodSandboxId: other.ID, State: running}, nil},
	} {
		l, err := n.Runtime.ListContainers(n.Ctx(), &runtimeapi.ListContainersRequest{Filter: tt.filter})
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
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	s := n.RunPod("crun")
	again, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: s.Config, RuntimeHandler: "crun"})
	if err != nil || again.PodSandboxId != s.ID {
		t.Errorf("%v %v", again, err)
	}
	cfg := node.Script("sleep 1000")
	c := s.Create(cfg)
	id, err := s.TryCreate(cfg)
	if err != nil || id != c.ID {
		t.Errorf("%v %v", id, err)
	}
	for range 2 {
		if err := c.TryStart(); err != nil {
			t.Error(err)
		}
	}
}
