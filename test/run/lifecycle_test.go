package run

import (
	"regexp"
	"strings"
	"testing"
)

const beside = `
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata:
  name: standard
  annotations: {fairlead.run/is-default-class: "true"}
handler: crun
---
apiVersion: v1
kind: Pod
metadata: {name: chosen}
spec:
  restartPolicy: Never
  volumes: [{name: work, emptyDir: {}}]
  initContainers:
  - name: side
    image: IMAGE
    restartPolicy: Always
    command: [sh, -c, "trap 'echo side ends; exit 0' TERM; echo side begins; echo side > /work/log; while :; do sleep 0.1; done"]
    volumeMounts: [{name: work, mountPath: /work}]
  - name: init
    image: IMAGE
    command: [sh, -c, "until grep -q side /work/log; do sleep 0.1; done; echo init >> /work/log"]
    volumeMounts: [{name: work, mountPath: /work}]
  containers:
  - name: main
    image: IMAGE
    restartPolicy: Never
    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]
    command: [sh, -c, "echo main >> /work/log; echo saw $(cat /work/log); test $(grep -c main /work/log) = 2 || exit 42"]
    volumeMounts: [{name: work, mountPath: /work}]
---
apiVersion: v1
kind: Pod
metadata:
  name: fitted
  annotations: {fairlead.run/requires: seccomp}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: IMAGE, command: [echo, fitted]}
`

// TestLifecycle runs a pod whose sidecar is there before its init container, and
// ends after its main container, which one of its rules restarts. Its class is the
// default one; that of another pod is chosen by what it requires.
func TestLifecycle(t *testing.T) {
	m := newMachine(t)
	r := m.want(0, "run", "-f", m.dir+"/classes.yaml", "-f", m.write("beside.yaml", fill(beside, "")))
	for _, want := range []string{
		"chosen: runs on RuntimeClass standard, which annotation fairlead.run/is-default-class of RuntimeClass standard gives it",
		"fitted: runs on RuntimeClass on-crun, which fairlead.run/requires gives it: on-crun has seccomp, as 2 others, and is the first of equals by name",
		"container main ended with exit code 42; restarting it",
	} {
		if !strings.Contains(r.err, want) {
			t.Errorf("stderr lacks %q", want)
		}
	}
	in := regexp.MustCompile(`(?s)side begins.*saw side init main\n.*saw side init main main\n.*side ends`)
	if !in.MatchString(r.out) || !strings.Contains(r.out, "| fitted\n") {
		t.Error("the output is not in order")
	}
	if strings.Count(r.out, "side begins") != 1 {
		t.Error("the sidecar was restarted")
	}
	if t.Failed() {
		t.Log(r.out, r.err)
	}
}

// TestExecScore has the kernel spare a command that is executed in a container as little as the
// container itself, when memory runs out.
func TestExecScore(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine, class string) {
		const text = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  runtimeClassName: CLASS\n  containers: [{name: c, image: IMAGE, command: [sleep, '1000']}]\n"
		m.want(0, "run", "--detach", "-f", m.dir+"/classes.yaml", "-f", m.write("p.yaml", fill(text, class)))
		// A runtime that does not do it itself has begun with the command when it is done.
		const soon = "for i in $(seq 50); do if [ $(cat /proc/self/oom_score_adj) = 1000 ]; then break; fi; sleep 0.1; done; cat /proc/1/oom_score_adj /proc/self/oom_score_adj"
		if r := m.want(0, "exec", "p", "--", "sh", "-c", soon); r.out != "1000\n1000\n" {
			t.Errorf("%q", r.out)
		}
		m.want(0, "rm", "--grace", "0", "p")
	})
}
