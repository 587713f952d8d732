package plugins

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// guideTest is compiled with the example: the registry has it, and with that the rules
// of operator and webhook.
const guideTest = `package plugins

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/plugin"
	"fairlead.run/internal/operator/validate"
)

func TestGuide(t *testing.T) {
	read := func(name string, into any) {
		text, err := os.ReadFile(os.Getenv("GUIDE") + "/" + name)
		if err == nil {
			err = yaml.UnmarshalStrict(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var release payload.RuntimePayload
	var pool v1alpha1.WorkerPool
	var pod corev1.Pod
	read("payload.json", &release)
	read("pool.yaml", &pool)
	read("pod.yaml", &pod)
	// What make images adds, of the files that it finds.
	release.Files = []payload.File{{Path: "containerd-shim-wasmtime-v1", Mode: "0755", Size: 1, SHA256: strings.Repeat("ab", 32)}}
	if faults := release.Validate(nil); len(faults) > 0 {
		t.Fatal(faults.ToAggregate())
	}
	p := All().Lookup("wasm")
	if p == nil {
		t.Fatal("the registry has no wasm")
	}
	classes, err := plugin.Classes(p.Describe(), &release, plugin.Settings{})
	if err != nil || len(classes) != 1 || classes[0].Name != *pod.Spec.RuntimeClassName || classes[0].Handler != "wasmtime" || classes[0].Overhead.Memory().String() != "16Mi" {
		t.Errorf("%+v %v", classes, err)
	}
	known := validate.Known{Plugins: All(), Payload: func(typ string) *v1alpha1.RuntimePayload {
		if typ != release.Type {
			return nil
		}
		return &v1alpha1.RuntimePayload{ObjectMeta: metav1.ObjectMeta{Name: typ}, Spec: v1alpha1.RuntimePayloadSpec{Manifest: release}}
	}}
	if r := known.Pool(&pool); r.Err() != nil || len(r.Warnings) > 0 {
		t.Errorf("%v %q", r.Err(), r.Warnings)
	}
	pool.Spec.CRI.ContainerRuntimes[0].ProviderConfig = &runtime.RawExtension{Raw: []byte("{\"speed\":1}")}
	if bad := known.Pool(&pool); bad.Err() == nil {
		t.Error("a field that is none was taken")
	}
}
`

// The example of docs/operator.md is a folder of its own here, as the page tells to, and
// nothing else: make generate's program lists it, and it is held against the contract
// and against what the page has beside it.
func TestExampleOfTheGuide(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operator.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "## A type of your own\n")
	section, _, more := strings.Cut(section, "\n## ")
	if !found || !more {
		t.Fatal("the guide has no section about a type of one's own")
	}
	block := func(language string, n int) string {
		parts := strings.Split(section, "```"+language+"\n")
		if len(parts) <= n+1 {
			t.Fatalf("the guide has no %s, number %d", language, n)
		}
		text, _, _ := strings.Cut(parts[n+1], "```")
		return text
	}
	source := block("go", 0)
	if _, err := parser.ParseFile(token.NewFileSet(), "wasm.go", source, parser.ParseComments); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("payload.json", block("json", 0))
	pool, pod, _ := strings.Cut(block("yaml", 0), "---\n")
	write("pool.yaml", pool)
	write("pod.yaml", pod)
	wasm := write("plugins/wasm/wasm.go", source)
	list := generated(t, filepath.Join(dir, "plugins"))
	// An overlay, so that nothing is written into the tree.
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(here, "wasm", "wasm.go"): wasm, filepath.Join(here, "zz_generated.list.go"): list, filepath.Join(here, "guide_test.go"): write("guide_test.go", guideTest),
	}})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-run", "TestContract/wasm|TestGuide", "-v", "-overlay", write("overlay.json", string(overlay)), ".")
	cmd.Env = append(os.Environ(), "GUIDE="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestContract/wasm") || !strings.Contains(string(out), "--- PASS: TestGuide") {
		t.Errorf("%v: %s", err, out)
	}
}

// generated is the list that make generate's program writes in a folder that has those
// of this one beside its own.
func generated(t *testing.T, folder string) string {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"wasm": true}
	for _, e := range entries {
		if !e.IsDir() || e.Name() == "testdata" {
			continue
		}
		want[e.Name()] = e.Name() != "list"
		if err := os.MkdirAll(filepath.Join(folder, e.Name()), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(t.TempDir(), "list")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./list").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	path := filepath.Join(folder, "zz_generated.list.go")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got := strings.Contains(string(text), "\t"+name+".New(),"); got != want[name] {
			t.Errorf("%s is listed: %v", name, got)
		}
	}
	return path
}
