package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.run/internal/node/logs/rotate"
	"fairlead.run/internal/node/source"
)

// ofOne is a pod with an init container whose containers all begin again when the first has
// ended with 42.
func ofOne() *corev1.Pod {
	p := pod(1, corev1.RestartPolicyOnFailure, "a", "b")
	p.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "i"}}
	own := corev1.ContainerRestartPolicyOnFailure
	p.Spec.Containers[0].RestartPolicy = &own
	p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	return p
}

// TestAllStartOver has a pod begin again from its first init container, whatever attempts at
// its containers there are (KEP-5532).
func TestAllStartOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.boot(t, ofOne())
		pass := func() {
			time.Sleep(6 * time.Minute) // the pauses of crashes
			synctest.Wait()
		}
		n.Exit("p1/i", 0)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		for _, name := range []string{"a", "b", "a", "b"} { // so that there are attempts before the latest
			n.Exit("p1/"+name, 1)
			pass()
		}
		n.expect(t, "p1", corev1.PodRunning, true)
		before := len(n.Calls("start"))
		n.Exit("p1/a", 42)
		pass()
		if got := n.Calls("start")[before:]; !slices.Equal(got, []string{"start p1/i"}) || len(n.Runtime.Containers()) != 1 {
			t.Fatalf("%q is started, and there are %v", got, n.Runtime.Containers())
		}
		n.Exit("p1/i", 0)
		pass()
		n.expect(t, "p1", corev1.PodRunning, true)
		if got := n.Calls("start")[before:]; !slices.Equal(got, []string{"start p1/i", "start p1/a", "start p1/b"}) {
			t.Errorf("%q is started", got)
		}
		if s := n.of("p1").ContainerStatuses; s[0].RestartCount != 3 || s[1].RestartCount != 3 || s[0].LastTerminationState.Terminated.ExitCode != 42 {
			t.Errorf("%+v", s)
		}
		n.stop()
	})
}

// TestAllStartOverKilled has an agent end that with which the one before it has begun.
func TestAllStartOverKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.boot(t, ofOne())
		n.Exit("p1/i", 0)
		synctest.Wait()
		n.Fail("remove p1/b", errors.New("busy"))
		n.Exit("p1/a", 42)
		time.Sleep(time.Minute)
		synctest.Wait()
		n.kill()
		n.Fail("remove p1/b", nil)
		before := len(n.Calls("start"))
		n.boot(t, ofOne())
		if got := n.Calls("start")[before:]; !slices.Equal(got, []string{"start p1/i"}) || len(n.Runtime.Containers()) != 1 {
			t.Errorf("%q is started, and there are %v", got, n.Runtime.Containers())
		}
		n.stop()
	})
}

// TestCountsOn has a runtime lose all it had, as at a reboot: what runs then is another attempt
// than what ran before, with a log of its own, which is the one that is rotated.
func TestCountsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyAlways, "x")
		n.boot(t, p)
		for want := range int32(3) {
			c := n.Runtime.Containers()[0]
			if s := n.of("p1").ContainerStatuses[0]; s.RestartCount != want || int32(c.GetMetadata().GetAttempt()) != want {
				t.Errorf("it counts %d restarts, and the runtime has %v; want %d", s.RestartCount, c, want)
			}
			if list, err := n.Running(t.Context()); err != nil || !slices.Equal(list, []rotate.Container{{ID: c.GetId(), Path: c.GetLogPath()}}) {
				t.Errorf("the logs of %v are rotated, want that of %v", list, c)
			}
			if err := os.WriteFile(c.GetLogPath(), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			n.kill()
			n.Reboot()
			if want == 0 {
				p.Status = n.of("p1")
			} // else the API server was away and does not have the latest
			n.boot(t, p)
		}
		n.stop()
	})
}

// TestNeverTwice has no pod with the policy Never run again after a reboot, of which nothing is
// left but what the agent has written down. One that had not begun does.
func TestNeverTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		ran, waits, other := pod(1, corev1.RestartPolicyNever, "x"), pod(2, corev1.RestartPolicyNever, "y"), pod(3, corev1.RestartPolicyOnFailure, "z")
		n.pictures.Store("y", errors.New("it cannot be pulled"))
		n.boot(t, ran, waits, other)
		n.expect(t, "p1", corev1.PodRunning, true)
		n.kill()
		n.Reboot()
		n.pictures.Delete("y")
		n.boot(t, ran, waits, other)
		n.expect(t, "p1", corev1.PodFailed, false)
		n.expect(t, "p2", corev1.PodRunning, true)
		n.expect(t, "p3", corev1.PodRunning, true)
		if got := n.Calls("start p1/x"); len(got) != 1 {
			t.Errorf("it was started %d times", len(got))
		}
		n.kill()
		n.boot(t, ran, waits, other) // and nobody is told again
		if told := strings.Count(strings.Join(n.events, "\n"), " SandboxLost: "); told != 1 || !n.saw("p1 SandboxLost: ") {
			t.Errorf("%d events tell why it has failed: %q", told, n.events)
		}
		n.stop()
	})
}

// TestDoneStaysDone starts nothing after a reboot that was done before, of a pod that goes on: a
// container that has succeeded, and an ephemeral one.
func TestDoneStaysDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyOnFailure, "x", "y")
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Image: "e"}}}
		n.boot(t, p)
		n.Exit("p1/x", 0)
		synctest.Wait()
		n.kill()
		n.Reboot()
		p.Status = n.of("p1")
		n.boot(t, p)
		s := n.of("p1")
		x, y, e := s.ContainerStatuses[0], s.ContainerStatuses[1], s.EphemeralContainerStatuses[0]
		if x.State.Terminated == nil || x.RestartCount != 0 || y.State.Running == nil || e.State.Terminated == nil || e.State.Terminated.Reason != "ContainerStatusUnknown" || e.RestartCount != 0 {
			t.Errorf("%+v, %+v", s.ContainerStatuses, e)
		}
		for name, want := range map[string]int{"p1/x": 1, "p1/y": 2, "p1/e": 1} {
			if got := n.Calls("start " + name); len(got) != want {
				t.Errorf("%s was started %d times, want %d", name, len(got), want)
			}
		}
		n.Exit("p1/y", 0)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodSucceeded, false)
		n.stop()
	})
}

// TestDoneStaysDoneAlone does so where no API server has a status of the pod: it goes by what the
// agent has written down, also after one more reboot. A pod that comes anew begins anew.
func TestDoneStaysDoneAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyOnFailure, "x", "y", "z")
		p.Annotations = map[string]string{source.SourceAnnotation: source.File}
		n.boot(t, p)
		n.Exit("p1/x", 0)
		synctest.Wait()
		for i := range 2 {
			n.reboot()
			n.boot(t, p)
			if s := n.of("p1").ContainerStatuses[0]; s.State.Terminated == nil || s.State.Terminated.Reason != "Completed" || s.RestartCount != 0 {
				t.Errorf("%+v", s)
			}
			if i == 0 {
				n.Exit("p1/z", 0)
				synctest.Wait()
			}
		}
		for name, want := range map[string]int{"p1/x": 1, "p1/y": 3, "p1/z": 2} {
			if got := n.Calls("start " + name); len(got) != want {
				t.Errorf("%s was started %d times, want %d", name, len(got), want)
			}
		}
		n.Exit("p1/y", 0)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodSucceeded, false)
		n.Set(nil)
		synctest.Wait()
		n.Set([]*corev1.Pod{p})
		synctest.Wait()
		if got := n.Calls("start p1/x"); len(got) != 2 {
			t.Errorf("anew it was started %d times, want 2", len(got))
		}
		n.stop()
	})
}

// TestNeverTwiceWithoutRecord goes by the pod's status where what was written down is lost.
func TestNeverTwiceWithoutRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyNever, "x")
		n.boot(t, p)
		n.kill()
		n.Reboot()
		p.Status = n.of("p1")
		if err := os.Truncate(filepath.Join(n.root, "agent", string(p.UID)+".json"), 0); err != nil {
			t.Fatal(err)
		}
		n.boot(t, p)
		n.expect(t, "p1", corev1.PodFailed, false)
		if got := n.Calls("start p1/x"); len(got) != 1 {
			t.Errorf("it was started %d times", len(got))
		}
		n.stop()
	})
}
