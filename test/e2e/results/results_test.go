package results

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// As ginkgo v2 writes it, with everything left out that is not read.
const written = `[{"SpecReports": [
 {"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed", "RunTime": 9},
 {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "should run", "State": "passed", "RunTime": 1500000000},
 {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "was not chosen", "State": "skipped"},
 {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "lacks a GPU", "State": "skipped", "Failure": {"Message": "no GPU"}},
 {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "was cut off", "State": "timedout", "Failure": {"Message": "A suite timeout occurred"}},
 {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "was interrupted", "State": "interrupted", "Failure": {"Message": "Interrupted by User"}},
 {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "is too slow", "State": "timedout", "Failure": {"Message": "A spec timeout occurred"}},
 {"ContainerHierarchyTexts": ["[sig-node] Other"], "LeafNodeType": "It", "LeafNodeText": "is wrong", "State": "panicked", "Failure": {"Message": "nil map"}},
 {"LeafNodeType": "SynchronizedAfterSuite", "State": "failed", "Failure": {"Message": "left a node"}}
]}]`

func TestReadAndLoad(t *testing.T) {
	dir := t.TempDir()
	raw, kept := filepath.Join(dir, "ginkgo.json"), filepath.Join(dir, "specs.json")
	if err := os.WriteFile(raw, []byte(written), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := Read(raw)
	if err != nil {
		t.Fatal(err)
	}
	want := List{
		{Name: "SynchronizedAfterSuite", State: Failed, Why: "left a node", Setup: true},
		{Name: "[sig-node] Other is wrong", State: Failed, Why: "nil map"},
		{Name: "[sig-node] Pods is too slow", State: Failed, Why: "A spec timeout occurred"},
		{Name: "[sig-node] Pods lacks a GPU", State: Skipped, Why: "no GPU"},
		{Name: "[sig-node] Pods should run", State: Passed, Seconds: 1.5},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Read (-want +got):\n%s", diff)
	}
	if err := got.Write(kept); err != nil {
		t.Fatal(err)
	}
	again, err := Load(kept)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("Load of what Write wrote (-wrote +loaded):\n%s", diff)
	}
}

func TestAdd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "specs.json")
	for _, run := range []List{
		{{Name: "AfterSuite", State: Failed, Setup: true}, {Name: "a", State: Passed}, {Name: "c", State: Failed}},
		{{Name: "b", State: Skipped}, {Name: "c", State: Passed}},
	} {
		if err := run.Add(path); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	want := List{{Name: "a", State: Passed}, {Name: "b", State: Skipped}, {Name: "c", State: Passed}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the results of two runs (-want +got):\n%s", diff)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := want.Add(path); err == nil {
		t.Error("a file that cannot be read was overwritten")
	}
}

// The release is in two places, because a program cannot import a go.mod.
func TestReleaseIsThatOfThePrograms(t *testing.T) {
	data, err := os.ReadFile("../programs/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^\tk8s.io/kubernetes ` + regexp.QuoteMeta(Kubernetes) + `\b`).Match(data) {
		t.Errorf("test/e2e/programs/go.mod does not require k8s.io/kubernetes %s", Kubernetes)
	}
}
