package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// underVersion1 runs f under each handler on a host that accounts for memory in
// cgroup v1.
func underVersion1(t *testing.T, f func(t *testing.T, n *node.Node, handler string)) {
	t.Helper()
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.oom_control"); err != nil {
		t.Skip("needs a host with the memory controller on cgroup v1")
	}
	node.UnderEach(t, f)
}

// processOf is a process's state and parent; no state is one that is gone.
func processOf(t *testing.T, pid int) (state string, parent int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	_, back, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(back)
	if parent, err = strconv.Atoi(fields[1]); err != nil {
		t.Fatal(err)
	}
	return fields[0], parent
}

// unwatched is a container whose end and whose cgroup's the monitor finds out
// about together, as it does under systemd when that is quicker.
type unwatched struct {
	*node.Container
	t            *testing.T
	main, parent int
	groups       []string
}

// unwatch looks up what is needed to take the cgroups away.
func unwatch(t *testing.T, c *node.Container) *unwatched {
	t.Helper()
	u := &unwatched{Container: c, t: t}
	// Who started it for the runtime may live for a moment longer.
	node.Eventually(t, "a process of the container's to be the monitor's", func() bool {
		for text := range strings.FieldsSeq(c.CgroupFile("memory", "cgroup.procs", "")) {
			pid, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			_, parent := processOf(t, pid)
			args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", parent))
			if strings.Contains(string(args), "--role=inner") {
				u.main, u.parent = pid, parent
			}
		}
		return u.main != 0
	})
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(d.Name(), c.ID) {
			u.groups = append(u.groups, path)
		}
		return nil
	})
	return u
}

// pause stops the process that waits for the container's end.
func (u *unwatched) pause() {
	u.t.Helper()
	if err := syscall.Kill(u.parent, syscall.SIGSTOP); err != nil {
		u.t.Fatal(err)
	}
	node.Eventually(u.t, "the monitor to stop", func() bool {
		state, _ := processOf(u.t, u.parent)
		return state == "T"
	})
}

func (u *unwatched) resume() { _ = syscall.Kill(u.parent, syscall.SIGCONT) }

// vanish waits for the container's end and takes its cgroups away.
func (u *unwatched) vanish() {
	u.t.Helper()
	node.Eventually(u.t, "the container to end", func() bool {
		state, _ := processOf(u.t, u.main)
		return state == "Z"
	})
	for _, dir := range u.groups {
		node.Eventually(u.t, "the cgroup to be empty", func() bool {
			err := os.Remove(dir)
			return err == nil || errors.Is(err, os.ErrNotExist)
		})
	}
}

// waitsThenEats is eats, once there is a file in a folder.
func waitsThenEats(folder, name string) *runtimeapi.ContainerConfig {
	cfg := eats()
	cfg.Command[2] = "until [ -e /go/" + name + " ]; do sleep 0.02; done; " + cfg.Command[2]
	cfg.Mounts = []*runtimeapi.Mount{{ContainerPath: "/go", HostPath: folder, Readonly: true}}
	return cfg
}

// TestVersion1OutOfMemory has the cgroups, with the count of kills in them, be
// gone before the monitor looks. Beside each victim one is killed by somebody.
func TestVersion1OutOfMemory(t *testing.T) {
	underVersion1(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		idle := s.Start(node.Script("sleep 1000"))
		folder := t.TempDir()
		for round := range 20 {
			name := fmt.Sprintf("round-%d", round)
			victim := unwatch(t, s.Start(waitsThenEats(folder, name)))
			beside := unwatch(t, s.Start(node.Script("sleep 1000")))
			func() {
				victim.pause()
				defer victim.resume()
				if err := os.WriteFile(filepath.Join(folder, name), nil, 0o644); err != nil {
					t.Fatal(err)
				}
				victim.vanish()
				if err := syscall.Kill(beside.main, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				beside.vanish()
			}()
			wantEnd(t, name, victim.Wait(), "OOMKilled")
			wantEnd(t, name+", its neighbour", beside.Wait(), "Error")
			victim.Remove()
			beside.Remove()
		}
		if st := idle.Status(); st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("the idle neighbour: %+v", st)
		}
		idle.Stop(0)
		wantEnd(t, "the idle neighbour", idle.Wait(), "Error")
		s.Remove()
	})
}

// TestVersion1OutOfMemoryUnseen has the monitor die before it knows of the end.
func TestVersion1OutOfMemoryUnseen(t *testing.T) {
	underVersion1(t, func(t *testing.T, n *node.Node, h string) {
		s := n.RunPod(h)
		folder := t.TempDir()
		for round := range 3 {
			name := fmt.Sprintf("round-%d", round)
			victim := unwatch(t, s.Start(waitsThenEats(folder, name)))
			func() {
				victim.pause()
				defer victim.resume()
				if err := os.WriteFile(filepath.Join(folder, name), nil, 0o644); err != nil {
					t.Fatal(err)
				}
				victim.vanish()
				if err := syscall.Kill(victim.parent, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}()
			wantEnd(t, name, victim.Wait(), "OOMKilled")
			victim.Remove()
		}
		s.Remove()
	})
}
