package run

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

const more = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: harbour}
data: {COLOUR: blue}
---
apiVersion: v1
kind: Pod
metadata:
  name: more
  namespace: harbour
  annotations: {kubernetes.io/egress-bandwidth: 8M, note: by hand}
spec:
  runtimeClassName: CLASS
  restartPolicy: Never
  shareProcessNamespace: true
  securityContext:
    runAsUser: 1000
    runAsNonRoot: true
    supplementalGroups: [3000]
    supplementalGroupsPolicy: Strict
    seccompProfile: {type: Localhost, localhostProfile: no-mkdir.json}
  volumes:
  - {name: there, hostPath: {path: DIR/there, type: Directory}}
  - {name: made, hostPath: {path: DIR/made, type: DirectoryOrCreate}}
  - {name: talk, emptyDir: {}}
  - {name: me, projected: {defaultMode: 0444, sources: [{downwardAPI: {items: [{path: where, fieldRef: {fieldPath: metadata.namespace}}]}}]}}
  containers:
  - name: main
    image: IMAGE
    workingDir: /made/for/me
    tty: true
    command: [sh, -c]
    args:
    - |
      echo cwd=$(pwd)
      echo tty=$([ -t 2 ] && echo yes)
      echo groups=$(id -u):$(id -g):$(id -G)
      mkdir /talk/x 2>/dev/null || echo mkdir=refused
      echo there=$(cat /there/file) below=$(cat /below)
      touch /there/new 2>/dev/null || echo there=read-only
      echo me=$(cat /me/where),$WHERE,$NOTE
      echo prefix=$MY_COLOUR
      echo share=$SHARE
      echo tc=$(tc qdisc show dev eth0 | grep -o tbf)
      echo made=$(ls -d /made-here)
      touch /mine/file && echo mine=$(ls /talk/harbour/250)
      until ps | grep -q "[s]leep 4321"; do sleep 0.1; done
      echo processes=shared
      touch /talk/done
    env:
    - {name: WHERE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    - {name: NOTE, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['note']"}}}
    - {name: SHARE, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}
    envFrom: [{prefix: MY_, configMapRef: {name: settings}}]
    resources: {requests: {cpu: 250m}}
    volumeMounts:
    - {name: there, mountPath: /there, readOnly: true}
    - {name: there, mountPath: /below, subPath: sub/file}
    - {name: made, mountPath: /made-here}
    - {name: talk, mountPath: /talk}
    - {name: talk, mountPath: /mine, subPathExpr: $(WHERE)/$(SHARE)}
    - {name: me, mountPath: /me}
  - name: other
    image: IMAGE
    command: [sh, -c, "sleep 4321 & until [ -e /talk/done ]; do sleep 0.1; done; kill $!"]
    volumeMounts: [{name: talk, mountPath: /talk}]
`

// TestMore is TestEverything for more fields.
func TestMore(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine, class string) {
		for dir, files := range map[string][]string{"there/sub": {"there/file", "there/sub/file"}, "lib/seccomp": {"lib/seccomp/no-mkdir.json"}} {
			if err := os.MkdirAll(filepath.Join(m.dir, dir), 0o755); err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				m.write(f, filepath.Base(filepath.Dir(f)))
				if err := os.Chmod(filepath.Join(m.dir, f), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		m.write("lib/seccomp/no-mkdir.json", `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}`)
		if err := os.Chmod(m.dir, 0o711); err != nil { // as a folder of the node's would be
			t.Fatal(err)
		}
		text := strings.ReplaceAll(fill(more, class), "DIR", m.dir)
		r := m.wantWith(text, 0, "run", "-f", m.dir+"/classes.yaml", "-f", "-")
		for _, want := range []string{
			"cwd=/made/for/me", "tty=yes", "groups=1000:0:0 3000", "mkdir=refused", "there=there below=sub", "there=read-only",
			"me=harbour,harbour,by hand", "prefix=blue", "share=250", "tc=tbf", "made=/made-here", "mine=file", "processes=shared",
		} {
			if !strings.Contains(r.out, want) {
				t.Errorf("the output lacks %q", want)
			}
		}
		if t.Failed() {
			t.Log(r.out, r.err)
		}
		if st, err := os.Stat(m.dir + "/made"); err != nil || !st.IsDir() {
			t.Errorf("a folder of the node that was to be made: %v", err)
		}
	})
}

// TestNodesOwn is a pod with the namespaces of the node, and a privileged
// container.
func TestNodesOwn(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine, class string) {
		r := m.wantWith(fill(`
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  runtimeClassName: CLASS
  restartPolicy: Never
  hostNetwork: true
  hostPID: true
  hostIPC: true
  containers:
  - name: c
    image: IMAGE
    securityContext: {privileged: true}
    command: [sh, -c, "for n in net pid ipc; do readlink /proc/self/ns/$n; done; grep Seccomp: /proc/self/status; hostname"]
`, class), 0, "run", "-f", m.dir+"/classes.yaml", "-f", "-")
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		wanted := []string{"Seccomp:\t0", host}
		for _, kind := range []string{"net", "pid", "ipc"} {
			own, err := os.Readlink("/proc/self/ns/" + kind)
			if err != nil {
				t.Fatal(err)
			}
			wanted = append(wanted, own)
		}
		for _, want := range wanted {
			if !strings.Contains(r.out, "a/c | "+want+"\n") {
				t.Errorf("the output lacks %q: %s", want, r.out)
			}
		}
	})
}

// TestHostPort fetches a page from the node's port, and reads of the pod in all
// the ways in which ps prints.
func TestHostPort(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine, class string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		text := strings.ReplaceAll(fill(`
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  runtimeClassName: CLASS
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: IMAGE
    command: [sh, -c, "mkdir /www && echo page >/www/index.html && exec httpd -f -p 80 -h /www"]
    ports: [{containerPort: 80, hostPort: PORT}]
`, class), "PORT", fmt.Sprint(port))
		file := m.write("web.yaml", text)
		j := m.background("run", "-f", m.dir+"/classes.yaml", "-f", file)
		j.await(j.err, "Running")
		address := fmt.Sprintf("http://127.0.0.1:%d/", port)
		var page string
		for end := time.Now().Add(patience); page != "page\n" && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			page = get(address)
		}
		if page != "page\n" {
			t.Errorf("the port of the node says %q", page)
		}
		for command, fields := range map[string][]string{
			"ps": {"name: web", "handler: " + class[3:], "state: Running"}, "handlers": {"name: " + class[3:], "ready: true"},
			"version": {"fairlead: ", "platform: linux/"}, "image ls": {"- " + image},
		} {
			asYAML := m.want(0, append(strings.Fields(command), "-o", "yaml")...).out
			asJSON := m.want(0, append(strings.Fields(command), "-o", "json")...).out
			for _, want := range fields {
				if !strings.Contains(asYAML, want) {
					t.Errorf("%s -o yaml lacks %q:\n%s", command, want, asYAML)
				}
			}
			var one, two any
			if err := json.Unmarshal([]byte(asJSON), &one); err != nil {
				t.Errorf("%s -o json: %v", command, err)
			}
			if err := yaml.Unmarshal([]byte(asYAML), &two); err != nil {
				t.Errorf("%s -o yaml: %v", command, err)
			}
			a, _ := json.Marshal(one)
			b, _ := json.Marshal(two)
			if string(a) != string(b) {
				t.Errorf("%s says in JSON\n%s\nand in YAML\n%s", command, a, b)
			}
		}
		j.signal(syscall.SIGINT)
		j.ends(130)
		if page := get(address); page != "" {
			t.Errorf("without the pod the port of the node says %q", page)
		}
	})
}

// TestUnderADaemon uses a daemon that runs already, and leaves it running.
func TestUnderADaemon(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine, class string) {
		daemon := m.background("runtime")
		for end := time.Now().Add(patience); !strings.Contains(m.want(0, "version", "-o", "json").out, `"endpoint"`); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the daemon does not answer\n%s", daemon.err)
			}
		}
		j := m.background("run", "-f", m.dir+"/classes.yaml", "-f", m.write("web.yaml", serverOf(class, "1")))
		j.await(j.err, "web-1")
		if r := m.want(0, "ps"); strings.Count(r.out, "Running") != 2 {
			t.Errorf("ps: %s", r.out)
		}
		j.signal(syscall.SIGINT)
		j.ends(130)
		m.want(0, "run", "--detach", "-f", m.dir+"/classes.yaml", "-f", m.dir+"/web.yaml")
		daemon.signal(syscall.SIGTERM)
		daemon.ends(0)
		if r := m.want(0, "exec", "web-0", "-c", "c", "--", "echo", "alive"); r.out != "alive\n" {
			t.Errorf("a pod after the end of the daemon: %+v", r)
		}
		m.want(0, "rm", "web-0", "web-1")
	})
}

// get fetches a page; what cannot be fetched is empty.
func get(address string) string {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(address)
	if err != nil {
		return ""
	}
	defer func() { _ = r.Body.Close() }()
	text, _ := io.ReadAll(r.Body)
	return string(text)
}

// TestMessageOfAFailure takes the end of the log for a message, as the container
// asks for.
func TestMessageOfAFailure(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine, class string) {
		r := m.wantWith(fill(`
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  runtimeClassName: CLASS
  restartPolicy: Never
  containers:
  - {name: c, image: IMAGE, command: [sh, -c, "echo the disk is full; exit 7"], terminationMessagePolicy: FallbackToLogsOnError}
`, class), 1, "run", "-f", m.dir+"/classes.yaml", "-f", "-")
		if want := "pod a: Failed: container c ended with exit code 7: the disk is full"; !strings.Contains(r.err, want) {
			t.Errorf("stderr lacks %q:\n%s", want, r.err)
		}
	})
}
