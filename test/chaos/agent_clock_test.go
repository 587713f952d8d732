package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"fairlead.run/test/hostprep"
)

// The system's clock jumps ahead, then back before all that was started, and ahead to
// where it would be: nothing is restarted because of that, what ends just then is
// restarted and told of, pods come and go, one whose time is over ends, and the node goes on
// telling that it lives.
func TestAgentClock(t *testing.T) {
	if !hostprep.OwnMachine() {
		t.Skip("it sets the clock of the system, which others go by, too: make test-guest IN=./test/chaos RUN='^TestAgentClock$' runs it")
	}
	began := time.Now()
	t.Cleanup(func() { setClock(t, began.Add(time.Since(began))) }) // by a clock that does not jump
	c := startCluster(t, "")
	const victim = "ends"
	c.put(victim, c.switched(victim))
	c.put("probed", probed)
	c.put("limited", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(7200)) })
	names := []string{victim, "probed"}
	for i := range 3 {
		names = append(names, fmt.Sprintf("stays-%d", i))
		c.put(names[len(names)-1])
	}
	for i, by := range []time.Duration{3 * time.Hour, -6 * time.Hour, 3 * time.Hour} {
		what := fmt.Sprintf("jump by %s", by)
		t.Log(what)
		goes := fmt.Sprintf("goes-%d", i)
		c.put(goes)
		c.eventually(what+": the pods run", func() bool { return c.ready(append(names, goes)...) })
		before, told := c.lives(), c.lease().RenewTime.Time
		c.remove(goes)
		c.trouble(trouble{what, func(*cluster) {}, func(*cluster) {
			c.eventually(what+": the end was seen, so that it may be in a pause", func() bool { return runs(c.all()[victim]) != before[victim].said })
			setClock(t, time.Now().Add(by))
		}}, victim)
		c.eventually(what+": the one that ended runs again", func() bool {
			p := c.all()[victim]
			return isReady(p) && runs(p) != "" && runs(p) != before[victim].said
		})
		if got := c.all()[victim].Status.ContainerStatuses[0]; got.RestartCount != int32(i+1) {
			t.Errorf("%s: the container that ended by itself: %+v", what, got)
		}
		c.eventually(what+": an event tells of its end", func() bool {
			return slices.Contains(c.told(), victim+" Restarting: Container main ended with exit code 3; restarting it")
		})
		// Its timer goes by another clock.
		c.eventually(what+": a pod whose time is over has ended", func() bool { return c.all()["limited"].Status.Reason == "DeadlineExceeded" })
		fresh := fmt.Sprintf("fresh-%d", i)
		c.put(fresh)
		c.eventually(what+": a new pod runs", func() bool { return c.ready(fresh) })
		c.eventually(what+": the pod that was to go is gone", func() bool { return c.all()[goes] == nil })
		// Whoever watches goes by a time that is later than the one before.
		c.eventually(what+": the node is Ready, and says so", func() bool { return c.nodeTells(told) })
		now := c.lives()
		before[victim] = now[victim]
		for _, wrong := range differ(before, now, names) {
			t.Errorf("%s: %s", what, wrong)
		}
	}
}

// setClock has the system's clock go on from another time.
func setClock(t *testing.T, now time.Time) {
	t.Helper()
	to := unix.NsecToTimespec(now.UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &to); err != nil {
		t.Fatal(err)
	}
}
