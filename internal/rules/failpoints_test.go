package rules

import (
	"go/ast"
	"testing"
)

// calls visits every call of a function of the failpoint package.
func calls(f source, function string, visit func(*ast.CallExpr)) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != function || len(call.Args) != 1 {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == "failpoint" {
			visit(call)
		}
		return true
	})
}

// A place that nobody registered could never be armed.
func TestFailpointsAreRegistered(t *testing.T) {
	all := load(t)
	known := map[string]bool{}
	for _, f := range all.product() {
		calls(f, "Register", func(c *ast.CallExpr) {
			name := text(c.Args[0])
			if name == "" {
				t.Errorf("%s: a failpoint is registered under a literal name, so that people can search for it", f.where(all.fset, c.Pos()))
			}
			if known[name] {
				t.Errorf("%s: the failpoint %q is registered twice, which ends the program at its start", f.where(all.fset, c.Pos()), name)
			}
			known[name] = true
		})
	}
	for _, f := range all.product() {
		calls(f, "Hit", func(c *ast.CallExpr) {
			if name := text(c.Args[0]); name != "" && !known[name] {
				t.Errorf("%s: the failpoint %q is hit but not registered", f.where(all.fset, c.Pos()), name)
			}
		})
	}
}
