package run

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// pods are those that fairlead up keeps, by name.
func (m *machine) pods() map[string]corev1.Pod {
	m.t.Helper()
	var list corev1.PodList
	if err := json.Unmarshal([]byte(m.want(0, "get", "pods", "-o", "json").out), &list); err != nil {
		m.t.Fatal(err)
	}
	out := map[string]corev1.Pod{}
	for _, p := range list.Items {
		out[p.Name] = p
	}
	return out
}

// await waits until the pods are so.
func (m *machine) await(what string, so func(map[string]corev1.Pod) bool) {
	m.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		pods := m.pods()
		if so(pods) {
			return
		}
		if time.Now().After(end) {
			text, _ := json.MarshalIndent(pods, "", " ")
			m.t.Fatalf("%s: does not come: %s\n%s", what, text, m.run("", "events").out)
		}
	}
}

// up starts fairlead up, and waits until it answers.
func (m *machine) up(more ...string) *job {
	m.t.Helper()
	// The disk of a machine that others use, too, is no reason to evict pods.
	j := m.background(append([]string{"up", "--manifests", m.dir + "/manifests", "--eviction-hard", "memory.available<50Mi"}, more...)...)
	m.t.Cleanup(func() { // a test that has failed leaves it, and it would keep its pods
		_ = j.cmd.Process.Kill()
		<-j.done
	})
	for end := time.Now().Add(patience); m.run("", "get", "pods").code != 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("fairlead up does not answer: %s", j.err.String())
		}
	}
	return j
}

func ready(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func container(p corev1.Pod) corev1.ContainerStatus {
	if len(p.Status.ContainerStatuses) == 0 {
		return corev1.ContainerStatus{}
	}
	return p.Status.ContainerStatuses[0]
}

const kept = `
apiVersion: v1
kind: Pod
metadata: {name: server}
spec:
  runtimeClassName: CLASS
  terminationGracePeriodSeconds: 1
  volumes: [{name: conf, configMap: {name: conf}}, {name: data, persistentVolumeClaim: {claimName: data}}]
  containers:
  - name: main
    image: IMAGE
    command: [sh, -c, "echo started >> /data/starts; trap 'exit 0' TERM; while :; do sleep 0.1; done"]
    volumeMounts: [{name: conf, mountPath: /conf}, {name: data, mountPath: /data}]
    readinessProbe: {periodSeconds: 1, exec: {command: [test, -e, /conf/greeting]}}
---
apiVersion: v1
kind: Pod
metadata: {name: crashing}
spec:
  runtimeClassName: CLASS
  containers: [{name: main, image: IMAGE, command: [sh, -c, "exit 3"]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {greeting: one}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: sum}
spec:
  completions: 2
  template:
    spec:
      runtimeClassName: CLASS
      restartPolicy: Never
      containers: [{name: main, image: IMAGE, command: [echo, done]}]
`

// TestUp keeps pods through kills of the agent and the runtime with it: nothing that
// runs is restarted, nothing that has ended runs again, and all goes when its manifests
// go.
func TestUp(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine, class string) {
		j := m.up()
		m.want(0, "apply", "-f", m.dir+"/classes.yaml", "-f", m.write("kept.yaml", fill(kept, class)))
		done := func(pods map[string]corev1.Pod) (n int) {
			for name, p := range pods {
				if strings.HasPrefix(name, "sum-") && p.Status.Phase == corev1.PodSucceeded {
					n++
				}
			}
			return n
		}
		crashes := func(p corev1.Pod) bool {
			w := container(p).State.Waiting
			return w != nil && w.Reason == "CrashLoopBackOff"
		}
		m.await("the pods", func(pods map[string]corev1.Pod) bool {
			return ready(pods["server"]) && crashes(pods["crashing"]) && done(pods) == 2
		})
		before := m.pods()
		score := readFile(t, fmt.Sprintf("/proc/%d/oom_score_adj", j.cmd.Process.Pid))
		if may := !strings.Contains(j.err.String(), "cannot be given the oom_score_adj"); may != (score == "-999\n") { // who tests may lack the capability
			t.Errorf("when memory runs out it has the score %q", score)
		}
		j.signal(syscall.SIGKILL)
		j.ends(-1)
		j = m.up()
		m.await("the same pods", func(pods map[string]corev1.Pod) bool {
			return ready(pods["server"]) && crashes(pods["crashing"]) && done(pods) == 2
		})
		after := m.pods()
		for _, name := range []string{"server", "crashing"} {
			b, a := before[name], after[name]
			if a.UID != b.UID || !a.Status.StartTime.Equal(b.Status.StartTime) || container(a).RestartCount < container(b).RestartCount {
				t.Errorf("pod %s is another one: %+v, was %+v", name, a.Status, b.Status)
			}
		}
		if a, b := container(after["server"]), container(before["server"]); a.ContainerID != b.ContainerID || a.RestartCount != 0 {
			t.Errorf("the server was restarted: %+v", a)
		}
		if starts := readFile(t, m.dir+"/lib/claims/default/data/starts"); starts != "started\n" {
			t.Errorf("starts %q", starts)
		}
		// What is changed in an object is seen in the container that runs.
		m.want(0, "apply", "-f", m.write("kept.yaml", strings.Replace(fill(kept, class), "greeting: one", "greeting: two", 1)))
		for end := time.Now().Add(patience); m.want(0, "exec", "server", "--", "cat", "/conf/greeting").out != "two"; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the volume keeps what it had")
			}
		}
		m.want(0, "delete", "-f", m.dir+"/kept.yaml")
		m.await("no pods", func(pods map[string]corev1.Pod) bool { return len(pods) == 0 })
		m.want(0, "delete", "runtimeclass", "on-runc", "on-crun")
		j.signal(syscall.SIGINT)
		j.ends(0)
	})
}

// TestUpFiles has files that are broken, wrong and doubled beside one that is good.
func TestUpFiles(t *testing.T) {
	m := newMachine(t)
	folder := m.dir + "/manifests"
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pod := func(name, more string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n%s  terminationGracePeriodSeconds: 1\n"+
			"  containers: [{name: main, image: %s, command: [sleep, '1000']}]\n", name, more, image)
	}
	file("good.yaml", pod("good", ""))
	file("half.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: half")
	file("no-class.yaml", pod("stray", "  runtimeClassName: missing\n"))
	file("zz-double.yaml", pod("good", "")+"---\n"+pod("other", ""))
	j := m.up()
	m.await("the good ones", func(pods map[string]corev1.Pod) bool {
		return ready(pods["good"]) && pods["stray"].Status.Phase == corev1.PodFailed
	})
	if s := m.pods()["stray"].Status; s.Reason != "RuntimeClassNotFound" || !strings.Contains(s.Message, "missing") {
		t.Errorf("%s: %s", s.Reason, s.Message)
	}
	problems := m.want(0, "get", "problems").out
	for _, want := range []string{"half.yaml:", "zz-double.yaml", "is defined twice"} {
		if !strings.Contains(problems, want) {
			t.Errorf("problems %q, want %q", problems, want)
		}
	}
	// The class comes; the good file breaks and keeps its pod.
	good := m.pods()["good"]
	m.want(0, "apply", "-f", m.write("class.yaml", "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: missing}\nhandler: runc\n"))
	file("good.yaml", "kind: [")
	m.await("the stray one", func(pods map[string]corev1.Pod) bool {
		return ready(pods["stray"]) && strings.Contains(m.want(0, "get", "problems").out, "good.yaml")
	})
	if now := m.pods()["good"]; now.UID != good.UID || container(now).ContainerID != container(good).ContainerID {
		t.Errorf("a broken file has ended its pod: %+v", now.Status)
	}
	r := m.run("", "delete", "pod", "stray")
	if r.code != 1 || !strings.Contains(r.err, "no-class.yaml") {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"good.yaml", "half.yaml", "no-class.yaml", "zz-double.yaml"} {
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	m.await("no pods", func(pods map[string]corev1.Pod) bool { return len(pods) == 0 })
	if r := m.run("", "up", "--manifests", m.dir+"/others"); r.code != 1 || !strings.Contains(r.err, "keeps the pods of this machine") {
		t.Errorf("a second one: %+v", r)
	}
	j.signal(syscall.SIGINT)
	j.ends(0)
	if r := m.run("", "get", "pods"); r.code != 1 || !strings.Contains(r.err, "fairlead up") {
		t.Errorf("%+v", r)
	}
}

// TestUpLeavesOthers has pods of a run beside those of up: neither touches the other's.
func TestUpLeavesOthers(t *testing.T) {
	m := newMachine(t)
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME}\nspec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: " + image + ", command: [sleep, '1000']}]}\n"
	m.want(0, "run", "-d", "-f", m.write("run.yaml", strings.Replace(text, "NAME", "detached", 1)))
	j := m.up()
	m.want(0, "apply", "-f", m.write("up.yaml", strings.Replace(text, "NAME", "kept", 1)))
	m.await("its pod", func(pods map[string]corev1.Pod) bool { return len(pods) == 1 && ready(pods["kept"]) })
	m.want(0, "delete", "pod", "kept")
	m.await("no pods", func(pods map[string]corev1.Pod) bool { return len(pods) == 0 })
	if out := m.want(0, "ps").out; !strings.Contains(out, "detached") || strings.Contains(out, "kept") {
		t.Errorf("%s", out)
	}
	j.signal(syscall.SIGINT)
	j.ends(0)
	m.want(0, "rm", "detached")
}
