package run

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const looked = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: looked}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: server, image: IMAGE, ports: [{name: http, containerPort: 8080}], command: [sh, -c, "echo hello > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"]}
  - {name: helper, image: IMAGE, command: [sh, -c, "echo I help; exec sleep 1000"]}
---
apiVersion: v1
kind: Pod
metadata: {name: crashing}
spec:
  volumes: [{name: count, emptyDir: {}}]
  containers:
  - name: main
    image: IMAGE
    command: [sh, -c, "echo x >> /count/n; echo attempt $(wc -l < /count/n); exit 3"]
    volumeMounts: [{name: count, mountPath: /count}]
---
apiVersion: v1
kind: Pod
metadata: {name: stray}
spec: {containers: [{name: main, image: "localhost/missing:test"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: busy, labels: {app: other}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: IMAGE, command: [sh, -c, "while :; do :; done"]}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  selector: {matchLabels: {shop: "1"}}
  template:
    metadata: {labels: {shop: "1", app: looked}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: till, image: IMAGE, command: [sh, -c, "echo open; exec sleep 1000"]}]
`

// TestUpLooks looks at pods as people do: what they have written, and what they serve.
func TestUpLooks(t *testing.T) {
	m := newMachine(t)
	j := m.up()
	m.want(0, "apply", "-f", m.write("looked.yaml", fill(looked, "")))
	m.await("the pods", func(pods map[string]corev1.Pod) bool {
		w := container(pods["stray"]).State.Waiting
		return ready(pods["web"]) && ready(pods["busy"]) && ready(pods["shop-0"]) && container(pods["crashing"]).RestartCount > 0 && w != nil && strings.Contains(w.Reason, "ImagePull")
	})
	m.describes()
	m.tops()
	m.logs()
	m.forwards()
	m.want(0, "delete", "pod", "crashing", "stray", "busy")
	m.want(0, "delete", "deployment", "shop")
	m.await("no pods", func(pods map[string]corev1.Pod) bool { return len(pods) == 0 })
	j.signal(syscall.SIGINT)
	j.ends(0)
}

func (m *machine) describes() {
	m.t.Helper()
	out := m.want(0, "describe", "pod", "stray").out
	for _, want := range []string{"localhost/missing:test", "ImagePull", "Why: ", "Events:", "Failed"} {
		if !strings.Contains(out, want) {
			m.t.Errorf("the description lacks %q:\n%s", want, out)
		}
	}
	if r := m.want(0, "get", "po"); !strings.Contains(r.out, "ImagePull") || !strings.Contains(r.err, "pod stray: ") || strings.Contains(r.err, "pod web: ") {
		m.t.Errorf("%s%s", r.out, r.err)
	}
	if out := m.want(0, "get", "node", "-o", "wide").out; !strings.Contains(out, "Ready") || !strings.Contains(out, "fairlead://") {
		m.t.Errorf("%s", out)
	}
}

// tops has numbers the first time.
func (m *machine) tops() {
	m.t.Helper()
	out := m.want(0, "top", "pods", "busy", "--containers").out
	if use := regexp.MustCompile(`(?m)^busy +main +(\d+)m +\d+Mi$`).FindStringSubmatch(out); len(use) == 0 || len(use[1]) < 2 {
		m.t.Errorf("a container that never rests:\n%s", out)
	}
	if out := m.want(0, "top", "node").out; !regexp.MustCompile(`\d+m +\d+% +\d+Mi +\d+%`).MatchString(out) {
		m.t.Errorf("%s", out)
	}
}

func (m *machine) logs() {
	m.t.Helper()
	if out := m.want(0, "logs", "web").out; out != "helper | I help\n" {
		m.t.Errorf("%q", out)
	}
	if out := m.want(0, "logs", "web", "-c", "helper", "--prefix", "--tail", "1").out; out != "[pod/web/helper] I help\n" {
		m.t.Errorf("%q", out)
	}
	if r := m.want(0, "logs", "deploy/shop"); r.out != "open\n" {
		m.t.Errorf("%q, %q", r.out, r.err)
	}
	if out := m.want(0, "exec", "deploy/shop", "-n", "default", "--", "hostname").out; out != "shop-0\n" {
		m.t.Errorf("%q", out)
	}
	if out := m.want(0, "logs", "-l", "app=looked").out; out != "shop-0 till | open\nweb helper  | I help\n" {
		m.t.Errorf("%q", out)
	}
	// It may be restarted in between.
	if out := m.want(0, "logs", "crashing", "--previous").out; !regexp.MustCompile(`^attempt \d+\n$`).MatchString(out) {
		m.t.Errorf("%q", out)
	}
	for want, args := range map[string][]string{
		"web has no container \"other\"; it has":            {"web", "-c", "other"},
		"was not restarted":                                 {"web", "--previous"},
		"container main of pod stray was not started yet: ": {"stray"},
		"did you mean web?":                                 {"wep"},
	} {
		if r := m.want(1, append([]string{"logs"}, args...)...); !strings.Contains(r.err, want) {
			m.t.Errorf("logs %s: %q, want %q", args, r.err, want)
		}
	}
}

// forwards reaches a server in a pod, and a port where there is none; then the pod goes.
func (m *machine) forwards() {
	m.t.Helper()
	j := m.background("port-forward", "web", ":8080", ":9", "--address", "127.0.0.1")
	j.await(j.out, "-> 9\n")
	at := regexp.MustCompile(`(?m)^Forwarding from (\S+) -> \d+$`).FindAllStringSubmatch(j.out.String(), -1)
	if len(at) != 2 {
		m.t.Fatalf("%s", j.out)
	}
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 3 {
		resp, err := client.Get(fmt.Sprintf("http://%s/index.html", at[0][1]))
		if err != nil {
			m.t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(text) != "hello\n" {
			m.t.Errorf("%q, %v", text, err)
		}
	}
	conn, err := net.Dial("tcp", at[1][1])
	if err != nil {
		m.t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	if text, _ := io.ReadAll(conn); len(text) > 0 {
		m.t.Errorf("%q", text)
	}
	_ = conn.Close()
	j.await(j.err, "port 9 of pod web: ")
	idle, err := net.Dial("tcp", at[0][1])
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = idle.Close() }()
	second := m.background("port-forward", "pod/web", ":http")
	second.await(second.out, "-> 8080\n")
	second.signal(syscall.SIGINT)
	second.ends(130)
	m.want(0, "delete", "pod", "web")
	j.ends(1)
	if !strings.Contains(j.err.String(), "pod web ") {
		m.t.Errorf("%s", j.err)
	}
	_ = idle.SetDeadline(time.Now().Add(patience))
	if _, err := io.ReadAll(idle); err != nil && !strings.Contains(err.Error(), "reset") {
		m.t.Errorf("a connection outlives its pod: %v", err)
	}
	if r := m.want(1, "port-forward", "web", "80"); !strings.Contains(r.err, "there is no pod") {
		m.t.Errorf("%s", r.err)
	}
	if r := m.want(1, "port-forward", "busy", "http"); !strings.Contains(r.err, "pod busy has no port \"http\"") {
		m.t.Errorf("%s", r.err)
	}
	m.want(2, "port-forward", "busy", "http:80")
}
