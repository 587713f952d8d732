package e2e_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Pods of every kind of restart policy, and one with a probe, run on through
// restarts of the kubelet, of the daemon, and of both at once.
func TestRestarts(t *testing.T) {
	const pods = 3
	image := imageOf(t, "agnhost")
	var names []string
	for i := range pods {
		name := fmt.Sprintf("stay-%d", i)
		names = append(names, name)
		apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: %[3]s
  initContainers:
  - {name: first, image: %[2]s, command: ["true"]}
  - {name: side, image: %[2]s, args: [pause], restartPolicy: Always}
  containers:
  - name: main
    image: %[2]s
    args: [netexec, --http-port=8080]
    livenessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 10}
  - {name: talks, image: %[2]s, command: [sh, -c, "i=0; while sleep 0.2; do i=$((i+1)); echo $i; done"]}
`, name, image, []string{"Always", "OnFailure", "Never"}[i]))
	}
	t.Cleanup(func() {
		// The test's own context has ended by now.
		if _, err := node.Kubectl(context.Background(), append([]string{"delete", "pod", "--timeout", patience.String()}, names...)...); err != nil {
			t.Error(err)
		}
	})
	kubectl(t, append([]string{"wait", "--for=condition=Ready", "--timeout", patience.String(), "pod"}, names...)...)
	before := containers(t, names)
	lines := map[string]int{}
	for _, name := range names {
		lines[name] = awaitLine(t, name, 20)
	}

	for _, story := range []struct {
		name string
		do   func() error
	}{
		{"kubelet", func() error { return again(node.Kubelet.Stop, node.Kubelet.Start) }},
		{"kubelet killed", func() error { return again(node.Kubelet.Kill, node.Kubelet.Start) }},
		{"daemon", func() error { return again(node.Daemon.Stop, node.Daemon.Start) }},
		{"daemon killed", func() error { return again(node.Daemon.Kill, node.Daemon.Start) }},
		{"both killed", func() error {
			// A kubelet that finds no runtime ends, and nobody starts it again here.
			serves := func() error {
				eventually(t, func() error { return node.RuntimeServes(t.Context()) })
				return nil
			}
			return again(node.Daemon.Kill, node.Kubelet.Kill, node.Daemon.Start, serves, node.Kubelet.Start)
		}},
	} {
		t.Run(story.name, func(t *testing.T) {
			if err := story.do(); err != nil {
				t.Fatal(err)
			}
			// The kubelet has seen every pod anew when a pod made after the restart runs.
			kubectlProbe(t, image)
			if now := containers(t, names); now != before {
				t.Errorf("containers before the restart:\n%s\nand after it:\n%s", before, now)
			}
			for _, name := range names {
				now := awaitLine(t, name, 1)
				if now < lines[name] {
					t.Errorf("pod %s counted up to %d, and after the restart it is at %d", name, lines[name], now)
				}
				lines[name] = awaitLine(t, name, now+1)
			}
		})
	}
}

func again(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// containers are the ids, states' starts and restart counts of pods' containers.
func containers(t *testing.T, names []string) string {
	t.Helper()
	const each = `{.name} {.containerID} {.restartCount} {.state.running.startedAt}{"\n"}`
	var out strings.Builder
	for _, name := range names {
		out.WriteString(kubectl(t, "get", "pod", name, "-o", "jsonpath={range .status.initContainerStatuses[*]}"+each+"{end}"+
			"{range .status.containerStatuses[*]}"+each+"{end}"))
	}
	return out.String()
}

// kubectlProbe runs a pod to its end.
func kubectlProbe(t *testing.T, image string) {
	t.Helper()
	eventually(t, func() error { return node.NodeReady(t.Context()) })
	apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: probe}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  containers:
  - {name: main, image: %s, command: [echo, done]}
`, image))
	kubectl(t, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/probe", "--timeout", patience.String())
	eventually(t, func() error {
		if out, err := node.Kubectl(t.Context(), "logs", "probe"); err != nil || out != "done\n" {
			return fmt.Errorf("its log is %q: %w", out, err)
		}
		return nil
	})
	kubectl(t, "delete", "pod", "probe", "--timeout", patience.String())
}

// awaitLine waits until a pod has counted up to a number, and returns how far it is.
func awaitLine(t *testing.T, name string, number int) (at int) {
	t.Helper()
	eventually(t, func() error {
		out, err := node.Kubectl(t.Context(), "logs", name, "-c", "talks", "--tail", "1")
		if err != nil {
			return err
		}
		if at, err = strconv.Atoi(strings.TrimSpace(out)); err == nil && at < number {
			err = fmt.Errorf("pod %s has counted up to %d only", name, at)
		}
		return err
	})
	return at
}
