package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestApplyNotes tells of what is left out of a manifest, where it is written.
func TestApplyNotes(t *testing.T) {
	a, state, out, errs := upWith(t, map[string]any{"/objects": []any{map[string]any{"kind": "Service", "namespace": "default", "name": "web", "change": "created"}}})
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code := a.run(context.Background(), []string{"--config", state, "--state", state, "apply", "-f", file})
	if want := file + ":1: document 1: Service default/web: is left out: names of Services are not resolved here"; code != 0 || out.String() != "service/web created\n" || !strings.Contains(errs.String(), want) {
		t.Errorf("%d\n%s%s", code, out, errs)
	}
}

// TestApplyUnspaced names an object that is in no namespace as it is.
func TestApplyUnspaced(t *testing.T) {
	a, state, out, errs := upWith(t, map[string]any{"/objects": []any{map[string]any{"kind": "PriorityClass", "name": "gold", "change": "created"}}})
	file := filepath.Join(t.TempDir(), "gold.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: gold}\nvalue: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := a.run(context.Background(), []string{"--config", state, "--state", state, "apply", "-f", file}); code != 0 || out.String() != "priorityclass/gold created\n" {
		t.Errorf("%d\n%s%s", code, out, errs)
	}
}
