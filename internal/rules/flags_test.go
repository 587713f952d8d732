package rules

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// A flag as advice names it: what begins a text is an argument for another program.
var advisedFlag = regexp.MustCompile(`[ (]--([a-z][a-z-]+)`)

// TestAdviceNamesFlagsThatExist: the node's packages tell people what to do by flags
// that the command declares, far away from them.
func TestAdviceNamesFlagsThatExist(t *testing.T) {
	all := load(t)
	reference := read(t, "docs/cli.md")
	seen := 0
	for _, f := range all.product() {
		if !strings.HasPrefix(f.path, "internal/node/") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			text, ok := n.(*ast.BasicLit)
			if !ok || text.Kind != token.STRING {
				return true
			}
			for _, m := range advisedFlag.FindAllStringSubmatch(unquote(text.Value), -1) {
				seen++
				if !strings.Contains(reference, "--"+m[1]+" ") {
					t.Errorf("%s: there is no flag --%s", f.where(all.fset, text.Pos()), m[1])
				}
			}
			return true
		})
	}
	if seen == 0 {
		t.Error("no advice was found: the test looks at the wrong files")
	}
}
