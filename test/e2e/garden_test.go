package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// gardenKind is a kind of a garden cluster.
func gardenKind(t *testing.T, kind, scope string) {
	t.Helper()
	gardenerKind(t, "core.gardener.cloud", "v1beta1", kind, scope)
}

// gardenerKind is as much of Gardener's API as an API server needs to have objects of a
// kind: its name in the singular, and whether it is in namespaces.
func gardenerKind(t *testing.T, group, version, kind, scope string) {
	t.Helper()
	one := strings.ToLower(kind)
	kubectlInput(t, fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.%[4]s}
spec:
  group: %[4]s
  scope: %[3]s
  names: {kind: %[2]s, plural: %[1]ss, singular: %[1]s}
  versions:
  - name: %[5]s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, one, kind, scope, group, version), "apply", "-f", "-")
	name := one + "s." + group
	t.Cleanup(func() {
		if _, err := node.Kubectl(context.Background(), "delete", "crd", name, "--timeout", patience.String()); err != nil {
			t.Error(err)
		}
	})
	kubectl(t, "wait", "--for=condition=Established", "crd/"+name, "--timeout", patience.String())
}

func aShoot(name, workers string) string {
	return fmt.Sprintf("apiVersion: core.gardener.cloud/v1beta1\nkind: Shoot\nmetadata: {name: %s, namespace: default, finalizers: [tests.fairlead.run/kept]}\nspec: {provider: {type: aws%s}}\n", name, workers)
}

// API servers ask the webhook of a garden cluster about Shoots that have or had container
// runtimes and stay, and about no others: those must not need it. Here nobody answers.
func TestGardenConfiguration(t *testing.T) {
	const (
		plain = ", workers: [{name: a}, {name: b, cri: {name: containerd}}]"
		asks  = ", workers: [{name: a}, {name: b, cri: {name: containerd, containerRuntimes: [{type: gvisor}]}}]"
	)
	gardenKind(t, "Shoot", "Namespaced")
	for _, name := range []string{"going", "had"} {
		eventually(t, func() error {
			_, err := node.KubectlInput(t.Context(), aShoot(name, asks), "apply", "-f", "-")
			return err
		})
	}
	kubectl(t, "delete", "shoot", "going", "--wait=false")
	applyFiles(t, "../../deploy/garden/30-configurations.yaml")
	try := func(shoot string) error {
		out, err := node.KubectlInput(t.Context(), shoot, "apply", "-f", "-")
		if err != nil && !strings.Contains(err.Error(), `failed calling webhook "shoots.validate.fairlead.run"`) {
			t.Fatalf("%v: %s", err, out)
		}
		return err
	}
	eventually(t, func() error {
		if try(aShoot("asks", asks)) == nil {
			kubectl(t, "patch", "shoot", "asks", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
			return fmt.Errorf("a Shoot with runtimes was taken without the webhook")
		}
		return nil
	})
	for _, workers := range []string{"", ", workers: []", plain} {
		if err := try(aShoot("plain", workers)); err != nil {
			t.Errorf("a Shoot without runtimes (%q): %v", workers, err)
		}
	}
	if err := try(aShoot("plain", asks)); err == nil {
		t.Error("a Shoot that gets runtimes was taken")
	}
	if err := try(aShoot("had", plain)); err == nil {
		t.Error("a Shoot that loses its runtimes was taken")
	}
	// What is on its way out must be able to go.
	kubectl(t, "patch", "shoot", "going", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	kubectl(t, "delete", "validatingwebhookconfiguration", "fairlead-webhook")
	for _, name := range []string{"plain", "had"} {
		eventually(t, func() error {
			_, err := node.Kubectl(t.Context(), "patch", "shoot", name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
			return err
		})
	}
}

// The API server of a seed asks the operator about OperatingSystemConfigs of pools that
// machines follow, and about no others. Here nobody answers, and that counts.
func TestSeedConfiguration(t *testing.T) {
	gardenerKind(t, "extensions.gardener.cloud", "v1alpha1", "OperatingSystemConfig", "Namespaced")
	asks := ""
	for document := range strings.SplitSeq(rendered(t, valuesFiles(t, "{webhook: {enabled: false}, operator: {enabled: true, gardener: true}}")...), "\n---\n") {
		if strings.Contains(document, "kind: MutatingWebhookConfiguration") {
			asks = strings.Replace(document, "failurePolicy: Ignore", "failurePolicy: Fail", 1)
		}
	}
	if !strings.Contains(asks, "failurePolicy: Fail") {
		t.Fatalf("the chart has no configuration that ignores failures: %q", asks)
	}
	kubectlInput(t, asks, "apply", "-f", "-")
	t.Cleanup(func() {
		if _, err := node.Kubectl(context.Background(), "delete", "mutatingwebhookconfiguration", "fairlead-operator"); err != nil {
			t.Error(err)
		}
	})
	try := func(name, labels, purpose string, as ...string) error {
		object := fmt.Sprintf("apiVersion: extensions.gardener.cloud/v1alpha1\nkind: OperatingSystemConfig\nmetadata: {name: %s, namespace: default, labels: {%s}}\nspec: {type: ubuntu, purpose: %s}\n", name, labels, purpose)
		out, err := node.KubectlInput(t.Context(), object, append([]string{"apply", "--server-side", "--force-conflicts", "-f", "-"}, as...)...)
		if err != nil && !strings.Contains(err.Error(), `failed calling webhook "operatingsystemconfigs.mutate.fairlead.run"`) {
			t.Fatalf("%v: %s", err, out)
		}
		return err
	}
	const pool = "worker.gardener.cloud/pool: a"
	eventually(t, func() error {
		if try("now", pool, "reconcile") == nil {
			kubectl(t, "delete", "operatingsystemconfig", "now")
			return fmt.Errorf("one that machines follow was taken without the operator")
		}
		return nil
	})
	if err := try("birth", pool, "provision"); err != nil {
		t.Errorf("for the first start of machines: %v", err)
	}
	if err := try("poolless", "", "reconcile"); err != nil {
		t.Errorf("of no pool: %v", err)
	}
	const operator = "system:serviceaccount:fairlead-nodes:fairlead-operator"
	if err := try("now", pool, "reconcile", "--as="+operator, "--as-group=system:masters"); err != nil {
		t.Errorf("by the operator itself: %v", err)
	}
	kubectl(t, "delete", "operatingsystemconfig", "now", "birth", "poolless")
}
