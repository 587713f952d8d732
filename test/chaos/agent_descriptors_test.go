package chaos

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The agent, or the runtime with its monitor, has no descriptor left: what runs goes on, also
// where a probe needs one. When there are some, what has ended meanwhile runs again, new pods
// begin, of which an event has said why they did not; what was to go is gone.
func TestAgentWithoutDescriptors(t *testing.T) {
	t.Run("agent", func(t *testing.T) {
		t.Parallel()
		withoutDescriptors(t, func(c *cluster) []int { return []int{c.agent.Process.Pid} }, "raise the limit of open files of the agent", "stays-0", "stays-1")
	})
	t.Run("runtime", func(t *testing.T) {
		t.Parallel()
		withoutDescriptors(t, func(c *cluster) []int { return slices.Collect(maps.Values(askSelf(c.Node).pids())) }, "too many open files", "stays-2")
	})
}

// withoutDescriptors is that story for some processes, which cannot probe some of the pods then.
func withoutDescriptors(t *testing.T, who func(*cluster) []int, advice string, blind ...string) {
	c := startCluster(t, "")
	var names []string
	for i, h := range []corev1.ProbeHandler{
		{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}},
		{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8080)}},
		{Exec: &corev1.ExecAction{Command: []string{"true"}}},
	} {
		names = append(names, fmt.Sprintf("stays-%d", i))
		c.put(names[i], serves(h))
	}
	const victim = "ends"
	c.put(victim, c.switched(victim))
	c.put("goes")
	c.eventually("the pods run", func() bool { return c.ready(append(names, victim, "goes")...) })
	before, unknown := c.lives(), c.unknownProbes()
	unknown() // by a connection that is there from now on
	mend := limitDescriptors(t, who(c))
	c.put("fresh")
	c.remove("goes")
	c.trouble(trouble{"no descriptors", func(*cluster) {}, func(*cluster) {}}, victim)
	c.eventually("the probes cannot be made", func() bool {
		tries := unknown()
		return !slices.ContainsFunc(blind, func(name string) bool { return tries[name] < 2 })
	})
	c.eventually("an event says why the new pod does not run", func() bool {
		return slices.ContainsFunc(c.told(), func(e string) bool {
			return strings.HasPrefix(e, "fresh Failed") && strings.Contains(e, "too many open files") && strings.Contains(e, advice)
		})
	})
	select {
	case <-c.ended:
		t.Fatal("the agent ended")
	default:
	}
	mend()
	c.eventually("the new pod runs", func() bool { return c.ready("fresh") })
	c.eventually("what was to go is gone", func() bool { return c.all()["goes"] == nil })
	c.eventually("the one that ended runs again", func() bool { return c.ready(victim) && runs(c.all()[victim]) != before[victim].said })
	c.eventually("all that ran is Ready", func() bool { return c.ready(names...) })
	now := c.lives()
	before[victim] = now[victim]
	for _, wrong := range differ(before, now, append(names, victim)) {
		t.Error(wrong)
	}
}

// serves has a pod answer by HTTP, and be asked that way or another every second whether it
// lives.
func serves(h corev1.ProbeHandler) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Command = []string{"sh", "-c", "trap exit TERM; mkdir /www; echo well >/www/index.html; httpd -p 8080 -h /www; sleep 1000000 & wait"}
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: h, PeriodSeconds: 1, TimeoutSeconds: 20}
		p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: h, PeriodSeconds: 1, TimeoutSeconds: 20, FailureThreshold: 1, InitialDelaySeconds: 2}
	}
}

// limitDescriptors has processes open no descriptor more until it is mended.
func limitDescriptors(t *testing.T, pids []int) (mend func()) {
	t.Helper()
	had := make([]unix.Rlimit, len(pids))
	set := func(i int, to *unix.Rlimit) {
		if err := unix.Prlimit(pids[i], unix.RLIMIT_NOFILE, to, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i, pid := range pids {
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &had[i]); err != nil {
			t.Fatal(err)
		}
		set(i, &unix.Rlimit{Cur: 3, Max: had[i].Max})
	}
	return func() {
		for i := range pids {
			set(i, &had[i])
		}
	}
}

// unknownProbes counts the probes of each pod that counted neither way, and makes one connection
// to the agent for that.
func (c *cluster) unknownProbes() func() map[string]int {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	c.T.Cleanup(client.CloseIdleConnections)
	line := regexp.MustCompile(`(?m)^prober_probe_total\{.*pod="([^"]*)".*result="unknown"\} (\d+)$`)
	return func() map[string]int {
		resp, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/metrics/probes", c.port))
		if err != nil {
			c.T.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			c.T.Fatal(err)
		}
		out := map[string]int{}
		for _, m := range line.FindAllStringSubmatch(string(text), -1) {
			n, _ := strconv.Atoi(m[2])
			out[m[1]] += n
		}
		return out
	}
}
