package run

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func sleeping(name string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: " + image + ", command: [sleep, '1000']}]}\n---\n"
}

// empty asks for no pods, which no text at all does not.
const empty = "apiVersion: v1\nkind: List\nitems: []\n"

// TestUpAddress keeps the pods that a server has beside those of the folder, and goes on
// with them when the server does not answer any more, through a restart, too.
func TestUpAddress(t *testing.T) {
	m := newMachine(t)
	var served atomic.Value
	served.Store(sleeping("served"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := served.Load().(string); r.Header.Get("X-Token") == "secret" && text != "" {
			_, _ = io.WriteString(w, text)
		} else {
			http.Error(w, "no", http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	flags := []string{"--manifest-url", server.URL, "--manifest-url-header", "X-Token: secret", "--http-check-frequency", "100ms"}
	j := m.up(flags...)
	m.want(0, "apply", "-f", m.write("pod.yaml", sleeping("applied")))
	m.await("both", func(pods map[string]corev1.Pod) bool { return ready(pods["served"]) && ready(pods["applied"]) })
	before := m.pods()
	served.Store("")
	for end := time.Now().Add(patience); !strings.Contains(m.want(0, "get", "problems").out, "503"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a server that does not answer is no problem")
		}
	}
	j.signal(syscall.SIGKILL)
	j.ends(-1)
	j = m.up(flags...)
	m.await("both again", func(pods map[string]corev1.Pod) bool { return ready(pods["served"]) && ready(pods["applied"]) })
	for name, p := range m.pods() {
		if container(p).ContainerID != container(before[name]).ContainerID {
			t.Errorf("%s was started again", name)
		}
	}
	if r := m.run("", "delete", "pod", "served"); r.code != 1 || !strings.Contains(r.err, "127.0.0.1") {
		t.Errorf("%+v", r)
	}
	served.Store(empty)
	m.await("one is gone", func(pods map[string]corev1.Pod) bool { return len(pods) == 1 && ready(pods["applied"]) })
	m.want(0, "delete", "pod", "applied")
	m.await("no pods", func(pods map[string]corev1.Pod) bool { return len(pods) == 0 })
	j.signal(syscall.SIGINT)
	j.ends(0)
}

// TestUpInput reads its pods once, and ends none of them because of what it cannot read.
func TestUpInput(t *testing.T) {
	m := newMachine(t)
	up := func(text string) *job {
		t.Helper()
		// As machine.up does, for the disk of a machine that others use.
		cmd := m.command("up", "--manifests", "-", "--eviction-hard", "memory.available<50Mi")
		cmd.Stdin = strings.NewReader(text)
		j := m.start(cmd)
		t.Cleanup(func() {
			_ = j.cmd.Process.Kill()
			<-j.done
		})
		for end := time.Now().Add(patience); m.run("", "get", "pods").code != 0; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("fairlead up does not answer: %s", j.err.String())
			}
		}
		return j
	}
	j := up(sleeping("a") + sleeping("b"))
	m.await("both", func(pods map[string]corev1.Pod) bool { return ready(pods["a"]) && ready(pods["b"]) })
	before := m.pods()
	if r := m.run(sleeping("c"), "apply", "-f", "-"); r.code != 1 || !strings.Contains(r.err, "--manifests -") {
		t.Errorf("%+v", r)
	}
	j.signal(syscall.SIGINT)
	j.ends(0)
	j = up("kind: [")
	for end := time.Now().Add(patience); !strings.Contains(m.want(0, "get", "problems").out, "standard input"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("what cannot be read is no problem")
		}
	}
	j.signal(syscall.SIGINT)
	j.ends(0)
	j = up(sleeping("b"))
	m.await("one", func(pods map[string]corev1.Pod) bool { return len(pods) == 1 && ready(pods["b"]) })
	if c := container(m.pods()["b"]); c.ContainerID != container(before["b"]).ContainerID {
		t.Errorf("it was started again: %+v", c)
	}
	j.signal(syscall.SIGINT)
	j.ends(0)
	j = up(empty)
	for end := time.Now().Add(patience); strings.Count(m.want(0, "ps").out, "\n") > 1; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("a pod is left: %s\n%s", m.want(0, "ps").out, j.err)
		}
	}
	j.signal(syscall.SIGINT)
	j.ends(0)
}
