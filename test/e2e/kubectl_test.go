package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.run/test/e2e/cluster"
)

// patience is how long anything may take. It decides nothing but when to give up.
var patience = 3 * time.Minute

// Everything that a person does with kubectl to a pod.
func TestKubectl(t *testing.T) {
	image := imageOf(t, "agnhost")
	apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: talk}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: %[1]s
    args: [netexec, --http-port=8080]
    readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1, timeoutSeconds: 20}
    livenessProbe: {exec: {command: [cat, /etc/hosts]}, periodSeconds: 1, timeoutSeconds: 20}
  - name: cat
    image: %[1]s
    command: [sh, -c, "echo hello from $(hostname); exec cat"]
    stdin: true
`, image))
	kubectl(t, "wait", "--for=condition=Ready", "pod/talk", "--timeout", patience.String())

	t.Run("logs", func(t *testing.T) {
		want(t, kubectl(t, "logs", "talk", "-c", "cat"), "hello from talk\n")
	})
	t.Run("exec", func(t *testing.T) {
		want(t, kubectlInput(t, "in", "exec", "-i", "talk", "-c", "main", "--", "sh", "-c", "cat; echo ' and out'"), "in and out\n")
		_, err := node.Kubectl(t.Context(), "exec", "talk", "-c", "main", "--", "sh", "-c", "exit 7")
		if err == nil || !strings.Contains(err.Error(), "exit status 7") {
			t.Errorf("err = %v, want the command's exit status 7", err)
		}
	})
	t.Run("attach", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := node.KubectlCommand(ctx, "attach", "-i", "talk", "-c", "cat")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(in, "echoed\n"); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if line != "echoed\n" {
			t.Errorf("attach gave %q (%v)", line, err)
		}
		cancel() // kubectl would stay until the container ends
		_ = cmd.Wait()
	})
	t.Run("port-forward", forward)
	t.Run("copy", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		kubectl(t, "cp", file, "talk:/tmp/there", "-c", "main")
		kubectl(t, "cp", "talk:/tmp/there", file+".back", "-c", "main")
		if back, err := os.ReadFile(file + ".back"); err != nil || !bytes.Equal(back, data) {
			t.Errorf("%d of %d bytes came back, or others (%v)", len(back), len(data), err)
		}
	})
	t.Run("restarts", func(t *testing.T) {
		if n := restarts(t, "talk"); n != "0 0" {
			t.Errorf("the containers restarted: %s", n)
		}
	})
	t.Run("delete", func(t *testing.T) {
		kubectl(t, "delete", "pod", "talk", "--timeout", patience.String())
		if out, err := node.Kubectl(t.Context(), "get", "pod", "talk"); err == nil {
			t.Errorf("the pod is still there: %s", out)
		}
	})
}

// forward asks the pod over a forwarded port, by several connections.
func forward(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := node.KubectlCommand(ctx, "port-forward", "pod/talk", ":8080", "--address", "127.0.0.1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n') // Forwarding from 127.0.0.1:PORT -> 8080
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ")
	for range 3 {
		resp, err := http.Get("http://" + address + "/hostname")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(body) != "talk" {
			t.Errorf("the pod says %q (%v)", body, err)
		}
		http.DefaultClient.CloseIdleConnections()
	}
}

// A static pod, which the kubelet makes without being told by the API server.
func TestStaticPod(t *testing.T) {
	file := filepath.Join(cluster.StaticPods, "still.yaml")
	manifest := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: still, namespace: default}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: %s, args: [pause]}
`, imageOf(t, "agnhost"))
	if err := node.Machine().Write(file, manifest); err != nil {
		t.Fatal(err)
	}
	mirror := "still-" + cluster.NodeName
	eventually(t, func() error {
		_, err := node.Kubectl(t.Context(), "wait", "--for=condition=Ready", "pod/"+mirror, "--timeout=5s")
		return err
	})
	if err := node.Machine().Remove(file); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if out, err := node.Kubectl(t.Context(), "get", "pod", mirror); err == nil {
			return fmt.Errorf("the pod of a file that is gone is still there: %s", out)
		}
		return nil
	})
}

func imageOf(t *testing.T, base string) string {
	t.Helper()
	name, err := node.Image(t.Context(), base)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func apply(t *testing.T, manifest string) {
	t.Helper()
	kubectlInput(t, manifest, "apply", "-f", "-")
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return kubectlInput(t, "", args...)
}

func kubectlInput(t *testing.T, input string, args ...string) string {
	t.Helper()
	out, err := node.KubectlInput(t.Context(), input, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// restarts are the counts of a pod's containers.
func restarts(t *testing.T, pod string) string {
	t.Helper()
	return kubectl(t, "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[*].restartCount}")
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func eventually(t *testing.T, try func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
