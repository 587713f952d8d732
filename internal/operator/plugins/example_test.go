package plugins

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The example of docs/operator.md is built in a folder of its own here, as the page
// tells to, and held against the contract.
func TestExampleOfTheGuide(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operator.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```go\n")
	source, _, found := strings.Cut(rest, "```")
	if _, err := parser.ParseFile(token.NewFileSet(), "wasm.go", source, parser.ParseComments); !found || err != nil {
		t.Fatalf("the guide has no Go in it: %v", err)
	}
	// An overlay, so that nothing is written into the tree.
	dir := t.TempDir()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	list := strings.Replace(read(t, "zz_generated.list.go"), "gvisor.New(),", "gvisor.New(),\n\t\twasm.New(),", 1)
	list = strings.Replace(list, "import (", "import (\n\t\"fairlead.run/internal/operator/plugins/wasm\"", 1)
	overlay := write("overlay.json", `{"Replace":{"`+filepath.Join(here, "wasm", "wasm.go")+`":"`+write("wasm.go", source)+`","`+filepath.Join(here, "zz_generated.list.go")+`":"`+write("list.go", list)+`"}}`)
	out, err := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-run", "TestContract/wasm", "-v", "-overlay", overlay, ".").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestContract/wasm") {
		t.Errorf("%v: %s", err, out)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
