package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"fairlead.run/test/e2e/machine"
)

// The part of the chart that a virtual garden has is applied, and what the other part
// would run is a process beside that cluster: with the arguments that its pods have, a
// kubeconfig and no account but the one of the first part.
func TestChartInVirtualGarden(t *testing.T) {
	needWebhook(t)
	h := &hook{api: newAPI(t)}
	gardenKind(t, "CloudProfile", "Cluster")
	gardenKind(t, "Shoot", "Namespaced")
	kubectl(t, "create", "namespace", webhookNamespace)
	t.Cleanup(func() {
		if _, err := node.Kubectl(context.Background(), "delete", "namespace", webhookNamespace, "--timeout", patience.String()); err != nil {
			t.Error(err)
		}
	})
	const garden = "webhook: {garden: true, url: 'https://" + webhookReviews + "', part: %s}\n"
	virtual := rendered(t, valuesFiles(t, fmt.Sprintf(garden, "virtual"))...)
	apply(t, virtual)
	t.Cleanup(func() {
		if _, err := node.KubectlInput(context.Background(), virtual, "delete", "--ignore-not-found", "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	args := argsOf(t, rendered(t, valuesFiles(t, fmt.Sprintf(garden, "runtime"), "webhook: {kubeconfigSecret: garden}\n")...))
	at := slices.Index(args, "--kubeconfig=/garden/kubeconfig")
	if at < 0 {
		t.Fatalf("the arguments are %q", args)
	}
	args[at] = "--kubeconfig=" + h.kubeconfig(t)
	_, before := requests(t)
	process, err := node.Program(t.Context(), machine.Program{
		Name: "webhook-virtual", Argv: slices.Concat([]string{filepath.Join(*fairlead, "fairlead")}, args, []string{"--listen", webhookReviews, "--health", webhookHealth}),
	}, h.ready)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.Kill(); err != nil {
			t.Error(err)
		}
	})
	apply(t, theProfile)
	eventually(t, func() error {
		err := takes(t, ofProfile("small", "m5.large", "24.4.1", "{type: kata-containers}"), "machines of type m5.large cannot run virtual machines")
		if err != nil {
			kubectl(t, "delete", "shoot", "small", "--ignore-not-found")
		}
		return err
	})
	if err := takes(t, ofProfile("good", "m5.metal", "24.4.1", "{type: gvisor}, {type: kata-containers}"), ""); err != nil {
		t.Error(err)
	}
	if asked, refused := requests(t); asked == 0 || len(refused) > len(before) {
		t.Errorf("of %d requests of the webhook, these are refused: %+v", asked, refused[len(before):])
	}
}

// valuesFiles are files of values, of which a later one comes before an earlier one.
func valuesFiles(t *testing.T, texts ...string) []string {
	t.Helper()
	dir := t.TempDir()
	var files []string
	for i, text := range texts {
		name := filepath.Join(dir, fmt.Sprintf("%d.yaml", i))
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, name)
	}
	return files
}

// argsOf are the arguments of the only Deployment in a manifest.
func argsOf(t *testing.T, manifest string) []string {
	t.Helper()
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		var d appsv1.Deployment
		if err := yaml.Unmarshal([]byte(document), &d); err == nil && d.Kind == "Deployment" {
			return d.Spec.Template.Spec.Containers[0].Args
		}
	}
	t.Fatalf("no Deployment in\n%s", manifest)
	return nil
}
