package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A real API server takes everything in deploy, and all that the chart can make, to
// the last field. It says what it would store and stores nothing, but for CRDs and the
// namespace, without which it could not say.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob("../../deploy/*/[0-9][0-9]-*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v %v", files, err)
	}
	applyFiles(t, "../../deploy/crds", "../../deploy/crds/gardener", "testdata/monitoring-crds.yaml")
	kubectl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout", patience.String())
	for _, file := range files {
		if filepath.Base(file) == "00-namespace.yaml" {
			applyFiles(t, file)
		}
	}
	monitoring := []string{"podmonitor", "podmonitor-operator", "servicemonitor", "servicemonitor-operator", "prometheusrule"}
	for _, name := range monitoring {
		files = append(files, "../../deploy/monitoring/"+name+".yaml")
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) { taken(t, mustRead(t, file)) })
	}
	// Where everything.yaml has the operator.
	kubectl(t, "create", "namespace", "nodes-elsewhere")
	t.Cleanup(func() {
		if _, err := node.Kubectl(context.Background(), "delete", "namespace", "nodes-elsewhere"); err != nil {
			t.Error(err)
		}
	})
	for name, values := range map[string][]string{"as it comes": nil, "everything": {"../../build/chart/testdata/everything.yaml"}, "garden": {"../../deploy/charts/manifests-garden.yaml"}} {
		t.Run("chart "+name, func(t *testing.T) { taken(t, rendered(t, values...)) })
	}
	t.Run("a field that is none", func(t *testing.T) {
		wrong := strings.Replace(rendered(t), "\n  replicas: ", "\n  replicaz: ", 1)
		if out, err := node.KubectlInput(t.Context(), wrong, dryRun...); err == nil || !strings.Contains(err.Error(), "replicaz") {
			t.Errorf("%v: %s", err, out)
		}
	})
}

func mustRead(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var dryRun = []string{"apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-"}

func taken(t *testing.T, manifest string) {
	t.Helper()
	out := kubectlInput(t, manifest, dryRun...)
	documents := strings.Count("\n"+manifest, "\nkind: ")
	if got := strings.Count(out, "(server dry run)"); got != documents || got == 0 {
		t.Errorf("of %d objects the API server took %d:\n%s", documents, got, out)
	}
}

// rendered is what helm template makes of the chart.
func rendered(t *testing.T, values ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(*programs, "chart"), append([]string{"-top", "../..", "render"}, values...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	return string(out)
}
