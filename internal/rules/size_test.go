package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// The limits of the house. What must be larger says why in its doc comment, in
// a line that starts with "Larger".
const (
	maxFuncLines    = 80
	maxDepth        = 3
	maxParams       = 4 // beside a context
	maxFields       = 15
	maxMethods      = 7
	maxPackageLines = 2500
)

var larger = regexp.MustCompile(`(?m)^Larger\b`)

// oversized says what in a declaration goes past the limits.
func oversized(fset *token.FileSet, d ast.Decl) []string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if excused(d.Doc) {
			return nil
		}
		return oversizedFunc(fset, d)
	case *ast.GenDecl:
		var out []string
		for _, s := range d.Specs {
			t, ok := s.(*ast.TypeSpec)
			if ok && !excused(t.Doc) && !excused(d.Doc) {
				out = append(out, oversizedType(t)...)
			}
		}
		return out
	}
	return nil
}

func excused(doc *ast.CommentGroup) bool { return doc != nil && larger.MatchString(doc.Text()) }

func oversizedFunc(fset *token.FileSet, d *ast.FuncDecl) []string {
	var out []string
	name := "func " + d.Name.Name
	out = append(out, over(name, "lines", fset.Position(d.End()).Line-fset.Position(d.Pos()).Line+1, maxFuncLines)...)
	out = append(out, over(name, "parameters beside ctx", params(d.Type), maxParams)...)
	if d.Body != nil {
		out = append(out, over(name, "levels of nesting", depth(d.Body), maxDepth)...)
	}
	return out
}

func oversizedType(t *ast.TypeSpec) []string {
	switch x := t.Type.(type) {
	case *ast.StructType:
		return over("struct "+t.Name.Name, "fields", x.Fields.NumFields(), maxFields)
	case *ast.InterfaceType:
		return over("interface "+t.Name.Name, "methods", x.Methods.NumFields(), maxMethods)
	}
	return nil
}

func over(what, unit string, n, limit int) []string {
	if n <= limit {
		return nil
	}
	return []string{fmt.Sprintf("%s has %d %s, the limit is %d", what, n, unit, limit)}
}

func params(f *ast.FuncType) int {
	n := 0
	for _, p := range f.Params.List {
		if !isContext(p.Type) {
			n += max(1, len(p.Names))
		}
	}
	return n
}

func isContext(t ast.Expr) bool {
	s, ok := t.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Context" {
		return false
	}
	pkg, ok := s.X.(*ast.Ident)
	return ok && pkg.Name == "context"
}

// depth is how deep control statements are nested. A function literal starts
// anew, and "else if" is on the level of its if.
func depth(body ast.Node) int {
	literals := 0
	return max(nesting(body, &literals), literals)
}

func nesting(n ast.Node, literals *int) int {
	deepest := 0
	ast.Inspect(n, func(c ast.Node) bool {
		if c == nil || c == n {
			return true
		}
		switch c := c.(type) {
		case *ast.FuncLit:
			*literals = max(*literals, depth(c.Body))
			return false
		case *ast.IfStmt:
			deepest = max(deepest, ifNesting(c, literals))
			return false
		case *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
			deepest = max(deepest, 1+nesting(c, literals))
			return false
		}
		return true
	})
	return deepest
}

func ifNesting(s *ast.IfStmt, literals *int) int {
	deepest := 1 + nesting(s.Body, literals)
	nesting(s.Cond, literals)
	if s.Init != nil {
		nesting(s.Init, literals)
	}
	switch e := s.Else.(type) {
	case *ast.BlockStmt:
		deepest = max(deepest, 1+nesting(e, literals))
	case *ast.IfStmt:
		deepest = max(deepest, ifNesting(e, literals))
	}
	return deepest
}

func TestSizes(t *testing.T) {
	all := load(t)
	lines := map[string]int{}
	excuse := map[string]bool{}
	for _, f := range all.product() {
		if ast.IsGenerated(f.ast) {
			continue
		}
		lines[f.pkg] += all.fset.File(f.ast.Pos()).LineCount()
		excuse[f.pkg] = excuse[f.pkg] || excused(f.ast.Doc)
		for _, d := range f.ast.Decls {
			for _, bad := range oversized(all.fset, d) {
				t.Errorf("%s: %s; split it, or say why in a comment line that starts with \"Larger\"", f.where(all.fset, d.Pos()), bad)
			}
		}
	}
	for pkg, n := range lines {
		if n > maxPackageLines && !excuse[pkg] {
			t.Errorf("%s has %d lines, the limit for a package is %d", pkg, n, maxPackageLines)
		}
	}
}

func TestContextComesFirstAndIsNoField(t *testing.T) {
	all := load(t)
	for _, f := range all.product() {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.StructType:
				for _, field := range n.Fields.List {
					if isContext(field.Type) {
						t.Errorf("%s: a context is a parameter, never a field", f.where(all.fset, field.Pos()))
					}
				}
			// A bare function type is left out: that of a method expression
			// names the receiver first.
			case *ast.FuncDecl:
				if lateContext(n.Type) {
					t.Errorf("%s: a context is the first parameter", f.where(all.fset, n.Pos()))
				}
			case *ast.FuncLit:
				if lateContext(n.Type) {
					t.Errorf("%s: a context is the first parameter", f.where(all.fset, n.Pos()))
				}
			}
			return true
		})
	}
}

func lateContext(f *ast.FuncType) bool {
	for i, p := range f.Params.List {
		if i > 0 && isContext(p.Type) {
			return true
		}
	}
	return false
}

func TestOversizedIsFound(t *testing.T) {
	for _, tt := range []struct{ name, src, want string }{
		{"fits", "func f(ctx context.Context, a, b, c, d int) {}", ""},
		{"parameters", "func f(ctx context.Context, a, b, c, d, e int) {}", "5 parameters"},
		{"excused", "// f is wide.\n//\n// Larger than usual because the table has six columns.\nfunc f(a, b, c, d, e int) {}", ""},
		{"lines", "func f() {" + strings.Repeat("\n", 80) + "}", "81 lines"},
		{"depth fits", "func f() { for { if a { switch { case b: } } } }", ""},
		{"depth", "func f() { for { if a { for { if b {} } } } }", "4 levels"},
		{"else if", "func f() { if a {} else if b {} else if c {} else if d {} else { for { if e {} } } }", ""},
		{"literal starts anew", "func f() { for { if a { go func() { for { if b {} } }() } } }", ""},
		{"fields", "type s struct { " + strings.Repeat("a, b, c, d int; ", 4) + "}", "16 fields"},
		{"methods", "type i interface { a(); b(); c(); d(); e(); f(); g(); h() }", "8 methods"},
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "x.go", "package x\n"+tt.src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(oversized(fset, f.Decls[0]), "; ")
		if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: found %q, want %q", tt.name, got, tt.want)
		}
	}
}
