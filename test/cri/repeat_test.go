package cri

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestStopPodTwiceAndRemoveWithRunningContainers(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		s := n.runPod(h)
		a, b := s.start(script("sleep 1000")), s.start(script("sleep 1000"))
		// A running container may be removed.
		a.remove()
		a.remove()
		if _, err := n.runtime.ContainerStatus(n.ctx(), &runtimeapi.ContainerStatusRequest{ContainerId: a.id}); err == nil {
			t.Error("a removed container has a status")
		}
		for range 2 {
			if _, err := n.runtime.StopPodSandbox(n.ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.id}); err != nil {
				t.Fatal(err)
			}
		}
		if st := b.status(); st.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.ExitCode != 137 {
			t.Errorf("in a stopped pod: %+v", st)
		}
		if _, err := s.tryCreate(script("true")); err == nil {
			t.Error("a stopped pod took a container")
		}
		// Running containers do not keep a pod from being removed.
		o := n.runPod(h)
		o.start(script("sleep 1000"))
		for range 2 {
			if _, err := n.runtime.RemovePodSandbox(n.ctx(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: o.id}); err != nil {
				t.Fatal(err)
			}
		}
		s.remove()
	})
}

func TestStopEndsInTimeEvenIfEverythingIgnoresIt(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		s := n.runPod(h)
		c := s.start(script("trap '' TERM; (trap '' TERM; while :; do sleep 0.1; done) & echo ready; while :; do sleep 0.1; done"))
		eventually(t, "ready", func() bool { return strings.Contains(c.log(), "ready") })
		began := time.Now()
		c.stop(1)
		if took := time.Since(began); took < time.Second || took > 3*time.Second {
			t.Errorf("took %s, want the grace of 1s and at most 2s more", took)
		}
		s.remove()
	})
}

func TestLogPathStaysInTheLogDirectory(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		s := n.runPod(h)
		outside := filepath.Join(n.dir, "outside.log")
		for _, path := range []string{"../../outside.log", outside} {
			cfg := script("echo secret")
			cfg.LogPath = path
			id, err := s.tryCreate(cfg)
			if err == nil {
				err = (&container{s, id, cfg}).tryStart()
			}
			if err == nil || !strings.Contains(err.Error(), "log_path") {
				t.Errorf("log path %s: %v", path, err)
			}
		}
		if _, err := os.Stat(outside); err == nil {
			t.Error("a log was written outside the pod's log directory")
		}
		s.remove()
	})
}

func TestUnwritableLogPath(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		s := n.runPod(h)
		cfg := script("sleep 1000")
		if err := os.MkdirAll(filepath.Join(s.config.LogDirectory, cfg.LogPath), 0o755); err != nil {
			t.Fatal(err)
		}
		id, err := s.tryCreate(cfg)
		if err == nil {
			err = (&container{s, id, cfg}).tryStart()
		}
		if err == nil || !strings.Contains(err.Error(), cfg.LogPath) {
			t.Errorf("a folder for a log: %v", err)
		}
		s.remove()
		if left := n.ofPods(); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

// Pods of every kind survive a daemon that is killed and one that is ended.
func TestRestartsWithPodsOfEveryKind(t *testing.T) {
	underEach(t, func(t *testing.T, n *node, h string) {
		plain, shared := n.runPod(h), n.runPod(h, sharedPID)
		host := n.runPod(h, func(p *runtimeapi.PodSandboxConfig) {
			o := p.Linux.SecurityContext.NamespaceOptions
			o.Network, o.Pid, o.Ipc = runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_NODE, runtimeapi.NamespaceMode_NODE
			p.Hostname = ""
		})
		stopped := n.runPod(h)
		if _, err := n.runtime.StopPodSandbox(n.ctx(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: stopped.id}); err != nil {
			t.Fatal(err)
		}
		terminal := script("sleep 1000")
		terminal.Tty, terminal.Stdin = true, true
		tty := plain.start(terminal)
		created := plain.create(script("sleep 1000"))
		ended := plain.start(script("exit 4"))
		ended.wait()
		running := []*container{tty}
		for _, s := range []*sandbox{shared, host} {
			cfg := script("sleep 1000")
			cfg.Linux.SecurityContext.NamespaceOptions = s.config.Linux.SecurityContext.NamespaceOptions
			running = append(running, s.start(cfg))
		}
		late := plain.start(script("while [ ! -e /go ]; do sleep 0.05; done; exit 6"))
		ips := plain.ips()
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
			n.kill(sig)
			n.start()
			for _, c := range running {
				if st := c.status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
					t.Errorf("after %s: %+v", sig, st)
				}
				must(t, c.exec("echo", "alive"), "alive")
			}
			if st := created.status(); st.State != runtimeapi.ContainerState_CONTAINER_CREATED {
				t.Errorf("after %s: %+v", sig, st)
			}
			if st := ended.status(); st.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.ExitCode != 4 {
				t.Errorf("after %s: %+v", sig, st)
			}
			if got := plain.ips(); strings.Join(got, " ") != strings.Join(ips, " ") {
				t.Errorf("after %s: addresses %v, were %v", sig, got, ips)
			}
			st, err := n.runtime.PodSandboxStatus(n.ctx(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: stopped.id})
			if err != nil || st.Status.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
				t.Errorf("after %s: %+v %v", sig, st, err)
			}
		}
		// What ends while no daemon looks is known by the next.
		late.exec("true")
		pid := late.exec("sh", "-c", "(sleep 0.5; touch /go) >/dev/null 2>&1 & echo ok")
		must(t, pid, "ok")
		n.kill(syscall.SIGKILL)
		time.Sleep(time.Second)
		n.start()
		if st := late.wait(); st.ExitCode != 6 {
			t.Errorf("ended alone: %+v", st)
		}
		if err := created.tryStart(); err != nil {
			t.Error(err)
		}
		for _, s := range []*sandbox{plain, shared, host, stopped} {
			s.remove()
		}
	})
}
