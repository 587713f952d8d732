package run

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const users = `
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  runtimeClassName: CLASS
  hostUsers: false
  terminationGracePeriodSeconds: 1
  securityContext: {fsGroup: 7}
  volumes: [{name: data, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory}}, {name: conf, configMap: {name: conf}}]
  containers:
  - name: main
    image: IMAGE
    command: [sh, -c, "touch /data/mine /memory/mine /part/mine; trap 'exit 0' TERM; while :; do sleep 0.1; done"]
    securityContext: {runAsGroup: 9}
    volumeMounts:
    - {name: data, mountPath: /data}
    - {name: memory, mountPath: /memory}
    - {name: conf, mountPath: /conf}
    - {name: data, mountPath: /part, subPath: a/b}
    - {name: memory, mountPath: /fast, subPath: c}
    - {name: conf, mountPath: /one, subPath: greeting}
    readinessProbe: {periodSeconds: 1, exec: {command: [test, -e, /memory/mine]}}
`

// handlerFacts are what is told of a handler.
type handlerFacts struct {
	Name           string
	Ready          bool
	UserNamespaces bool
}

// handler is what is told of one, once it was tried.
func (m *machine) handler(name string) handlerFacts {
	m.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		text := m.want(0, "handlers", "-o", "json").out
		var list []handlerFacts
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			m.t.Fatalf("%v: %s", err, text)
		}
		for _, h := range list {
			if h.Name == name && h.Ready {
				return h
			}
		}
		if time.Now().After(end) {
			m.t.Fatalf("the handler %s is not ready: %s", name, text)
		}
	}
}

// TestUpUsers has pods with user namespaces: each has ids of its own, through kill -9, and
// its volumes belong to whom they belong in any other pod.
func TestUpUsers(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine, class string) {
		// Root of a pod, who is nobody here, follows paths to what the runtime keeps.
		if err := os.Chmod(m.dir, 0o711); err != nil {
			t.Fatal(err)
		}
		j := m.up()
		able := m.handler(class[3:]).UserNamespaces // asked for before, so that a pod that fails is no excuse
		conf := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata: {greeting: hello}\n"
		text := fill(strings.Replace(users, "NAME", "first", 1)+"---"+strings.Replace(users, "NAME", "second", 1)+conf, class)
		m.want(0, "apply", "-f", m.dir+"/classes.yaml", "-f", m.write("users.yaml", text))
		if !able {
			m.await("a refusal", func(pods map[string]corev1.Pod) bool {
				s := pods["first"].Status
				return s.Phase == corev1.PodFailed && strings.Contains(s.Message, "has no userNamespaces")
			})
			t.Skipf("%s can make no user namespaces on this node, and pods that ask for them are refused", class[3:])
		}
		m.await("the pods", func(pods map[string]corev1.Pod) bool { return ready(pods["first"]) && ready(pods["second"]) })
		seen := func(name string) string {
			t.Helper()
			ids := strings.Fields(m.want(0, "exec", name, "--", "cat", "/proc/self/uid_map").out)
			if len(ids) != 3 || ids[0] != "0" || ids[1] == "0" || ids[2] != "65536" {
				t.Errorf("%s: the users are mapped by %q", name, ids)
			}
			if got := m.want(0, "exec", name, "--", "stat", "-c", "%n %u:%g", "/data", "/data/mine", "/memory", "/memory/mine", "/part", "/part/mine", "/fast", "/one").out; got != "/data 0:7\n/data/mine 0:7\n/memory 0:7\n/memory/mine 0:7\n/part 0:7\n/part/mine 0:7\n/fast 0:7\n/one 0:7\n" {
				t.Errorf("%s: volumes are of %q", name, got)
			}
			if got := m.want(0, "exec", name, "--", "cat", "/conf/greeting", "/one").out; got != "hellohello" {
				t.Errorf("%s: it reads %q", name, got)
			}
			if got := m.want(0, "exec", name, "--", "sh", "-c", "id -u; id -G").out; got != "0\n9 7\n" { // a group alone, of the image's user
				t.Errorf("%s: its user and groups are %q", name, got)
			}
			return strings.Join(ids, " ")
		}
		first, second := seen("first"), seen("second")
		if first == second {
			t.Errorf("both have the users %q", first)
		}
		j.signal(syscall.SIGKILL)
		j.ends(-1)
		j = m.up()
		m.await("the same pods", func(pods map[string]corev1.Pod) bool { return ready(pods["first"]) && ready(pods["second"]) })
		if a, b := seen("first"), seen("second"); a != first || b != second {
			t.Errorf("they had %q and %q, and have %q and %q", first, second, a, b)
		}
		m.want(0, "delete", "-f", m.dir+"/users.yaml")
		m.await("no pods", func(pods map[string]corev1.Pod) bool { return len(pods) == 0 })
		if left, err := os.ReadDir(m.dir + "/lib/userids"); err != nil || len(left) > 0 {
			t.Errorf("ids are left: %v, %v", left, err)
		}
		m.want(0, "delete", "runtimeclass", "on-runc", "on-crun")
		j.signal(syscall.SIGINT)
		j.ends(0)
	})
}
