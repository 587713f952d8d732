package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"fairlead.run/test/e2e/cluster"
)

// Whom kubeadm lets ask for certificates: machines that join for that of a node, and nodes
// for the next one. The controller manager approves both, and none for the API of a node.
const mayAsk = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-%[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[2]q}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: %[3]q}]
---
`

// TestBootstrap has a machine join that may only ask for certificates. It gets its client
// certificate by itself, and that of its API when somebody approves it; then everything
// works that goes through that API. A client certificate that is due is renewed, whoever
// has asked for it.
func TestBootstrap(t *testing.T) {
	apply(t, fmt.Sprintf(mayAsk, "ask", "system:node-bootstrapper", "system:bootstrappers")+
		fmt.Sprintf(mayAsk, "join", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", "system:bootstrappers")+
		fmt.Sprintf(mayAsk, "renew", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"))
	bootstrap, err := node.User("bootstrap", "system:bootstrap:e2e", "system:bootstrappers")
	if err != nil {
		t.Fatal(err)
	}
	machine, err := node.Joiner()
	t.Cleanup(func() {
		err := machine.Restore(context.Background())
		_, gone := node.Kubectl(context.Background(), "delete", "--ignore-not-found", "pod/joined", "clusterrolebinding/e2e-ask", "clusterrolebinding/e2e-join", "clusterrolebinding/e2e-renew")
		if err := errors.Join(err, gone); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := machine.Join(bootstrap); err != nil {
		t.Fatal(err)
	}
	approveServing(t)
	t.Run("node API", throughNodeAPI)

	if err := errors.Join(machine.Stop(), machine.Age()); err != nil {
		t.Fatal(err)
	}
	aged, err := machine.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	if err := machine.Join(""); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		now, err := machine.Certificate()
		if err == nil && now == aged {
			err = errors.New("a certificate that is due is not renewed")
		}
		return err
	})
}

// approveServing approves what the node asks for, which nobody else does.
func approveServing(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		out, err := node.Kubectl(t.Context(), "get", "csr", "-o",
			`jsonpath={range .items[?(@.spec.signerName=="kubernetes.io/kubelet-serving")]}{.metadata.name} {.spec.username} {.status.conditions}{"\n"}{end}`)
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			user, state, _ := strings.Cut(rest, " ")
			if user == "system:node:"+cluster.NodeName && state == "" {
				_, err := node.Kubectl(t.Context(), "certificate", "approve", name)
				return err
			}
		}
		return fmt.Errorf("the node asks for no certificate of its API: %s", out)
	})
}

// throughNodeAPI does what needs the certificate of the node API, which the API server
// verifies.
func throughNodeAPI(t *testing.T) {
	image := imageOf(t, "agnhost")
	apply(t, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: joined}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: %s, command: [sh, -c, "echo here; exec sleep 98765"]}
`, image))
	kubectl(t, "wait", "--for=condition=Ready", "pod/joined", "--timeout", patience.String())
	said := func(container, want string) func() error {
		return func() error {
			out, err := node.Kubectl(t.Context(), "logs", "joined", "-c", container)
			if err == nil && !strings.Contains(out, want) {
				err = fmt.Errorf("%s says %q, want %q", container, out, want)
			}
			return err
		}
	}
	eventually(t, said("main", "here"))
	kubectl(t, "debug", "joined", "--image", image, "--target", "main", "--container", "look", "--", "sh", "-c", "cat /proc/1/cmdline; echo; exec sleep 100000")
	eventually(t, said("look", "98765")) // the target's processes are its own
	want(t, kubectl(t, "exec", "joined", "-c", "look", "--", "sh", "-c", "echo inside"), "inside\n")
	eventually(t, func() error { // what kubectl top is told, once two measurements were taken
		out, err := node.Kubectl(t.Context(), "get", "--raw", "/api/v1/nodes/"+cluster.NodeName+"/proxy/metrics/resource")
		for _, metric := range []string{"node_cpu_usage_seconds_total ", "node_memory_working_set_bytes ", `container_memory_working_set_bytes{container="main",namespace="default",pod="joined"} `} {
			if err == nil && !strings.Contains(out, metric) {
				err = fmt.Errorf("the node does not measure %s: %s", metric, out)
			}
		}
		return err
	})
}
