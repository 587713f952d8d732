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
)

// onBoth runs a test under each runtime; the class is to be used in manifests.
func onBoth(t *testing.T, test func(t *testing.T, m *machine, class string)) {
	for _, class := range []string{"on-runc", "on-crun"} {
		t.Run(class, func(t *testing.T) { test(t, newMachine(t), class) })
	}
}

// fill puts class and image into a manifest.
func fill(text, class string) string {
	return strings.NewReplacer("CLASS", class, "IMAGE", image).Replace(text)
}

const everything = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {COLOUR: blue, file.txt: "from the map"}
---
apiVersion: v1
kind: Secret
metadata: {name: door}
stringData: {password: mellon}
---
apiVersion: v1
kind: Pod
metadata:
  name: all
  labels: {app: everything}
spec:
  runtimeClassName: CLASS
  restartPolicy: Never
  hostname: harbour
  hostAliases:
  - {ip: 192.0.2.7, hostnames: [pier, quay]}
  dnsPolicy: None
  dnsConfig: {nameservers: [192.0.2.53], searches: [example.org], options: [{name: ndots, value: "3"}]}
  securityContext:
    runAsUser: 1000
    runAsGroup: 1001
    supplementalGroups: [3000]
    fsGroup: 2000
    sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "77"}]
  volumes:
  - {name: work, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: settings, configMap: {name: settings, items: [{key: file.txt, path: deep/file.txt, mode: 0440}]}}
  - {name: door, secret: {secretName: door, defaultMode: 0400}}
  - {name: me, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
  - name: both
    projected:
      sources:
      - {configMap: {name: settings}}
      - {secret: {name: door}}
  - {name: tools, image: {reference: IMAGE, pullPolicy: Never}}
  initContainers:
  - name: first
    image: IMAGE
    command: [sh, -c, "mkdir /work/sub && echo one > /work/sub/file && echo init first"]
    volumeMounts: [{name: work, mountPath: /work}]
  - name: second
    image: IMAGE
    command: [sh, -c, "echo two >> /work/sub/file && echo init second"]
    volumeMounts: [{name: work, mountPath: /work}]
  containers:
  - name: main
    image: IMAGE
    command: [sh, -c]
    args:
    - |
      echo id=$(id -u):$(id -g):$(id -G)
      echo env=$COLOUR,$PASSWORD,$(POD),$IP,$MEM
      echo hostname=$(hostname)
      grep -q quay /etc/hosts && grep -q "$IP" /etc/hosts && echo hosts=ok
      echo dns=$(cat /etc/resolv.conf)
      echo sub=$(cat /sub/file)
      echo map=$(cat /settings/deep/file.txt)
      echo secret=$(cat /door/password),$(stat -L -c %a:%g /door/password)
      echo labels=$(cat /me/labels)
      echo both=$(ls /both)
      echo port=$(cat /proc/sys/net/ipv4/ip_unprivileged_port_start)
      echo caps=$(grep CapEff /proc/self/status)
      echo nnp=$(grep NoNewPrivs /proc/self/status)
      echo seccomp=$(grep Seccomp: /proc/self/status)
      touch /x 2>&1
      dd if=/dev/zero of=/memory/big bs=1M count=2 2>&1 | grep -o "No space left"
      touch /settings/new 2>&1
      touch /tools/new 2>&1
      /programs/busybox echo image=$(ls /tools/bin/busybox)
      echo made > /work/mine && echo group=$(stat -c %g /work/mine)
    env:
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: door, key: password}}}
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: MEM, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
    envFrom: [{configMapRef: {name: settings}}]
    resources: {limits: {memory: 64Mi, cpu: 500m}, requests: {cpu: 100m}}
    securityContext:
      readOnlyRootFilesystem: true
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL]}
    volumeMounts:
    - {name: work, mountPath: /work}
    - {name: work, mountPath: /sub, subPath: sub, readOnly: true}
    - {name: memory, mountPath: /memory}
    - {name: settings, mountPath: /settings}
    - {name: door, mountPath: /door}
    - {name: me, mountPath: /me}
    - {name: both, mountPath: /both}
    - {name: tools, mountPath: /tools}
    - {name: tools, mountPath: /programs, subPath: bin}
`

// TestEverything looks from inside at what a container got of its manifest.
func TestEverything(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine, class string) {
		file := m.write("pod.yaml", fill(everything, class))
		r := m.want(0, "run", "-f", m.dir+"/classes.yaml", "-f", file)
		for _, want := range []string{
			"all/first  | init first", "all/second | init second",
			"id=1000:1001:1001 2000 3000",
			"env=blue,mellon,all,10.198.", ",64\n",
			"hostname=harbour", "hosts=ok",
			"dns=nameserver 192.0.2.53 search example.org options ndots:3",
			"sub=one two", "map=from the map", "secret=mellon,440:2000",
			`labels=app="everything"`, "both=COLOUR file.txt password",
			"port=77", "caps=CapEff: 0000000000000000", "nnp=NoNewPrivs: 1", "seccomp=Seccomp: 2",
			"touch: /x: Read-only file system", "No space left", "touch: /settings/new: Read-only file system", "group=2000",
			"touch: /tools/new: Read-only file system", "image=/tools/bin/busybox",
		} {
			if !strings.Contains(r.out, want) {
				t.Errorf("the output lacks %q", want)
			}
		}
		if t.Failed() {
			t.Log(r.out, r.err)
		}
		if !strings.Contains(r.err, "all   "+class+"   "+class[3:]+" ") {
			t.Errorf("the table lacks class and handler:\n%s", r.err)
		}
		if ps := m.want(0, "ps", "-o", "json").out; ps != "[]\n" {
			t.Errorf("a pod is left: %s", ps)
		}
	})
}

func TestFailureIsReported(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine, class string) {
		file := m.write("pod.yaml", fill(`
apiVersion: v1
kind: Pod
metadata: {name: bad}
spec:
  runtimeClassName: CLASS
  restartPolicy: Never
  containers:
  - {name: c, image: IMAGE, command: [sh, -c, "echo the disk is full > /dev/termination-log; exit 7"]}
`, class))
		r := m.want(1, "run", "-f", m.dir+"/classes.yaml", "-f", file)
		if want := "pod bad: Failed: container c ended with exit code 7: the disk is full"; !strings.Contains(r.err, want) {
			t.Errorf("stderr lacks %q:\n%s", want, r.err)
		}
	})
}

const server = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      runtimeClassName: CLASS
      terminationGracePeriodSeconds: GRACE
      containers:
      - name: c
        image: IMAGE
        command: [sh, -c, "trap 'echo bye; exit 0' TERM; echo up; echo oops >&2; while :; do sleep 0.1; done"]
      - name: second
        image: IMAGE
        command: [sleep, "1000"]
`

func serverOf(class, grace string) string {
	return fill(strings.ReplaceAll(server, "GRACE", grace), class)
}

// TestForeground uses the pods of one command from others, as in a second
// terminal, and ends it with Ctrl-C.
func TestForeground(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine, class string) {
		file := m.write("web.yaml", serverOf(class, "1"))
		j := m.background("run", "-f", m.dir+"/classes.yaml", "-f", file)
		j.await(j.err, "web-1")
		j.await(j.out, "web-0/c")
		j.await(j.out, "web-1/c")
		var pods []struct {
			Name, RuntimeClass, Handler, State string
			Addresses                          []string
		}
		if err := json.Unmarshal([]byte(m.want(0, "ps", "-o", "json").out), &pods); err != nil {
			t.Fatal(err)
		}
		if len(pods) != 2 || pods[1].Name != "web-1" || pods[1].RuntimeClass != class || pods[1].Handler != class[3:] || pods[1].State != "Running" || len(pods[1].Addresses) != 2 {
			t.Errorf("ps: %+v", pods)
		}
		if r := m.want(0, "exec", "web-0", "--", "hostname"); r.out != "web-0\n" {
			t.Errorf("exec: %q %q", r.out, r.err)
		}
		if r := m.want(1, "run", "-f", m.dir+"/classes.yaml", "-f", file); !strings.Contains(r.err, "exists already") {
			t.Errorf("a second run: %s", r.err)
		}
		begin := time.Now()
		j.signal(syscall.SIGINT)
		j.ends(130)
		if took := time.Since(begin); took > 4*time.Second {
			t.Errorf("the end took %s with a grace period of 1 s", took)
		}
		if n := strings.Count(j.out.String(), "| bye"); n != 2 {
			t.Errorf("%d of 2 containers said bye:\n%s", n, j.out)
		}
	})
}

// TestSecondInterrupt ends a grace period that is too long.
func TestSecondInterrupt(t *testing.T) {
	m := newMachine(t)
	j := m.background("run", "-f", m.dir+"/classes.yaml", "-f", m.write("web.yaml", serverOf("on-runc", "600")))
	j.await(j.err, "Running")
	j.signal(syscall.SIGINT)
	j.await(j.err, "press Ctrl-C again")
	time.Sleep(300 * time.Millisecond) // the first is under way
	j.signal(syscall.SIGINT)
	begin := time.Now()
	j.ends(130)
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the second interrupt took %s", took)
	}
}

// TestInterruptedStart ends a run in the middle of what it starts: a sandbox that is being
// made then is removed once it is there.
func TestInterruptedStart(t *testing.T) {
	m := newMachine(t)
	text := ""
	for i := range 8 {
		text += fill(fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: p%d}\nspec: {runtimeClassName: CLASS, terminationGracePeriodSeconds: 0, containers: [{name: c, image: IMAGE, command: [sleep, '1000']}]}\n---\n", i), "on-runc")
	}
	j := m.background("run", "-f", m.dir+"/classes.yaml", "-f", m.write("pods.yaml", text))
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if made, _ := filepath.Glob(m.dir + "/run/pods/*"); len(made) > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no pod begins\n%s", j.err)
		}
	}
	j.signal(syscall.SIGINT)
	j.ends(130)
	if ps := m.want(0, "ps", "-o", "json").out; ps != "[]\n" {
		t.Errorf("a pod is left: %s", ps)
	}
}

// TestDetach leaves pods without any daemon, and reaches them afterwards.
func TestDetach(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine, class string) {
		file := m.write("web.yaml", serverOf(class, "1"))
		r := m.want(0, "run", "--detach", "-f", m.dir+"/classes.yaml", "-f", file)
		if !strings.Contains(r.out, "web-0") || !strings.Contains(r.err, "fairlead rm default/web-0 default/web-1") {
			t.Errorf("%s%s", r.out, r.err)
		}
		for _, args := range [][]string{{"ops"}, {"trace", "web-0"}} {
			if r := m.want(1, args...); !strings.Contains(r.err, "no daemon runs that stays") || !strings.Contains(r.err, "start one with fairlead runtime") {
				t.Errorf("%s without a daemon: %s", args[0], r.err)
			}
		}
		if r := m.wantWith("from stdin", 3, "exec", "-i", "web-0", "-c", "c", "--", "sh", "-c", "cat; echo err >&2; exit 3"); r.out != "from stdin" || r.err != "err\n" {
			t.Errorf("exec -i: %+v", r)
		}
		if r := m.want(0, "exec", "-t", "web-0", "--", "tty"); !strings.HasPrefix(r.out, "/dev/pts/") {
			t.Errorf("exec -t: %+v", r)
		}
		if r := m.want(0, "logs", "web-1", "-c", "c"); r.out != "up\n" || r.err != "oops\n" {
			t.Errorf("logs: %+v", r)
		}
		if r := m.want(0, "logs", "default/web-1", "--tail", "1", "--timestamps"); !strings.Contains(r.out+r.err, "c      | 20") {
			t.Errorf("logs of all containers: %+v", r)
		}
		follow := m.background("logs", "-f", "web-0", "-c", "c")
		follow.await(follow.out, "up")
		m.want(0, "stop", "web-0")
		follow.await(follow.out, "bye")
		follow.ends(0)
		if r := m.want(0, "ps"); !strings.Contains(r.out, "Stopped") {
			t.Errorf("ps after stop:\n%s", r.out)
		}
		if r := m.want(1, "rm", "web-0", "web-7"); !strings.Contains(r.err, `there is no pod "web-7"`) {
			t.Errorf("rm: %+v", r)
		}
		m.want(0, "rm", "web-0", "web-1")
		if r := m.want(0, "ps", "-o", "json"); r.out != "[]\n" {
			t.Errorf("ps after rm: %s", r.out)
		}
	})
}

// TestNothingIsLeftOfAFailure has a good pod and one that cannot start.
func TestNothingIsLeftOfAFailure(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine, class string) {
		good := fill("apiVersion: v1\nkind: Pod\nmetadata: {name: good}\nspec: {runtimeClassName: CLASS, containers: [{name: c, image: IMAGE, command: [sleep, '1000']}]}\n---\n", class)
		for name, bad := range map[string]string{
			"no such command": "containers: [{name: c, image: IMAGE, command: [/no/such/command]}]",
			"no such image":   "containers: [{name: c, image: 'localhost/none:1', imagePullPolicy: Never}]",
			"no host path":    "volumes: [{name: v, hostPath: {path: /no/such/path, type: Directory}}], containers: [{name: c, image: IMAGE, volumeMounts: [{name: v, mountPath: /v}]}]",
			"failed init":     "restartPolicy: Never, initContainers: [{name: i, image: IMAGE, command: ['false']}], containers: [{name: c, image: IMAGE}]",
			"root image":      "securityContext: {runAsNonRoot: true}, containers: [{name: c, image: IMAGE}]",
		} {
			file := m.write("pods.yaml", good+fill("apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {runtimeClassName: CLASS, "+bad+"}\n", class))
			r := m.want(1, "run", "-f", m.dir+"/classes.yaml", "-f", file)
			if !strings.Contains(r.err, file+":6: document 2: Pod default/bad: ") {
				t.Errorf("%s: the error does not say where:\n%s", name, r.err)
			}
			if r := m.want(0, "ps", "-o", "json"); r.out != "[]\n" {
				t.Errorf("%s: left %s", name, r.out)
			}
			if left := m.left(); len(left) > 0 {
				t.Errorf("%s: left %q", name, left)
			}
		}
	})
}

// TestRefusals are answered before anything is created.
func TestRefusals(t *testing.T) {
	m := newMachine(t)
	gvisor := "apiVersion: node.k8s.io/v1alpha1\nkind: RuntimeClass\nmetadata: {name: sandboxed}\nspec: {runtimeHandler: no-such-handler}\n---\n"
	pod := func(spec string) string {
		return fill("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {"+spec+", containers: [{name: c, image: IMAGE}]}\n", "")
	}
	tests := []struct {
		name, text string
		code       int
		want       string
	}{
		{"missing handler", gvisor + pod("runtimeClassName: sandboxed"), 1, `asks for the runtime handler "no-such-handler", which this machine does not have; the handlers here are`},
		{"missing class", pod("runtimeClassName: on-rnc"), 1, "did you mean on-runc?"},
		{"field", pod("nodeName: a"), 1, "spec.nodeName: not honoured by Fairlead yet; remove it"},
		{"nothing", "", 1, "holds no document"},
		{"no pod", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", 2, "nothing to run"},
	}
	for _, tt := range tests {
		r := m.wantWith(tt.text, tt.code, "run", "-f", m.dir+"/classes.yaml", "-f", "-")
		if !strings.Contains(r.err, tt.want) {
			t.Errorf("%s: stderr lacks %q:\n%s", tt.name, tt.want, r.err)
		}
	}
	for _, args := range [][]string{{"run"}, {"ps", "-o", "xml"}, {"nonsense"}, {"exec", "a"}, {"rm"}, {"run", "--no-such-flag"}} {
		if r := m.run("", args...); r.code != 2 {
			t.Errorf("fairlead %q: %+v", args, r)
		}
	}
	if r := m.want(1, "-e", m.dir+"/none.sock", "ps"); !strings.Contains(r.err, "there is no socket "+m.dir+"/none.sock") {
		t.Errorf("a missing endpoint: %s", r.err)
	}
}

// TestHangUp closes the terminal, which ends the pods too.
func TestHangUp(t *testing.T) {
	m := newMachine(t)
	text := strings.Replace(serverOf("", "0"), "      runtimeClassName: \n", "", 1)
	j := m.background("run", "-f", m.write("web.yaml", text))
	j.await(j.err, "web-1")
	if !strings.Contains(j.err.String(), "web-0   -       crun ") {
		t.Errorf("the table does not name the default handler:\n%s", j.err)
	}
	j.signal(syscall.SIGHUP)
	j.ends(130)
}

// TestRestart crashes a container and wants it back.
func TestRestart(t *testing.T) {
	m := newMachine(t)
	file := m.write("pod.yaml", fill(`
apiVersion: v1
kind: Pod
metadata: {name: again}
spec:
  runtimeClassName: CLASS
  terminationGracePeriodSeconds: 0
  volumes: [{name: v, emptyDir: {}}]
  containers:
  - name: c
    image: IMAGE
    command: [sh, -c, "echo run >> /v/runs; wc -l < /v/runs; [ $(wc -l < /v/runs) -lt 2 ] && exit 1; sleep 1000"]
    volumeMounts: [{name: v, mountPath: /v}]
`, "on-crun"))
	j := m.background("run", "-f", m.dir+"/classes.yaml", "-f", file)
	j.await(j.err, "container c ended with exit code 1; restarting it")
	j.await(j.out, "| 2")
	j.signal(syscall.SIGTERM)
	j.ends(130)
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestImages(t *testing.T) {
	m := newMachine(t)
	out := filepath.Join(m.dir, "out.tar")
	m.want(0, "image", "export", "-o", out, image)
	if r := m.want(0, "image", "ls"); !strings.Contains(r.out, image) {
		t.Errorf("ls: %s", r.out)
	}
	m.want(0, "image", "rm", image)
	if r := m.want(1, "image", "rm", image); !strings.Contains(r.err, "there is no image") {
		t.Errorf("rm twice: %s", r.err)
	}
	if r := m.wantWith(readFile(t, out), 0, "image", "import", "-"); r.out != image+"\n" {
		t.Errorf("import: %+v", r)
	}
	if r := m.want(0, "image", "import", "--name", "localhost/other:1", out); r.out == "" {
		t.Error("import under another name says nothing")
	}
	if r := m.want(0, "image", "ls", "-o", "json"); strings.Count(r.out, `"id"`) != 1 || !strings.Contains(r.out, "localhost/other:1") {
		t.Errorf("ls: %s", r.out)
	}
	if r := m.wantWith("this is no archive", 1, "image", "import", "-"); r.err == "" {
		t.Error("a broken archive is refused without a word")
	}
	if r := m.want(1, "image", "export", "-o", out+".2", "localhost/none:1"); r.err == "" {
		t.Error("an unknown image is refused without a word")
	}
	if left, _ := filepath.Glob(filepath.Join(m.dir, "*out.tar.2*")); len(left) > 0 {
		t.Errorf("a failed export left %q", left)
	}
	if r := m.want(1, "image", "pull", "localhost:1/none:1"); !strings.Contains(r.err, "localhost:1") {
		t.Errorf("pull: %s", r.err)
	}
}
