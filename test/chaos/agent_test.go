package chaos

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/test/apiserver"
	"fairlead.run/test/node"
)

// stays is how many pods live through all of a story, and comeAndGo how many more there
// are at a time that do not.
const (
	stays     = 44
	comeAndGo = 6
)

// Kills of the agent, of the runtime and of both, everything that an API server may do, a
// full disk, probes and hooks that hang, and a restart of the machine, under pods of which
// some come and go all the time: nothing is restarted that need not be, what ends meanwhile
// is restarted once and told of, what is said of pods and node becomes true again, and
// nothing is left.
func TestAgent(t *testing.T) {
	t.Parallel()
	d := newDiskOf(t, 3, false)
	c := startCluster(t, d.dir+"/agent", func(n *node.Node) error {
		n.Root, n.Logs = d.dir+"/lib", d.dir+"/logs"
		return nil
	})
	var names []string
	for i := range stays {
		name := fmt.Sprintf("stays-%d", i)
		names = append(names, name)
		c.put(name, c.switched(name))
	}
	c.eventually("the pods run", func() bool { return c.ready(names...) })
	stop := c.churn()
	before, over := c.lives(), time.Time{}
	for i, trouble := range append(troubles, shortage(d, faults[0]), shortage(d, faults[1]), hangs()) {
		victim := names[i]
		t.Log(trouble.name)
		over = c.trouble(trouble, victim)
		was := before[victim]
		c.eventually(trouble.name+": the one that ended runs again", func() bool {
			p := c.all()[victim]
			return isReady(p) && runs(p) != "" && runs(p) != was.said && p.Status.ContainerStatuses[0].LastTerminationState.Terminated != nil
		})
		got := c.all()[victim].Status.ContainerStatuses[0]
		// A start that the runtime has failed at counts, too.
		failed := strings.Contains(strings.ToLower(got.LastTerminationState.Terminated.Message), "no space left on device")
		if !failed && (got.RestartCount != 1 || got.LastTerminationState.Terminated.ExitCode != 3) {
			t.Errorf("%s: the container that ended by itself: %+v", trouble.name, got)
		}
		c.eventually(trouble.name+": an event tells of its end", func() bool {
			return slices.Contains(c.told(), victim+" Restarting: Container main ended with exit code 3; restarting it")
		})
		fresh := fmt.Sprintf("fresh-%d", i)
		c.put(fresh)
		c.eventually(trouble.name+": a new pod runs", func() bool { return c.ready(fresh) })
		c.remove(fresh)
		now := c.lives()
		before[victim] = now[victim]
		for _, wrong := range differ(before, now, names) {
			t.Errorf("%s: %s", trouble.name, wrong)
		}
		before = now
	}
	stop()
	c.eventually("all pods that stay are Ready", func() bool { return c.ready(names...) })
	c.eventually("the node is Ready, and has said since that it lives", func() bool { return c.nodeTells(over) })
	c.restartMachine()
}

// trouble is something that goes wrong, and is over after a while.
type trouble struct {
	name        string
	begin, over func(*cluster)
}

// Those that the agent lives through are the last: it has to get over them by itself.
var troubles = []trouble{
	{"the agent is killed", (*cluster).killAgent, (*cluster).startAgent},
	{"the runtime is killed", func(c *cluster) { c.Kill(syscall.SIGKILL) }, func(c *cluster) { c.Start() }},
	{"both are killed", func(c *cluster) {
		c.Kill(syscall.SIGKILL)
		c.killAgent()
	}, func(c *cluster) {
		c.startAgent() // first: it has to wait for the runtime
		c.Start()
	}},
	{"the agent is killed while the API server is gone", func(c *cluster) {
		c.api.FailWith(func(apiserver.Call) int { return http.StatusServiceUnavailable })
		c.api.Disconnect()
		c.killAgent()
	}, func(c *cluster) {
		c.startAgent()
		c.mend()
	}},
	{"the API server is gone", func(c *cluster) {
		c.api.FailWith(func(apiserver.Call) int { return http.StatusServiceUnavailable })
		c.api.Disconnect()
	}, (*cluster).mend},
	{"the API server hangs", func(c *cluster) {
		mended := c.mended
		c.api.Intercept(func(apiserver.Call, http.ResponseWriter, *http.Request) bool {
			<-mended
			return false
		})
		c.api.Disconnect()
	}, (*cluster).mend},
	{"watches are open and say nothing", func(c *cluster) {
		mended := c.mended
		c.api.Intercept(func(call apiserver.Call, w http.ResponseWriter, _ *http.Request) bool {
			if call.Verb != "watch" {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(w).Flush()
			<-mended
			return true
		})
		c.api.Disconnect()
	}, (*cluster).mend},
	{"every other answer is 409, 429 or 500, and watches are gone", func(c *cluster) {
		var n atomic.Int64
		c.api.FailWith(func(call apiserver.Call) int {
			i := n.Add(1)
			switch {
			case call.Verb == "watch" && i%2 == 0:
				return http.StatusGone
			case call.Verb == "watch" || i%2 == 0:
				return 0
			}
			return []int{http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError}[i/2%3]
		})
		c.api.Disconnect()
	}, (*cluster).mend},
}

func (c *cluster) mend() {
	close(c.mended)
	c.mended = make(chan struct{})
	c.api.FailWith(nil)
	c.api.Intercept(nil)
	c.api.Disconnect()
}

// trouble lasts until a container has ended in it. It gives the time at which all was
// well again.
func (c *cluster) trouble(what trouble, victim string) time.Time {
	c.T.Helper()
	what.begin(c)
	if err := os.WriteFile(c.Dir+"/switch/"+victim+"/end", nil, 0o600); err != nil {
		c.T.Fatal(err)
	}
	c.eventually(what.name+": the container ends", func() bool {
		_, err := os.Stat(c.Dir + "/switch/" + victim + "/end")
		return os.IsNotExist(err)
	})
	what.over(c)
	return time.Now()
}

// switched has the container of a pod end with code 3 when a file appears, which it
// takes away then.
func (c *cluster) switched(name string) func(*corev1.Pod) {
	dir := c.Dir + "/switch/" + name
	if err := os.MkdirAll(dir, 0o755); err != nil {
		c.T.Fatal(err)
	}
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "switch", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "switch", MountPath: "/switch"}}
		p.Spec.Containers[0].Command = []string{"sh", "-c", "trap exit TERM; while ! rm /switch/end 2>/dev/null; do sleep 0.3; done; exit 3"}
	}
}

// churn has pods come and go until it is stopped: each new one is the end of an older
// one. There are no more of them than some, so that it rests while nobody ends them.
func (c *cluster) churn() (stop func()) {
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for i := 0; ; i++ {
			c.put(fmt.Sprintf("comes-%d", i))
			c.remove(fmt.Sprintf("comes-%d", i-comeAndGo))
			for len(c.those("comes-")) > comeAndGo {
				select {
				case <-quit:
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
			select {
			case <-quit:
				return
			default:
			}
		}
	})
	stop = sync.OnceFunc(func() {
		close(quit)
		done.Wait()
	})
	c.T.Cleanup(stop) // a test that has failed does not call it
	return stop
}

// those are the pods whose names begin so.
func (c *cluster) those(prefix string) (out []string) {
	for name := range c.all() {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	return out
}
