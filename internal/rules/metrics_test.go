package rules

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// metric is a family that a program registers with internal/telemetry.
type metric struct {
	kind     string
	labels   []string
	literals map[string]bool // the strings of its file's package and imports: what can be a label's value
}

// metrics are those of all programs, by their names. A name or a label that is no
// literal, constant or variable with a literal is an error: nobody could find it.
func metrics(t *testing.T) map[string]metric {
	t.Helper()
	all := load(t)
	literals := map[string]map[string]bool{}
	for _, f := range all.product() {
		if literals[f.pkg] == nil {
			literals[f.pkg] = map[string]bool{}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok && text(e) != "" {
				literals[f.pkg][text(e)] = true
			}
			return true
		})
	}
	out := map[string]metric{}
	for _, f := range all.product() {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || f.pkg == "internal/telemetry" {
				return true
			}
			name, m := registered(f.ast, call)
			if name == "" {
				return true
			}
			if _, twice := out[name]; twice || slices.Contains(m.labels, "") {
				t.Errorf("%s: metric %s is there twice, or has labels that cannot be read: %q", f.where(all.fset, n.Pos()), name, m.labels)
			}
			m.literals = maps.Clone(literals[f.pkg])
			for _, i := range f.ast.Imports {
				maps.Copy(m.literals, literals[strings.TrimPrefix(text(i.Path), module+"/")])
			}
			out[name] = m
			return true
		})
	}
	if len(out) < 20 {
		t.Fatalf("found %d metrics, so the test looks in the wrong place", len(out))
	}
	return out
}

// registered is the metric that a call registers; "" if it is another call.
func registered(file *ast.File, call *ast.CallExpr) (string, metric) {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) < 2 || !strings.HasPrefix(text(call.Args[0]), "fairlead_") {
		return "", metric{}
	}
	m := metric{kind: strings.ToLower(s.Sel.Name)}
	switch m.kind {
	case "counter", "histogram":
		for _, e := range call.Args[2:] {
			m.labels = append(m.labels, word(file, e))
		}
	case "gauge":
		m.labels = words(file, call.Args[2])
	default:
		return "", metric{}
	}
	return text(call.Args[0]), m
}

// word is a string, or that of a constant of the file.
func word(file *ast.File, e ast.Expr) string {
	if id, ok := e.(*ast.Ident); ok {
		e = valueOf(file, id.Name)
	}
	return text(e)
}

// words is a list of them, or that of a variable of the file.
func words(file *ast.File, e ast.Expr) []string {
	if id, ok := e.(*ast.Ident); ok && id.Name != "nil" {
		e = valueOf(file, id.Name)
	}
	list, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	var out []string
	for _, e := range list.Elts {
		out = append(out, word(file, e))
	}
	return out
}

func valueOf(file *ast.File, name string) ast.Expr {
	var out ast.Expr
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, id := range n.Names {
				if id.Name == name && i < len(n.Values) {
					out = n.Values[i]
				}
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && id.Name == name && len(n.Rhs) == len(n.Lhs) {
					out = n.Rhs[i]
				}
			}
		}
		return true
	})
	return out
}

// Every metric is in a table for users.
func TestMetricsAreDocumented(t *testing.T) {
	pages := read(t, "docs/webhook.md") + read(t, "docs/monitoring.md")
	for name, m := range metrics(t) {
		_, row, ok := strings.Cut(pages, "\n| `"+name+"`")
		if !ok {
			t.Errorf("%s is in neither docs/webhook.md nor docs/monitoring.md", name)
			continue
		}
		row, _, _ = strings.Cut(row, "\n")
		for _, label := range m.labels {
			if !strings.Contains(row, label) {
				t.Errorf("%s has label %s, and its row in docs has not:%s", name, label, row)
			}
		}
	}
}
