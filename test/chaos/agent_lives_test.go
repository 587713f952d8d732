package chaos

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/test/node"
)

// podLife is what becomes another one when a pod or its container is started again.
type podLife struct {
	said string // by the status: the container, and how often it was restarted
	ips  string
	runs string // by the runtime: what runs
}

// lives are those of all pods, by name.
func (c *cluster) lives() map[string]podLife {
	c.T.Helper()
	out := map[string]podLife{}
	for name, p := range c.all() {
		out[name] = podLife{said: runs(p), ips: fmt.Sprint(p.Status.PodIPs)}
	}
	running := &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
	list, err := c.Runtime.ListContainers(c.Ctx(), &runtimeapi.ListContainersRequest{Filter: running})
	if err != nil {
		c.T.Fatal(err)
	}
	for _, one := range list.Containers {
		name := one.Labels["io.kubernetes.pod.name"]
		l := out[name]
		l.runs += fmt.Sprintf("container %s, attempt %d, in %s; ", one.Id, one.Metadata.Attempt, one.PodSandboxId)
		out[name] = l
	}
	return out
}

// differ says which of the pods that stay have another life than they had, or not the
// one that they say, and which of the others another container. A pod that is just being
// started may need more than one.
func differ(before, now map[string]podLife, stay []string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		was, is := before[name], now[name]
		switch {
		case !slices.Contains(stay, name):
			if was.said != "" && is.said != "" && is.said != was.said {
				out = append(out, fmt.Sprintf("pod %s, which comes and goes: %+v, and it was %+v", name, is, was))
			}
		case is != was:
			out = append(out, fmt.Sprintf("pod %s: %+v, and it was %+v", name, is, was))
		case !is.single():
			out = append(out, fmt.Sprintf("pod %s is not what runs: %+v", name, is))
		}
	}
	for _, name := range stay {
		if _, ok := now[name]; !ok {
			out = append(out, fmt.Sprintf("pod %s is gone", name))
		}
	}
	return out
}

// single says that what runs of a pod is the one container of its status.
func (l podLife) single() bool {
	container, _, _ := strings.Cut(l.said, " ")
	_, id, ok := strings.Cut(container, "://")
	return ok && strings.HasPrefix(l.runs, "container "+id+",") && strings.Count(l.runs, ";") == 1
}

// nodeTells says whether the node has told since some time that it lives, and says that
// it can run pods.
func (c *cluster) nodeTells(since time.Time) bool {
	c.T.Helper()
	has := c.api.Get(apiNodes, "chaos")
	if has == nil {
		return false
	}
	var n corev1.Node
	decode(c.T, has, &n)
	return c.lease().RenewTime.After(since) && slices.ContainsFunc(n.Status.Conditions, func(o corev1.NodeCondition) bool {
		return o.Type == corev1.NodeReady && o.Status == corev1.ConditionTrue
	})
}

// lease is the node's; one that was never renewed has the zero time.
func (c *cluster) lease() coordinationv1.LeaseSpec {
	c.T.Helper()
	lease := coordinationv1.Lease{}
	if has := c.api.Get(apiLeases, corev1.NamespaceNodeLease+"/chaos"); has != nil {
		decode(c.T, has, &lease)
	}
	if lease.Spec.RenewTime == nil {
		lease.Spec.RenewTime = &metav1.MicroTime{}
	}
	return lease.Spec
}

// restartMachine has nothing left of any pod but what is on the disk. Each of them runs
// again, once, with an address of its own.
func (c *cluster) restartMachine() {
	c.T.Helper()
	c.T.Log("the machine restarts")
	var names []string
	for name, p := range c.all() {
		if p.DeletionTimestamp == nil {
			names = append(names, name)
		}
	}
	c.eventually("all pods run", func() bool { return c.ready(names...) })
	before := c.lives()
	c.killAgent()
	crash(c.Node, false)
	if err := os.RemoveAll(c.Dir + "/agentrun"); err != nil {
		c.T.Fatal(err)
	}
	c.Start()
	c.startAgent()
	over := time.Now()
	var now map[string]podLife
	c.eventually("all pods run again", func() bool {
		now = c.lives()
		for _, name := range names {
			if l := now[name]; l.said == before[name].said || !l.single() {
				return false
			}
		}
		return c.ready(names...)
	})
	of := map[string]string{}
	for _, name := range names {
		ips := now[name].ips
		if other, ok := of[ips]; ok {
			c.T.Errorf("pods %s and %s have the same addresses: %s", name, other, ips)
		}
		of[ips] = name
	}
	c.eventually("the node is Ready after the restart, and says so", func() bool { return c.nodeTells(over) })
}

// left is what there is on the machine of pods that are gone, by the runtime, the kernel
// and the folders of both.
func (c *cluster) left() []string {
	c.T.Helper()
	out := c.OfPods() // mounts, and with them namespaces; links, records and folders
	boxes, err := c.Runtime.ListPodSandbox(c.Ctx(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return append(out, "what the runtime does not say: "+err.Error())
	}
	for _, s := range boxes.Items {
		out = append(out, fmt.Sprintf("sandbox %s of pod %s, %s", s.Id, s.Metadata.Name, s.State))
	}
	list, err := c.Runtime.ListContainers(c.Ctx(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		return append(out, "what the runtime does not say: "+err.Error())
	}
	for _, one := range list.Containers {
		out = append(out, fmt.Sprintf("container %s of pod %s, %s", one.Id, one.Labels["io.kubernetes.pod.name"], one.State))
	}
	for _, pid := range processesOf(c.Node) {
		out = append(out, fmt.Sprintf("process %d in a container", pid))
	}
	for _, path := range c.cgroups() {
		if strings.Contains(path, "/pod") {
			out = append(out, "cgroup "+path)
		}
	}
	// Logs stay for a minute longer, for whoever collects them.
	for _, dir := range []string{c.root + "/run", c.Dir + "/agentrun/run"} {
		entries, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			out = append(out, err.Error())
		}
		for _, e := range entries {
			out = append(out, "folder "+dir+"/"+e.Name())
		}
	}
	return out
}

// wantNothingLeft looks while agent and runtime run, before anybody cleans up after them.
func (c *cluster) wantNothingLeft() {
	c.T.Helper()
	left := c.left()
	for end := time.Now().Add(2 * node.Patience); len(left) > 0 && time.Now().Before(end); left = c.left() {
		time.Sleep(50 * time.Millisecond)
	}
	if len(left) > 0 {
		c.T.Errorf("left of pods that are gone:\n%s", strings.Join(left, "\n"))
	}
}
