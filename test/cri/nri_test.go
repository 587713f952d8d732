package cri

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// A plugin hears of everything that happens to a pod and its container, in order
// and once.
func TestPluginHearsOfEverything(t *testing.T) {
	node.UnderEach(t, func(t *testing.T, n *node.Node, h string) {
		p := connect(t, n, "10", "watch", &plugin{})
		s := n.RunPod(h)
		c := s.Start(node.Script("sleep 1000"))
		if err := updateMemory(n, c.ID, 64<<20); err != nil {
			t.Fatal(err)
		}
		_, err := n.Runtime.UpdatePodSandboxResources(n.Ctx(), &runtimeapi.UpdatePodSandboxResourcesRequest{
			PodSandboxId: s.ID, Overhead: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1 << 20},
			Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 99 << 20},
		})
		if err != nil {
			t.Fatal(err)
		}
		c.Stop(0)
		c.Stop(0)
		life := []string{
			"CreateContainer", "PostCreateContainer", "StartContainer", "PostStartContainer",
			"UpdateContainer", "PostUpdateContainer", "StopContainer",
		}
		p.told(t, c.ID, life...)
		c.Remove()
		p.told(t, c.ID, append(life, "RemoveContainer")...)
		ended := s.Start(node.Script("exit 3"))
		ended.Wait()
		p.told(t, ended.ID, append(life[:4:4], "StopContainer")...) // nobody asked for its end
		never := s.Create(node.Script("true"))
		s.Remove()
		p.told(t, never.ID, "CreateContainer", "PostCreateContainer", "StopContainer", "RemoveContainer")
		p.told(t, ended.ID, append(life[:4:4], "StopContainer", "RemoveContainer")...)
		p.told(t, s.ID, "RunPodSandbox", "UpdatePodSandbox 1048576 103809024", "PostUpdatePodSandbox", "StopPodSandbox", "RemovePodSandbox")
		e := p.find("PostStartContainer", c.ID)
		if e.pod.GetName() != s.Config.Metadata.Name || e.pod.GetRuntimeHandler() != h || len(e.pod.GetIps()) == 0 ||
			e.container.GetName() != c.Config.Metadata.Name || e.container.GetPid() == 0 || len(e.container.GetMounts()) == 0 ||
			e.container.GetState() != api.ContainerState_CONTAINER_RUNNING || !strings.Contains(strings.Join(e.container.GetArgs(), " "), "sleep 1000") {
			t.Errorf("the plugin saw %+v of %+v", e.container, e.pod)
		}
		if e := p.find("StopContainer", ended.ID); e.container.GetExitCode() != 3 {
			t.Errorf("it ended with %d", e.container.GetExitCode())
		}
	})
}

// adjustAll changes everything that these runtimes can.
func adjustAll(host, hook string) *api.ContainerAdjustment {
	a := &api.ContainerAdjustment{}
	a.AddAnnotation("plugin.example/note", "seen")
	a.AddMount(&api.Mount{Source: host, Destination: "/from/plugin", Type: "bind", Options: []string{"rbind", "ro"}})
	a.AddEnv("ADDED", "by plugin")
	a.AddEnv("CHANGED", "after")
	a.RemoveEnv("GONE")
	a.UpdateArgs([]string{"sh", "-c", "sleep 1001"})
	a.AddHooks(&api.Hooks{CreateRuntime: []*api.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "echo hooked >> " + hook}}}})
	a.AddRlimit("RLIMIT_NOFILE", 333, 222)
	a.AddDevice(&api.LinuxDevice{Path: "/dev/plugin", Type: "c", Major: 1, Minor: 5, FileMode: api.FileMode(os.FileMode(0o666))})
	a.AddCDIDevice(&api.CDIDevice{Name: "vendor.example/gpu=gpu0"})
	a.SetLinuxSysctl("kernel.shm_rmid_forced", "1")
	a.SetLinuxMemoryLimit(48 << 20)
	a.SetLinuxPidLimits(55)
	a.SetLinuxCPUShares(300)
	score := 700
	a.SetLinuxOomScoreAdj(&score)
	return a
}

// What plugins adjust is in the container, is kept over a restart of the daemon,
// and over a change of other limits.
func TestPluginAdjusts(t *testing.T) {
	n, dirs, hook := cdiNode(t, "")
	writeCDI(t, dirs[0], "vendor.json", `{"cdiVersion":"0.5.0","kind":"vendor.example/gpu","devices":[{"name":"gpu0","containerEdits":{"env":["GPU=0"]}}]}`)
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "file"), []byte("of the plugin\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, h := range node.Handlers {
		adjusts := &plugin{onCreate: func(*api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
			return adjustAll(data, hook), nil, nil
		}}
		p := connect(t, n, "10", "adjust", adjusts)
		s := n.RunPod(h)
		cfg := node.Script("sleep 1000")
		cfg.Envs = []*runtimeapi.KeyValue{{Key: "CHANGED", Value: []byte("before")}, {Key: "GONE", Value: []byte("x")}}
		c := s.Start(cfg)
		out := c.Exec("sh", "-c", `cat /from/plugin/file; touch /from/plugin/x 2>/dev/null && echo writable
			echo $ADDED,$CHANGED,$GONE,$GPU; tr '\0' ' ' </proc/1/cmdline; echo; grep files /proc/1/limits | tr -s ' '
			head -c 2 /dev/plugin | wc -c; cat /proc/sys/kernel/shm_rmid_forced /proc/1/oom_score_adj`)
		must(t, out, "of the plugin\nby plugin,after,,0\nsleep 1001 \nMax open files 222 333 files \n2\n1\n700\n")
		if made, err := os.ReadFile(hook); err != nil || string(made) != "hooked\n" {
			t.Errorf("the hook made %q, %v", made, err)
		}
		limits := func(memory string) {
			t.Helper()
			must(t, memoryLimit(c), memory)
			must(t, c.CgroupFile("pids", "pids.max", "pids.max"), "55")
		}
		limits("50331648")
		if got := c.Status().GetResources().GetLinux(); got.GetMemoryLimitInBytes() != 48<<20 || got.GetCpuShares() != 300 {
			t.Errorf("status: %+v", got)
		}
		after := p.find("PostCreateContainer", c.ID).container
		if env := strings.Join(after.GetEnv(), " "); !strings.Contains(env, "ADDED=by plugin") || strings.Contains(env, "GONE") {
			t.Errorf("PostCreateContainer shows the environment %s", env)
		}
		p.Stub.Stop()
		n.Kill(syscall.SIGKILL)
		n.Start()
		if err := updateMemory(n, c.ID, 96<<20); err != nil { // nobody is there to change that
			t.Fatal(err)
		}
		limits("100663296")
		s.Remove()
		if err := os.Remove(hook); err != nil {
			t.Error(err)
		}
	}
}

// Plugins refuse pods and containers; what was begun is taken back, and the next
// attempt is a new one.
func TestPluginRefuses(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	refuse := errors.New("not on this node")
	n.RunPod("crun").Remove() // from now on nothing but a plugin is in the way
	p := connect(t, n, "10", "refuse", &plugin{
		onRun: func(s *api.PodSandbox) error {
			if s.GetLabels()["refuse"] != "" {
				return refuse
			}
			return nil
		},
		onCreate: func(_ *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
			switch c.GetLabels()["refuse"] {
			case "create":
				return nil, nil, refuse
			case "class":
				a := &api.ContainerAdjustment{}
				a.SetLinuxBlockIOClass("fast")
				return a, nil, nil
			case "mount":
				a := &api.ContainerAdjustment{}
				a.AddMount(&api.Mount{Destination: "relative"})
				return a, nil, nil
			case "scheduler":
				a := &api.ContainerAdjustment{}
				a.SetLinuxScheduler(&api.LinuxScheduler{Policy: api.LinuxSchedulerPolicy_SCHED_BATCH})
				return a, nil, nil
			}
			return nil, nil, nil
		},
		judge: func(r *api.ValidateContainerAdjustmentRequest) error {
			if r.GetContainer().GetLabels()["refuse"] == "judge" {
				return refuse
			}
			return nil
		},
	})
	bad := n.PodConfig(func(c *runtimeapi.PodSandboxConfig) { c.Labels = map[string]string{"refuse": "run"} })
	_, err := n.Runtime.RunPodSandbox(n.Ctx(), &runtimeapi.RunPodSandboxRequest{Config: bad, RuntimeHandler: "crun"})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), refuse.Error()) {
		t.Errorf("a refused pod: %v", err)
	}
	pods, err := n.Runtime.ListPodSandbox(n.Ctx(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(pods.Items) != 0 {
		t.Errorf("%v, %v", pods, err)
	}
	s := n.RunPod("crun")
	for label, words := range map[string]string{
		"create": refuse.Error(), "class": "fast", "mount": "relative", "judge": refuse.Error(), "scheduler": "1.8.5",
	} {
		if label == "scheduler" && !oldCrun(t) {
			continue
		}
		cfg := node.Script("sleep 1000")
		cfg.Labels = map[string]string{"refuse": label}
		if _, err := s.TryCreate(cfg); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", label, err)
		}
	}
	left, err := n.Runtime.ListContainers(n.Ctx(), &runtimeapi.ListContainersRequest{})
	if err != nil || len(left.Containers) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	c := s.Start(node.Script("sleep 1000"))
	p.told(t, c.ID, "CreateContainer", "PostCreateContainer", "StartContainer", "PostStartContainer")
	s.Remove()
}

// Plugins change the limits of other containers, when they are asked and when
// they are not.
func TestPluginLimitsOthers(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	s := n.RunPod("crun")
	first := s.Start(node.Script("sleep 1000"))
	p := connect(t, n, "10", "limit", &plugin{
		onSync: func(_ []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
			if len(containers) != 1 {
				return nil, fmt.Errorf("shown %d containers", len(containers))
			}
			return []*api.ContainerUpdate{limit(containers[0].GetId(), 32<<20)}, nil
		},
		onCreate: func(*api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
			return nil, []*api.ContainerUpdate{limit(first.ID, 33<<20)}, nil
		},
		onUpdate: func(c *api.Container, r *api.LinuxResources) ([]*api.ContainerUpdate, error) {
			return []*api.ContainerUpdate{limit(c.GetId(), r.GetMemory().GetLimit().GetValue()+4096), limit(first.ID, 34<<20)}, nil
		},
		onStop: func(*api.Container) ([]*api.ContainerUpdate, error) {
			return []*api.ContainerUpdate{limit(first.ID, 35<<20)}, nil
		},
	})
	node.Eventually(t, "the limit from Synchronize", func() bool { return memoryLimit(first) == fmt.Sprint(32<<20) })
	second := s.Start(node.Script("sleep 1000"))
	must(t, memoryLimit(first), fmt.Sprint(33<<20))
	if err := updateMemory(n, second.ID, 64<<20); err != nil {
		t.Fatal(err)
	}
	must(t, memoryLimit(first), fmt.Sprint(34<<20))
	must(t, memoryLimit(second), fmt.Sprint(64<<20+4096))
	second.Stop(0) // may return before what plugins want of others is done
	node.Eventually(t, "the limit from StopContainer", func() bool { return memoryLimit(first) == fmt.Sprint(35<<20) })
	if failed, err := p.Stub.UpdateContainers([]*api.ContainerUpdate{limit(first.ID, 36<<20)}); err != nil || len(failed) != 0 {
		t.Errorf("%v, %v", failed, err)
	}
	must(t, memoryLimit(first), fmt.Sprint(36<<20))
	if first.Status().GetResources().GetLinux().GetMemoryLimitInBytes() != 36<<20 {
		t.Errorf("%+v", first.Status().GetResources())
	}
	_, err := p.Stub.UpdateContainers([]*api.ContainerUpdate{limit("nobody", 1<<20)})
	if err == nil {
		t.Error("a container that does not exist was given limits")
	}
	s.Remove()
}

// A plugin that hangs is waited for once, then it is gone; pods do without.
func TestPluginHangs(t *testing.T) {
	// Long enough for the plugin that works, also on an emulated processor.
	n := node.Start(t, fmt.Sprintf("[nri]\nrequest_timeout = %q\n", node.Patience/30))
	n.Pull(node.Busybox)
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	p := connect(t, n, "10", "hang", &plugin{
		onCreate: func(*api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
			<-hang
			return nil, nil, nil
		},
	})
	other := connect(t, n, "20", "works", &plugin{})
	s := n.RunPod("crun")
	c := s.Start(node.Script("sleep 1000"))
	other.told(t, c.ID, "CreateContainer", "PostCreateContainer", "StartContainer", "PostStartContainer")
	select {
	case <-p.closed:
	case <-time.After(node.Patience):
		t.Error("it is still connected")
	}
	if got := p.of(c.ID); len(got) != 1 {
		t.Errorf("it was told %v", got)
	}
	s.Remove()
}

// A plugin that dies in the middle of a call loses nothing but itself.
func TestPluginDies(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	dying := &plugin{}
	dying.onCreate = func(*api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
		go dying.Stub.Stop()
		<-dying.closed
		return nil, nil, nil
	}
	connect(t, n, "10", "dying", dying)
	s := n.RunPod("crun")
	c := s.Start(node.Script("sleep 1000"))
	must(t, c.Exec("echo", "lives"), "lives\n")
	p := connect(t, n, "10", "next", &plugin{})
	c.Stop(0)
	p.told(t, c.ID, "StopContainer")
	s.Remove()
}

// After the daemon's death a plugin that comes back sees what lives, and not what
// has ended.
func TestPluginAfterRestart(t *testing.T) {
	n := node.Start(t, "")
	n.Pull(node.Busybox)
	s := n.RunPod("crun")
	lives := s.Start(node.Script("sleep 1000"))
	created := s.Create(node.Script("true"))
	ended := s.Start(node.Script("true"))
	ended.Wait()
	gone := n.RunPod("crun")
	if _, err := n.Runtime.StopPodSandbox(n.Ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: gone.ID}); err != nil {
		t.Fatal(err)
	}
	n.Kill(syscall.SIGKILL)
	n.Start()
	var pods, containers []string
	states := map[string]api.ContainerState{}
	p := connect(t, n, "10", "late", &plugin{
		onSync: func(ps []*api.PodSandbox, cs []*api.Container) ([]*api.ContainerUpdate, error) {
			for _, p := range ps {
				pods = append(pods, p.GetId())
			}
			for _, c := range cs {
				containers = append(containers, c.GetId())
				states[c.GetId()] = c.GetState()
			}
			return nil, nil
		},
	})
	must(t, fmt.Sprint(pods), fmt.Sprint([]string{s.ID}))
	must(t, fmt.Sprint(containers), fmt.Sprint([]string{lives.ID, created.ID}))
	if states[lives.ID] != api.ContainerState_CONTAINER_RUNNING || states[created.ID] != api.ContainerState_CONTAINER_CREATED {
		t.Errorf("%v", states)
	}
	s.Remove()
	gone.Remove()
	p.told(t, lives.ID, "StopContainer", "RemoveContainer")
	p.told(t, ended.ID, "RemoveContainer")
	p.told(t, gone.ID, "RemovePodSandbox")
}

// A node whose socket is another runtime's leaves it alone.
func TestPluginSocketOfAnother(t *testing.T) {
	first := node.Start(t, "")
	p := connect(t, first, "10", "mine", &plugin{})
	second := node.Start(t, fmt.Sprintf("[nri]\nsocket = %q\n", pluginSocket(first)))
	if !strings.Contains(second.DaemonLog(), "another runtime serves NRI plugins") {
		t.Error("nothing in the log")
	}
	s := first.RunPod("crun")
	s.Remove()
	p.told(t, s.ID, "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox")
}

func TestPluginsDisabled(t *testing.T) {
	n := node.Start(t, "[nri]\ndisable = true\n")
	if _, err := os.Stat(pluginSocket(n)); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
