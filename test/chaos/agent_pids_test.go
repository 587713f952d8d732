package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/test/node"
)

// Agent, daemon and monitor have no process id left: what runs goes on, also where
// a probe needs a process, and a new pod says why it does not begin. When there are
// some, that begins by itself, what has ended meanwhile runs again, and what was to
// go is gone.
func TestAgentWithoutProcessIDs(t *testing.T) {
	limit := newPidLimit(t)
	c := startCluster(t, "")
	t.Cleanup(limit.open)
	var names []string
	for i := range stays {
		names = append(names, fmt.Sprintf("stays-%d", i))
		c.put(names[i], probed)
	}
	const victim = "ends"
	c.put(victim, c.switched(victim))
	goes := []string{"goes-0", "goes-1", "goes-2"}
	for _, name := range goes {
		c.put(name)
	}
	c.eventually("the pods run", func() bool { return c.ready(append(append(goes, victim), names...)...) })
	before := map[string]string{}
	for name, p := range c.all() {
		before[name] = runs(p)
	}
	own := askSelf(c.Node)
	limit.take(c.agent.Process.Pid, own.Daemon.PID, own.Monitor.OuterPID, own.Monitor.InnerPID)
	limit.close()
	for i := range comeAndGo {
		c.put(fmt.Sprintf("fresh-%d", i))
	}
	for _, name := range goes {
		c.remove(name)
	}
	c.trouble(trouble{"no process ids", func(*cluster) {}, func(*cluster) {}}, victim)
	c.eventually("each new pod says why it does not begin", func() bool {
		told := c.told()
		for i := range comeAndGo {
			if !slices.ContainsFunc(told, func(e string) bool {
				return strings.HasPrefix(e, fmt.Sprintf("fresh-%d Failed", i)) && strings.Contains(e, "no process ids are left: pids.max of cgroup /")
			}) {
				return false
			}
		}
		return true
	})
	askAll(c.Node, &settlers{all: c.containers(names...)})
	select {
	case <-c.ended:
		t.Fatal("the agent ended")
	default:
	}
	if now := askSelf(c.Node); now.pids()[theDaemon] != own.Daemon.PID || now.Monitor.OuterPID != own.Monitor.OuterPID || now.Monitor.InnerPID != own.Monitor.InnerPID {
		t.Errorf("a process of the node's own was replaced: %+v, and before %+v", now, own)
	}
	limit.open()
	for i := range comeAndGo {
		name := fmt.Sprintf("fresh-%d", i)
		c.eventually(name+" runs", func() bool { return c.ready(name) })
	}
	c.eventually("what was to go is gone", func() bool { return len(c.those("goes-")) == 0 })
	c.eventually("the one that ended runs again", func() bool {
		p := c.all()[victim]
		return isReady(p) && runs(p) != "" && runs(p) != before[victim]
	})
	if got := c.all()[victim].Status.ContainerStatuses[0].LastTerminationState.Terminated; got == nil {
		t.Error("nothing tells of the container that ended")
	}
	c.eventually("all that ran is Ready", func() bool { return c.ready(names...) })
	for _, name := range names {
		if got := runs(c.all()[name]); got != before[name] {
			t.Errorf("pod %s: %s, and it was %s", name, got, before[name])
		}
	}
}

// probed has a command ask every other second whether the container lives. How long that
// takes decides nothing.
func probed(p *corev1.Pod) {
	p.Spec.Containers[0].LivenessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
		PeriodSeconds: 2, TimeoutSeconds: 3600, FailureThreshold: 1,
	}
}

// containers are those of these pods.
func (c *cluster) containers(names ...string) (out []*node.Container) {
	all := c.all()
	for _, name := range names {
		for _, s := range all[name].Status.ContainerStatuses {
			if _, id, ok := strings.Cut(s.ContainerID, "://"); ok {
				out = append(out, &node.Container{ID: id})
			}
		}
	}
	return out
}
