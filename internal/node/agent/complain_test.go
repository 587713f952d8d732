package agent

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// another is an error that is worded anew at each attempt, as those of runtimes are.
type another struct{ n atomic.Int64 }

func (a *another) Error() string {
	n := a.n.Add(1)
	return fmt.Sprintf(`create container default/p1/x: at stage "mount" after %dms: mount /run/containers/%064x/rootfs: input/output error`, n, n)
}

// TestFailsAlike tells of what fails in the same way as often as it does, in the same words, and
// no new status of the pod comes of it.
func TestFailsAlike(t *testing.T) {
	const want = `create container default/p1/x: at stage "mount": mount /run/containers/<id>/rootfs: input/output error`
	for call, event := range map[string]string{
		"create p1/x": "p1 Failed: container x: " + want,
		"run p1":      "p1 FailedCreatePodSandBox: " + want,
	} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.Fail(call, &another{})
				n.boot(t, pod(1, corev1.RestartPolicyAlways, "x"))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				writes, events := n.writes, n.times(event)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if n.writes != writes {
					t.Errorf("%d statuses more for an attempt that fails as the one before", n.writes-writes)
				}
				if n.times(event) < events+5 || slices.ContainsFunc(n.events, func(e string) bool { return strings.Contains(e, " after ") }) {
					t.Errorf("events %q", n.events)
				}
				if w := n.of("p1").ContainerStatuses[0].State.Waiting; call != "run p1" && (w == nil || w.Message != want) {
					t.Errorf("%+v", w)
				}
				n.stop()
			})
		})
	}
}
