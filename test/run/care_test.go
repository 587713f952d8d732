package run

import (
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// careful starts the pod of a spec, on a class that a test runs with.
func careful(m *machine, class, spec string) *job {
	m.t.Helper()
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  runtimeClassName: CLASS\n  volumes: [{name: v, emptyDir: {}}]\n" + spec
	return m.background("run", "-f", m.dir+"/classes.yaml", "-f", m.write("p.yaml", fill(text, class)))
}

// stays is a command line that runs until it is told to end.
const stays = "trap 'echo bye; exit 0' TERM; while :; do sleep 0.1; done"

// TestHooks is the life of a container with both hooks, in order: what it prints, and
// what they print, ends in one file.
func TestHooks(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine, class string) {
		j := careful(m, class, `
  terminationGracePeriodSeconds: 20
  containers:
  - name: c
    image: IMAGE
    command: [sh, -c, "echo main >> /v/log; trap 'echo told=$(cat /v/log); exit 0' TERM; while :; do sleep 0.1; done"]
    volumeMounts: [{name: v, mountPath: /v}]
    lifecycle:
      postStart: {exec: {command: [sh, -c, "until grep -q main /v/log; do sleep 0.1; done; sleep 1; echo post >> /v/log"]}}
      preStop: {exec: {command: [sh, -c, "sleep 1; echo pre >> /v/log"]}}
  - name: second
    image: IMAGE
    command: [sh, -c, "echo saw=$(cat /v/log); `+stays+`"]
    volumeMounts: [{name: v, mountPath: /v}]
`)
		j.await(j.out, "saw=main post")
		j.await(j.err, "2/2")
		j.signal(syscall.SIGINT)
		j.ends(130)
		if !strings.Contains(j.out.String(), "told=main post pre\n") || !strings.Contains(j.out.String(), "bye") {
			t.Errorf("the hooks are not in order:\n%s%s", j.out, j.err)
		}
	})
}

// TestPreStopOfDetached is about a pod that its run has left.
func TestPreStopOfDetached(t *testing.T) {
	m := newMachine(t)
	text := `
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  runtimeClassName: CLASS
  containers:
  - name: c
    image: IMAGE
    command: [sh, -c, "trap 'echo told=$(cat /log); exit 0' TERM; while :; do sleep 0.1; done"]
    lifecycle:
      postStart: {exec: {command: [sh, -c, "echo post > /log"]}}
      preStop: {exec: {command: [sh, -c, "echo pre >> /log"]}}
`
	m.want(0, "run", "--detach", "-f", m.dir+"/classes.yaml", "-f", m.write("p.yaml", fill(text, "on-crun")))
	m.want(0, "stop", "p")
	if r := m.want(0, "logs", "p"); !strings.Contains(r.out, "told=post pre\n") {
		t.Errorf("%+v", r)
	}
	m.want(0, "rm", "p")
}

// TestPreStopHangs wants the grace period kept, and the container told nevertheless.
func TestPreStopHangs(t *testing.T) {
	m := newMachine(t)
	j := careful(m, "on-crun", `
  terminationGracePeriodSeconds: 2
  containers:
  - name: c
    image: IMAGE
    command: [sh, -c, "echo up; `+stays+`"]
    lifecycle: {preStop: {exec: {command: [sleep, "1000"]}}}
`)
	j.await(j.out, "up")
	j.await(j.err, "1/1")
	begin := time.Now()
	j.signal(syscall.SIGINT)
	j.ends(130)
	if took := time.Since(begin); took < 2*time.Second || took > 20*time.Second {
		t.Errorf("the end took %s with a grace period of 2 s and a hook that hangs", took)
	}
	if !strings.Contains(j.out.String(), "bye") || !strings.Contains(j.err.String(), "pod default/p: container c: its preStop hook failed: it did not end in time") {
		t.Errorf("%s%s", j.out, j.err)
	}
}

// TestPostStartFails wants the container ended, and the pod failed by its policy.
func TestPostStartFails(t *testing.T) {
	m := newMachine(t)
	j := careful(m, "on-crun", `
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  containers:
  - name: c
    image: IMAGE
    command: [sh, -c, "`+strings.Replace(stays, "exit 0", "exit 9", 1)+`"]
    lifecycle: {postStart: {exec: {command: [sh, -c, "sleep 1; echo no luck; exit 3"]}}}
`)
	j.ends(1)
	const why = "its postStart hook failed: the command ended with exit code 3: no luck"
	for _, want := range []string{"container c is ended: " + why, "pod p: Failed: container c ended with exit code 9, as " + why} {
		if !strings.Contains(j.err.String(), want) {
			t.Errorf("stderr lacks %q", want)
		}
	}
	if !strings.Contains(j.out.String(), "bye") || t.Failed() {
		t.Errorf("%s%s", j.out, j.err)
	}
}

// TestLiveness restarts a container whose probe fails, by a command and by one that
// hangs.
func TestLiveness(t *testing.T) {
	for name, probe := range map[string]string{
		"fails": "{exec: {command: [sh, -c, 'echo not well; test -e /v/well']}, periodSeconds: 1, failureThreshold: 2}",
		"hangs": "{exec: {command: [sh, -c, 'test -e /v/well || sleep 1000']}, periodSeconds: 1, failureThreshold: 2}",
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			j := careful(m, "on-runc", `
  terminationGracePeriodSeconds: 5
  containers:
  - name: c
    image: IMAGE
    command: [sh, -c, "echo run >> /v/runs; n=$(grep -c run /v/runs); [ $n = 1 ] || touch /v/well; echo attempt=$n; `+stays+`"]
    volumeMounts: [{name: v, mountPath: /v}]
    livenessProbe: `+probe+`
`)
			j.await(j.out, "attempt=2")
			why := "container c is ended: its liveness probe failed 2 times in a row: the command ended with exit code 1: not well"
			if name == "hangs" {
				why = "container c is ended: its liveness probe failed 2 times in a row: the command did not end within 1s"
			}
			j.await(j.err, why)
			j.await(j.err, "container c ended with exit code 0, as its liveness probe failed 2 times in a row")
			time.Sleep(3 * time.Second) // more than two periods, in which it must not be ended again
			j.signal(syscall.SIGTERM)
			j.ends(130)
			if strings.Contains(j.out.String(), "attempt=3") {
				t.Errorf("it was restarted though it is well:\n%s%s", j.out, j.err)
			}
		})
	}
}

// TestReadiness asks a web server in a pod by the pod's address, and a port by name.
func TestReadiness(t *testing.T) {
	m := newMachine(t)
	j := careful(m, "on-crun", `
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: IMAGE
    command: [sh, -c, "mkdir /www; exec httpd -f -p 8080 -h /www"]
    ports: [{name: web, containerPort: 8080}]
    startupProbe: {tcpSocket: {port: web}, periodSeconds: 1, failureThreshold: 60}
    livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 5}
    readinessProbe: {httpGet: {path: /ready.html, port: web, httpHeaders: [{name: X-Test, value: "1"}]}, periodSeconds: 1, failureThreshold: 1}
`)
	j.await(j.err, "0/1")
	j.await(j.err, "pod p: Running, 0 of 1 ready: container web: its readiness probe fails: the answer has the status 404\n")
	m.want(0, "exec", "p", "--", "touch", "/www/ready.html")
	j.await(j.err, "pod p: Running\n")
	m.want(0, "exec", "p", "--", "rm", "/www/ready.html")
	again := regexp.MustCompile(`(?s)pod p: Running\n.*pod p: Running, 0 of 1 ready: container web`)
	for end := time.Now().Add(patience); !again.MatchString(j.err.String()); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it is ready for ever\n%s", j.err)
		}
	}
	j.signal(syscall.SIGINT)
	j.ends(130)
	if strings.Contains(j.err.String(), "is ended") {
		t.Errorf("a container that is not ready was ended:\n%s", j.err)
	}
}

// TestStartup wants what follows a sidecar to wait until it has started, and a
// container that never starts ended.
func TestStartup(t *testing.T) {
	m := newMachine(t)
	j := careful(m, "on-crun", `
  terminationGracePeriodSeconds: 1
  initContainers:
  - name: side
    image: IMAGE
    restartPolicy: Always
    command: [sh, -c, "sleep 2; echo up > /v/up; `+stays+`"]
    volumeMounts: [{name: v, mountPath: /v}]
    startupProbe: {exec: {command: [test, -e, /v/up]}, periodSeconds: 1, failureThreshold: 60}
  containers:
  - name: c
    image: IMAGE
    command: [sh, -c, "echo saw=$(cat /v/up); `+stays+`"]
    volumeMounts: [{name: v, mountPath: /v}]
    startupProbe: {exec: {command: [test, -e, /never]}, periodSeconds: 1, failureThreshold: 2}
    livenessProbe: {exec: {command: [touch, /v/alive]}, periodSeconds: 1}
`)
	j.await(j.out, "saw=up")
	j.await(j.err, "container c is ended: its startup probe failed 2 times in a row: the command ended with exit code 1")
	if r := m.want(1, "exec", "p", "-c", "side", "--", "test", "-e", "/v/alive"); r.out != "" {
		t.Errorf("the liveness probe did not wait: %s", r.out)
	}
	j.await(j.err, "restarting it")
	j.signal(syscall.SIGINT)
	j.ends(130)
	if !strings.Contains(j.err.String(), "container side: its startup probe fails: the command ended with exit code 1") {
		t.Errorf("nothing says what the pod waits for:\n%s", j.err)
	}
}

// TestCommandOfNobody has probes and hooks whose command the image does not have.
func TestCommandOfNobody(t *testing.T) {
	m := newMachine(t)
	j := careful(m, "on-crun", `
  terminationGracePeriodSeconds: 5
  containers:
  - name: c
    image: IMAGE
    command: [sh, -c, "`+stays+`"]
    readinessProbe: {exec: {command: [/no/such/command]}, periodSeconds: 1}
    lifecycle: {preStop: {exec: {command: [/no/such/hook]}}}
`)
	j.await(j.err, "container c: its readiness probe fails: the command cannot be run: ")
	j.signal(syscall.SIGINT)
	j.ends(130)
	for _, want := range []string{"/no/such/command", "its preStop hook failed: ", "/no/such/hook"} {
		if !strings.Contains(j.err.String(), want) {
			t.Errorf("stderr lacks %q\n%s", want, j.err)
		}
	}
}
