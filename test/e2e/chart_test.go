package e2e_test

import (
	"context"
	"fmt"
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

// needHelm skips without Helm, and has the cluster ready for the chart.
func needHelm(t *testing.T) *hook {
	t.Helper()
	needWebhook(t)
	if _, err := exec.LookPath(filepath.Join(*programs, "helm")); err != nil {
		t.Skip("no helm among the programs: make e2e-webhook builds it")
	}
	h := &hook{api: newAPI(t)}
	pushFairlead(t)
	if err := node.ServeAPIInPods(t.Context()); err != nil {
		t.Fatal(err)
	}
	return h
}

// bare fails if something of a release is left that concerns the whole cluster.
func bare(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations", "clusterroles", "clusterrolebindings"} {
		if out := kubectl(t, "get", kind, "-o", "name"); strings.Contains(out, "fairlead") {
			t.Errorf("left of %s: %s", kind, out)
		}
	}
}

// A cluster gets the webhook by Helm alone, keeps it while it is changed, and is rid
// of it afterwards, but for what belongs to users.
func TestChart(t *testing.T) {
	h := needHelm(t)
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
		bare(t)
		if got := h.ask(t, "POST", podsOf("load")+"?dryRun=All", gated("a", nil)); !got.ok() {
			t.Errorf("without the webhook no pod is created: %s", got)
		}
	})
}

// theProfile says which runtimes the images of a landscape take: a new ubuntu takes both,
// an old one gVisor.
const theProfile = `apiVersion: core.gardener.cloud/v1beta1
kind: CloudProfile
metadata: {name: tested}
spec:
  machineImages:
  - name: ubuntu
    versions:
    - {version: 24.4.1, cri: [{name: containerd, containerRuntimes: [{type: gvisor}, {type: kata-containers}]}]}
    - {version: 22.4.1, cri: [{name: containerd, containerRuntimes: [{type: gvisor}]}]}
`

// ofProfile is a Shoot on that, with one worker group.
func ofProfile(name, machine, image, runtimes string) string {
	return fmt.Sprintf(`apiVersion: core.gardener.cloud/v1beta1
kind: Shoot
metadata: {name: %s, namespace: default}
spec:
  cloudProfile: {kind: CloudProfile, name: tested}
  kubernetes: {version: 1.33.2}
  provider:
    type: aws
    workers:
    - {name: a, machine: {type: %s, image: {name: ubuntu, version: %s}}, cri: {name: containerd, containerRuntimes: [%s]}}
`, name, machine, image, runtimes)
}

// takes says whether the API server takes a Shoot, or refuses it in these words.
func takes(t *testing.T, shoot, refusal string) error {
	t.Helper()
	out, err := node.KubectlInput(t.Context(), shoot, "apply", "-f", "-")
	switch {
	case refusal == "" && err != nil:
		return fmt.Errorf("refused: %w: %s", err, out)
	case refusal != "" && err == nil:
		return fmt.Errorf("taken: %s", shoot)
	case refusal != "" && !strings.Contains(err.Error(), refusal):
		return fmt.Errorf("it does not say %q: %w", refusal, err)
	}
	return nil
}

// A garden cluster gets the webhook by Helm alone: it looks at Shoots, and the cluster
// has nothing else of Fairlead's.
func TestChartInGarden(t *testing.T) {
	h := needHelm(t)
	gardenKind(t, "CloudProfile", "Cluster")
	gardenKind(t, "Shoot", "Namespaced")
	t.Cleanup(func() {
		if _, err := node.Kubectl(context.Background(), "delete", "namespace", webhookNamespace, "--ignore-not-found", "--timeout", patience.String()); err != nil {
			t.Error(err)
		}
	})
	_, before := requests(t)
	release := func(args ...string) {
		t.Helper()
		helm(t, append(args, chartFolder, "--skip-crds", "--set", "webhook.garden=true", "--wait", "--timeout", patience.String())...)
	}
	release("install", "fairlead-garden", "--create-namespace")
	apply(t, theProfile)
	const large, gvisor, kata = "m5.large", "{type: gvisor}", "{type: kata-containers}"
	metal := "spec.provider.workers[0].machine.type: Invalid value: \"m5.large\": machines of type m5.large cannot run virtual machines"
	// API servers learn of the configuration, and of whom to believe, a moment later.
	eventually(t, func() error {
		err := takes(t, ofProfile("small", large, "24.4.1", kata), metal)
		if err != nil {
			kubectl(t, "delete", "shoot", "small", "--ignore-not-found")
		}
		return err
	})
	rules := func(t *testing.T) {
		for name, shoot := range map[string]struct{ text, refusal string }{
			"machine":   {ofProfile("small", large, "24.4.1", kata), metal},
			"image":     {ofProfile("old", "m5.metal", "22.4.1", gvisor+", "+kata), "CloudProfile tested does not have it below containerd for machine image ubuntu 22.4.1; set machine.image.version to one that has all of it: 24.4.1"},
			"both good": {ofProfile("good", "m5.metal", "24.4.1", gvisor+", "+kata), ""},
			"gvisor":    {ofProfile("gvisor", large, "22.4.1", gvisor), ""},
			"plain":     {ofProfile("plain", large, "22.4.1", ""), ""},
		} {
			if err := takes(t, shoot.text, shoot.refusal); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	t.Run("rules", rules)
	t.Run("alone", func(t *testing.T) {
		for _, kind := range []string{"crds", "mutatingwebhookconfigurations"} {
			if out := kubectl(t, "get", kind, "-o", "name"); strings.Contains(out, "fairlead") || strings.Contains(out, "extensions.gardener.cloud") {
				t.Errorf("of %s there are %s", kind, out)
			}
		}
		if got := h.ask(t, "POST", podsOf("default")+"?dryRun=All", gated("a", nil)); !got.ok() {
			t.Errorf("a pod is refused: %s", got)
		}
	})
	t.Run("upgrade", func(t *testing.T) {
		release("upgrade", "fairlead-garden", "--set", "webhook.podAnnotations.changed=yes")
		rules(t)
		if asked, refused := requests(t); asked == 0 || len(refused) > len(before) {
			t.Errorf("of %d requests of the webhook, these are refused: %+v", asked, refused[len(before):])
		}
		h.content(t)
	})
	t.Run("uninstall", func(t *testing.T) {
		helm(t, "uninstall", "fairlead-garden", "--wait", "--timeout", patience.String())
		bare(t)
		eventually(t, func() error { return takes(t, ofProfile("small", large, "24.4.1", kata), "") })
	})
}
