package chaos

import (
	"slices"
	"strings"
	"testing"
)

// A disk of the agent without room lets no pod begin, which an event says with what is
// to be done; pods that run go on, and what could not begin does so when there is room.
func TestAgentDisk(t *testing.T) {
	t.Parallel()
	d := newDisk(t, false)
	c := startCluster(t, d.dir+"/agent")
	c.put("before")
	c.eventually("a pod runs", func() bool { return c.ready("before") })
	was := runs(c.all()["before"])
	for _, f := range faults[:2] {
		name := strings.ReplaceAll(f.name, " ", "-")
		t.Log(f.name)
		f.on(d)
		c.put(name)
		c.eventually("an event says why", func() bool {
			return slices.ContainsFunc(c.told(), func(e string) bool {
				return strings.HasPrefix(e, name+" ") && strings.Contains(e, "no space left on device") && strings.Contains(e, c.root)
			})
		})
		f.off(d)
		c.eventually("the pod runs when there is room", func() bool { return c.ready(name) })
		if got := runs(c.all()["before"]); got != was {
			t.Errorf("the pod that ran is another one: %s, was %s", got, was)
		}
	}
}
