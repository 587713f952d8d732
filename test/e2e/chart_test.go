package e2e_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const chartFolder = "../../deploy/charts/fairlead"

// helm is a command of Helm itself, of the release that build/chart uses.
func helm(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(*programs, "helm"), append(args, "--namespace", webhookNamespace)...)
	cmd.Env = append(node.Environment(), "KUBECONFIG="+node.Kubeconfig)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("helm %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// A cluster gets the webhook by Helm alone, keeps it while it is changed, and is rid
// of it afterwards, but for what belongs to users.
func TestChart(t *testing.T) {
	needWebhook(t)
	if _, err := exec.LookPath(filepath.Join(*programs, "helm")); err != nil {
		t.Skip("no helm among the programs: make e2e-webhook builds it")
	}
	h := &hook{api: newAPI(t)}
	pushFairlead(t)
	if err := node.ServeAPIInPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, args := range [][]string{{"delete", "-f", "../../deploy/crds"}, {"delete", "-f", "../../deploy/crds/gardener"}, {"delete", "namespace", webhookNamespace}} {
			if _, err := node.Kubectl(context.Background(), append(args, "--ignore-not-found", "--timeout", patience.String())...); err != nil {
				t.Error(err)
			}
		}
	})
	// Gardener's own definition, which is another one than ours.
	gardeners := strings.Replace(mustRead(t, "../../deploy/crds/gardener/extensions.gardener.cloud_containerruntimes.yaml"), "\n  annotations:\n", "\n  annotations:\n    of: gardener\n", 1)
	apply(t, gardeners)

	helm(t, "install", "fairlead", chartFolder, "--create-namespace", "--wait", "--timeout", patience.String())
	h.told(t)
	h.classFor(t, object{"metadata": object{"name": "tested"}, "handler": "test-handler", "overhead": object{"podFixed": object{"memory": "16Mi"}}})
	h.namespaceFor(t, "load", nil)
	eventually(t, func() error { return h.admits(t) })
	h.policyFor(t, "only-tested", object{"namespaceSelector": only("load"), "allowedClasses": []string{"tested"}})

	t.Run("upgrade", func(t *testing.T) {
		before := h.bundles(t)
		l := h.loading(t, "load", object{"runtimeClassName": "tested"})
		l.passes(t, fewPods)
		helm(t, "upgrade", "fairlead", chartFolder, "--set", "webhook.podAnnotations.changed=yes", "--wait", "--timeout", patience.String())
		l.passes(t, fewPods)
		l.stop()
		if passed, failed := l.counts(); len(failed) > 0 {
			t.Errorf("while Helm replaced the pods, %d pods were created, and %d were not: %q", passed, len(failed), failed[0])
		}
		for name, bundle := range h.bundles(t) {
			if bundle == "" || bundle != before[name] {
				t.Errorf("the authority in %s was %q and is %q", name, before[name], bundle)
			}
		}
	})
	t.Run("uninstall", func(t *testing.T) {
		helm(t, "uninstall", "fairlead", "--wait", "--timeout", patience.String())
		want(t, kubectl(t, "get", "runtimeclasspolicies", "-o", "name"), "runtimeclasspolicy.fairlead.run/only-tested\n")
		want(t, kubectl(t, "get", "crd", "containerruntimes.extensions.gardener.cloud", "-o", "jsonpath={.metadata.annotations.of}"), "gardener")
		for _, kind := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations", "clusterroles", "clusterrolebindings"} {
			if out := kubectl(t, "get", kind, "-o", "name"); strings.Contains(out, "fairlead") {
				t.Errorf("left of %s: %s", kind, out)
			}
		}
		if got := h.ask(t, "POST", podsOf("load")+"?dryRun=All", gated("a", nil)); !got.ok() {
			t.Errorf("without the webhook no pod is created: %s", got)
		}
	})
}
