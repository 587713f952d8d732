package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/images"
	"fairlead.run/internal/node/status"
)

func command(name string) *corev1.ExecAction { return &corev1.ExecAction{Command: []string{name}} }

// TestClassGone leaves a pod where it is when its class goes while no agent runs, also if
// an agent that did not write down where has started it.
func TestClassGone(t *testing.T) {
	for name, forgotten := range map[string]bool{"remembered": false, "of an older agent": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				overhead := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("7Mi")}
				n.place = func(context.Context, *corev1.Pod) (Placement, error) {
					return Placement{Class: "sandboxed", Handler: "gvisor", Overhead: overhead}, nil
				}
				p := pod(1, corev1.RestartPolicyAlways, "x")
				if forgotten { // else it has that from its place alone
					p.Spec.Overhead = overhead
				}
				n.boot(t, p)
				n.kill()
				if r, found, err := n.ledger.Read(p.UID); err != nil || !found || r.Place == nil || r.Place.Handler != "gvisor" {
					t.Fatalf("%+v %v", r.Place, err)
				} else if forgotten {
					r.Place = nil
					if err := n.ledger.Write(p.UID, r); err != nil {
						t.Fatal(err)
					}
				}
				n.place = func(context.Context, *corev1.Pod) (Placement, error) {
					return Placement{}, &Refusal{Reason: "RuntimeClassNotFound", Message: "it is gone"}
				}
				n.boot(t, p)
				n.expect(t, "p1", corev1.PodRunning, true)
				n.Exit("p1/x", 1)
				synctest.Wait()
				n.expect(t, "p1", corev1.PodRunning, true)
				if got := n.Of("p1/x"); got != "create, start, create, start" || n.tree.has[p.UID].Spec.Overhead.Memory().String() != "7Mi" {
					t.Errorf("%q, its cgroup is that of %+v", got, n.tree.has[p.UID].Spec)
				}
				// Where its sandbox is not, it has to be placed anew.
				n.kill()
				n.Reboot()
				n.boot(t, p)
				n.expect(t, "p1", corev1.PodFailed, false)
				n.stop()
			})
		})
	}
}

// TestDeletedWhileAway runs the preStop hook of a pod that was deleted while no agent
// ran, and does not call it ready for want of probes.
func TestDeletedWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		var ready []bool
		n.OnExec(func(_ context.Context, _ string, c []string) (int32, error) {
			if c[0] == "ready" {
				return 1, nil
			}
			for _, s := range n.of("p1").ContainerStatuses {
				ready = append(ready, s.Ready)
			}
			return 0, nil
		})
		p := pod(1, corev1.RestartPolicyAlways, "x")
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: command("pre")}}
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: command("ready")}}
		n.boot(t, p)
		n.kill()
		deleted := p.DeepCopy()
		deleted.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		n.boot(t, deleted)
		time.Sleep(time.Minute)
		synctest.Wait()
		if calls := n.Calls("exec p1/x pre"); len(calls) != 1 || !slices.Equal(ready, []bool{false}) || !slices.Equal(n.gone, []string{"p1"}) {
			t.Errorf("%q, ready %v, gone %q", n.Of("p1/x"), ready, n.gone)
		}
		n.stop()
	})
}

// TestProbeWithoutItsConfigMap goes on with a container that was found, though the
// variables of its probe cannot be had.
func TestProbeWithoutItsConfigMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.objects = configMaps{"m": {"name": "value"}}
		p := pod(1, corev1.RestartPolicyAlways, "x")
		c := &p.Spec.Containers[0]
		c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"alive", "$(PLAIN)"}}}}
		c.Env = []corev1.EnvVar{{Name: "PLAIN", Value: "plain"}, {Name: "FROM", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "m"}, Key: "name",
		}}}}
		n.boot(t, p)
		n.expect(t, "p1", corev1.PodRunning, true)
		n.kill()
		n.objects = nothing{}
		before := len(n.Calls("exec p1/x alive plain"))
		n.boot(t, p)
		time.Sleep(time.Minute)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		if len(n.Calls("create p1/x")) != 1 || len(n.Calls("stop")) > 0 || len(n.Calls("exec p1/x alive plain")) == before {
			t.Errorf("%q", n.Of("p1/x"))
		}
		n.stop()
	})
}

// configMaps are ConfigMaps by name.
type configMaps map[string]map[string]string

func (m configMaps) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	if m[name] == nil {
		return nil, nil
	}
	return &corev1.ConfigMap{Data: m[name]}, nil
}

func (configMaps) Secret(context.Context, string, string) (*corev1.Secret, error) { return nil, nil }

// locked are Secrets of which one cannot be read, and others are not there.
type locked struct{ nothing }

func (locked) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	if name == "locked" {
		return nil, errors.New("the API server is away")
	}
	return nil, nil
}

// TestPullSecrets tells of pull secrets that cannot be had, and starts what does not need
// them.
func TestPullSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.objects = locked{}
		p := pod(1, corev1.RestartPolicyAlways, "x")
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "locked"}, {Name: "none"}}
		n.boot(t, p)
		n.expect(t, "p1", corev1.PodRunning, true)
		if !n.saw("p1 FailedToRetrieveImagePullSecret: The image may not be pulled without all pull secrets: the API server is away\nthere is no Secret none") {
			t.Errorf("%q", n.events)
		}
		n.stop()
	})
}

// TestPostStartOnce runs the hook of a container whose status could not be had right
// after its start, once.
func TestPostStartOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyAlways, "x")
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: command("post")}}
		n.Fail("status p1/x", errors.New("busy"))
		n.boot(t, p)
		n.Fail("status p1/x", nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		n.kill()
		n.boot(t, p)
		if got := n.Of("p1/x"); got != "create, start, exec post" {
			t.Errorf("%q", got)
		}
		n.stop()
	})
}

// TestStaysReady tells of a pod that it is ready as long as nobody has found out that it
// is not any more, and begins anew with another container.
func TestStaysReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		p := pod(1, corev1.RestartPolicyAlways, "x")
		slow := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: command("ask")}, InitialDelaySeconds: 5, PeriodSeconds: 30, FailureThreshold: 1}
		p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].StartupProbe = slow, slow
		n.boot(t, p)
		n.expect(t, "p1", corev1.PodRunning, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		p.Status = n.of("p1")
		n.kill()
		wait := make(chan struct{})
		n.Hang("exec p1/x ask", wait)
		n.boot(t, p)
		n.expect(t, "p1", corev1.PodRunning, true)
		n.OnExec(func(context.Context, string, []string) (int32, error) { return 1, nil })
		close(wait)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, false)
		n.kill()
		n.Exit("p1/x", 1)
		n.boot(t, p)
		n.expect(t, "p1", corev1.PodRunning, false)
		n.stop()
	})
}

// TestEndedByOthers ends a pod of which the API server says that it has failed, whoever
// has written that, also if it was written while no agent ran.
func TestEndedByOthers(t *testing.T) {
	for name, away := range map[string]bool{"while it runs": false, "while away": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				p := pod(1, corev1.RestartPolicyAlways, "x")
				n.boot(t, p)
				failed := p.DeepCopy()
				failed.Status = n.of("p1")
				failed.Status.Phase, failed.Status.Reason = corev1.PodFailed, "NodeLost"
				if away {
					n.kill()
					n.boot(t, failed)
				} else {
					n.Set([]*corev1.Pod{failed})
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				n.expect(t, "p1", corev1.PodFailed, false)
				if got := n.Of("p1/x"); got != "create, start, stop in 30s" || n.of("p1").Reason != "NodeLost" {
					t.Errorf("%q %+v", got, n.of("p1"))
				}
				n.kill()
				n.boot(t, p) // as an older list would have it
				n.expect(t, "p1", corev1.PodFailed, false)
				n.stop()
			})
		})
	}
}

// TestEndIsToldByTheNext has an agent that is killed before the API server heard of the end of a
// pod, or that it was refused, and which the next one tells of.
func TestEndIsToldByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.room = few{most: 1}
		ended, refused := pod(1, corev1.RestartPolicyNever, "x"), pod(2, corev1.RestartPolicyAlways, "x")
		n.boot(t, ended)
		n.Set([]*corev1.Pod{ended, refused})
		synctest.Wait()
		n.Exit("p1/x", 5)
		synctest.Wait()
		before := map[string]corev1.PodStatus{"p1": n.of("p1"), "p2": n.of("p2")}
		n.kill()
		n.reports = &reports{last: map[string]corev1.PodStatus{}}
		n.boot(t, ended, refused) // as the API server still has them
		for name, was := range before {
			n.expect(t, name, corev1.PodFailed, false)
			if now := n.of(name); !status.Equal(&now, &was) {
				t.Errorf("%s was %+v, and is %+v", name, was, now)
			}
		}
		n.stop()
	})
}

// TestTellsMeanwhile has a pod tell how it is while its volumes, its sandbox or an image
// take long, and not only when all is done. What is quick it tells of once.
func TestTellsMeanwhile(t *testing.T) {
	for name, hang := range map[string]func(*node, *corev1.Pod, chan struct{}){
		"volumes": hangs["its volumes"], "sandbox": hangs["RunPodSandbox"],
		"image": func(n *node, _ *corev1.Pod, until chan struct{}) { n.pictures.Store("y", until) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, until := newNode(t), make(chan struct{})
				p := pod(1, corev1.RestartPolicyAlways, "x", "y")
				asks := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ask"}}}, PeriodSeconds: 1}
				p.Spec.Containers[0].ReadinessProbe = asks
				hang(n, p, until)
				n.boot(t, p)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				s, up := n.of("p1"), name == "image"
				if s.StartTime == nil || s.HostIP == "" || s.Phase != corev1.PodPending || condition(s, corev1.PodInitialized) != "True : " {
					t.Errorf("%+v", s)
				}
				if w := s.ContainerStatuses[1].State.Waiting; w == nil || w.Reason != "ContainerCreating" {
					t.Errorf("%+v", s.ContainerStatuses[1])
				}
				if started := strings.HasPrefix(condition(s, corev1.PodReadyToStartContainers), "True"); started != up || s.ContainerStatuses[0].Ready != up || (s.PodIP != "") != up {
					t.Errorf("its sandbox is there: %v, told: %+v", up, s)
				}
				if n.saw("p1 Pulling: Pulling image y") != up || n.saw("p1 Pulled: Image x is already present on the node") != up || n.saw("p1 Created: Container x created") != up || n.saw("p1 Started: Container x started") != up {
					t.Errorf("%q", n.events)
				}
				n.pictures.Store("y", images.Image{Ref: "y", Pulled: true, Took: 2 * time.Second, Waited: time.Second, Info: &runtimeapi.Image{Size: 7}})
				close(until)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				n.expect(t, "p1", corev1.PodRunning, true)
				if !up && !n.saw("p1 Pulled: Image y pulled in 2s (3s including waiting). Image size: 7 bytes.") {
					t.Errorf("%q", n.events)
				}
				n.stop()
			})
		})
	}
}

// TestPostStartKilled runs the postStart hook of a container whose agent was killed before
// that had ended, and does not restart the container for it; and of no other.
func TestPostStartKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, until := newNode(t), make(chan struct{})
		n.OnExec(func(ctx context.Context, _ string, _ []string) (int32, error) {
			select {
			case <-until:
			case <-ctx.Done():
			}
			return 0, ctx.Err()
		})
		p := pod(1, corev1.RestartPolicyAlways, "x")
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: command("post")}}
		n.boot(t, p)
		n.expect(t, "p1", corev1.PodRunning, false)
		n.kill()
		n.boot(t, p)
		n.expect(t, "p1", corev1.PodRunning, false)
		if got := n.Of("p1/x"); got != "create, start, exec post, exec post" {
			t.Errorf("%q", got)
		}
		close(until)
		synctest.Wait()
		n.expect(t, "p1", corev1.PodRunning, true)
		if r, _, err := n.ledger.Read(p.UID); err != nil || len(r.Hooks) > 0 {
			t.Errorf("%v, %v", r.Hooks, err)
		}
		n.kill()
		n.boot(t, p)
		n.expect(t, "p1", corev1.PodRunning, true)
		if got := n.Of("p1/x"); got != "create, start, exec post, exec post" {
			t.Errorf("%q", got)
		}
		n.stop()
	})
}
