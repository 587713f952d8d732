package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// forever is a command that never ends.
var forever = corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "sleep 1000000"}}}

// Probes and hooks that never end, and a command whose output nobody reads: each is told
// of, none keeps its pod from ending, and other pods begin meanwhile.
func TestAgentStuck(t *testing.T) {
	t.Parallel()
	c := startCluster(t, "")
	saw := func(pod, what string) bool {
		return slices.ContainsFunc(c.told(), func(e string) bool { return strings.HasPrefix(e, pod+" ") && strings.Contains(e, what) })
	}
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
	c.put("unread", func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"sh", "-c", "trap exit TERM; yes & wait"} })
	c.eventually("what can be Ready is", func() bool { return c.ready("hook-stop", "unread") })
	c.eventually("a probe that hangs ends its container, and an event says so", func() bool {
		p := c.all()["probe"]
		return saw("probe", "Unhealthy") && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount > 0
	})
	end := c.flood("unread")
	c.put("plain")
	c.eventually("a pod begins beside them", func() bool { return c.ready("plain") })
	if c.ready("hook-start") {
		t.Error("a pod whose postStart hook runs is Ready")
	}
	// The agent keeps no more of what nobody reads than its buffers.
	if mb := resident(t, c.agent.Process.Pid) / 1e6; mb > 100 {
		t.Errorf("the agent has %.0f MB of memory", mb)
	}
	for _, name := range []string{"hook-start", "hook-stop", "probe", "unread"} {
		c.remove(name)
	}
	c.eventually("they end, each within its time", func() bool { return len(c.all()) == 1 })
	c.eventually("an event tells of the hook that was cut off", func() bool { return saw("hook-stop", "preStop hook failed") })
	if err := end(); err == nil {
		t.Error("the command whose output nobody reads says that it has succeeded")
	}
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
