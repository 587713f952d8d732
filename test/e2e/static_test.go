package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/test/e2e/cluster"
)

// A static pod starts on a node that has never reached its API server since it was
// started, and is shown there when that answers. What the node ran for the API server
// goes on meanwhile.
func TestStaticPodAlone(t *testing.T) {
	image := imageOf(t, "agnhost")
	apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: bound}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: %s, args: [pause]}
`, image))
	serves := true
	t.Cleanup(func() {
		if !serves { // the test has failed, and others need it
			_ = errors.Join(node.APIServer.Start(), node.APIServer.Await(context.Background(), patience, func(ctx context.Context) error {
				_, err := node.Kubectl(ctx, "get", "--raw", "/readyz")
				return err
			}))
		}
		if _, err := node.Kubectl(context.Background(), "delete", "pod", "bound", "--timeout", patience.String()); err != nil {
			t.Error(err)
		}
	})
	kubectl(t, "wait", "--for=condition=Ready", "pod/bound", "--timeout", patience.String())
	before := containers(t, []string{"bound"})
	file := filepath.Join(cluster.StaticPods, "alone.yaml")
	manifest := fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: alone}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: %s, command: [sh, -c, "echo alone; exec sleep 100000"]}
`, image)

	serves = false
	if err := errors.Join(node.APIServer.Kill(), node.Kubelet.Kill(), node.Machine().Write(file, manifest), node.Kubelet.Start()); err != nil {
		t.Fatal(err)
	}
	mirror := "alone-" + cluster.NodeName
	eventually(t, func() error {
		said, err := node.Machine().Read("/var/log/pods/default_" + mirror + "_*/main/0.log")
		if err == nil && !strings.Contains(said, "alone") {
			err = fmt.Errorf("it says %q", said)
		}
		return err
	})
	if err := node.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	serves = true
	ready := func() error {
		_, err := node.Kubectl(t.Context(), "wait", "--for=condition=Ready", "pod/"+mirror, "--timeout=5s")
		return err
	}
	eventually(t, ready)
	if out := kubectl(t, "logs", mirror); out != "alone\n" {
		t.Errorf("its log is %q: it was started more than once", out)
	}
	if now := containers(t, []string{"bound"}); now != before {
		t.Errorf("before %s, and after it %s", before, now)
	}
	// A picture that somebody takes away comes back, and nothing happens to the pod.
	was := containers(t, []string{mirror})
	kubectl(t, "delete", "pod", mirror, "--timeout", patience.String())
	eventually(t, ready)
	eventually(t, func() error {
		if now := containers(t, []string{mirror}); now != was {
			return fmt.Errorf("its containers were %s and are %s", was, now)
		}
		return nil
	})
	// The manifest goes while nobody looks.
	if err := errors.Join(node.Kubelet.Kill(), node.Machine().Remove(file), node.Kubelet.Start()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if out, err := node.Kubectl(t.Context(), "get", "pod", mirror); err == nil {
			return fmt.Errorf("the pod of a file that is gone is still there: %s", out)
		}
		return nil
	})
}
