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
// a probe needs a process, a new pod says why it does not begin, and begins by
// itself when there are some.
func TestAgentWithoutProcessIDs(t *testing.T) {
	limit := newPidLimit(t)
	c := startCluster(t, "")
	t.Cleanup(limit.open)
	var names []string
	for i := range stays {
		names = append(names, fmt.Sprintf("stays-%d", i))
		c.put(names[i], probed)
	}
	c.eventually("the pods run", func() bool { return c.ready(names...) })
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
	askAll(c.Node, &settlers{all: c.containers()})
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
	c.eventually("all that ran is Ready", func() bool { return c.ready(names...) })
	for _, name := range names {
		if got := runs(c.all()[name]); got != before[name] {
			t.Errorf("pod %s: %s, and it was %s", name, got, before[name])
		}
	}
}

// probed has a command ask every second whether the container lives.
func probed(p *corev1.Pod) {
	p.Spec.Containers[0].LivenessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
		PeriodSeconds: 1, TimeoutSeconds: 20, FailureThreshold: 1,
	}
}

// containers are those of all pods that run.
func (c *cluster) containers() (out []*node.Container) {
	for _, p := range c.all() {
		for _, s := range p.Status.ContainerStatuses {
			if _, id, ok := strings.Cut(s.ContainerID, "://"); ok {
				out = append(out, &node.Container{ID: id})
			}
		}
	}
	return out
}
