package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// forever is a command that never ends.
var forever = corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "sleep 1000000"}}}

// hangs is probes and hooks that never end, and a command whose output nobody reads: each
// is told of, none keeps its pod from ending, and other pods begin meanwhile.
func hangs() trouble {
	var end func() error
	saw := func(c *cluster, pod, what string) bool {
		return slices.ContainsFunc(c.told(), func(e string) bool { return strings.HasPrefix(e, pod+" ") && strings.Contains(e, what) })
	}
	return trouble{"probes and hooks hang", func(c *cluster) {
		putHanging(c)
		c.eventually("what can be Ready is", func() bool { return c.ready("hook-stop", "unread") })
		c.eventually("a probe that hangs ends its container, and an event says so", func() bool {
			p := c.all()["probe"]
			return saw(c, "probe", "Unhealthy") && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount > 0
		})
		before := resident(c.T, c.agent.Process.Pid) / 1e6
		end = c.flood("unread")
		c.put("plain")
		c.eventually("a pod begins beside them", func() bool { return c.ready("plain") })
		if c.ready("hook-start") {
			c.T.Error("a pod whose postStart hook runs is Ready")
		}
		// The agent keeps no more of what nobody reads than its buffers.
		if mb := resident(c.T, c.agent.Process.Pid) / 1e6; mb > before+50 {
			c.T.Errorf("the agent has %.0f MB of memory, and had %.0f before", mb, before)
		}
	}, func(c *cluster) {
		names := []string{"hook-start", "hook-stop", "probe", "unread", "plain"}
		for _, name := range names {
			c.remove(name)
		}
		c.eventually("they end, each within its time", func() bool {
			all := c.all()
			return !slices.ContainsFunc(names, func(name string) bool { return all[name] != nil })
		})
		c.eventually("an event tells of the hook that was cut off", func() bool { return saw(c, "hook-stop", "preStop hook failed") })
		if err := end(); err == nil {
			c.T.Error("the command whose output nobody reads says that it has succeeded")
		}
	}}
}

func putHanging(c *cluster) {
	c.put("hook-start", func(p *corev1.Pod) {
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &forever}
	})
	c.put("hook-stop", func(p *corev1.Pod) {
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &forever}
	})
	c.put("probe", func(p *corev1.Pod) {
		p.Spec.Containers[0].LivenessProbe = &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{Exec: forever.Exec}, TimeoutSeconds: 1, PeriodSeconds: 1, FailureThreshold: 1,
		}
	})
	c.put("unread")
}

// flood executes a command in a pod that writes without end, reads the first line, and
// no more until it is told to end, which gives what became of the command.
func (c *cluster) flood(pod string) (end func() error) {
	c.T.Helper()
	config := &rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", c.port), TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	address := config.Host + "/exec/default/" + pod + "/main?command=yes&output=1"
	e, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, address)
	if err != nil {
		c.T.Fatal(err)
	}
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- e.StreamWithContext(context.Background(), remotecommand.StreamOptions{Stdout: w})
	}()
	if line, err := bufio.NewReaderSize(r, 16).ReadString('\n'); err != nil || line != "y\n" {
		c.T.Fatalf("the command says %q: %v", line, err)
	}
	return func() error {
		_ = r.Close() // whoever writes hears that nobody reads
		return <-ended
	}
}
