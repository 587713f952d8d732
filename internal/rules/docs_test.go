package rules

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

func unquote(s string) string {
	out, err := strconv.Unquote(s)
	if err != nil {
		return ""
	}
	return out
}

// A name that says nothing collects everything.
var emptyNames = []string{"util", "utils", "common", "helper", "helpers", "types", "manager", "managers", "misc", "base"}

func TestPackageNamesSaySomething(t *testing.T) {
	for _, f := range load(t).files {
		name := strings.TrimSuffix(f.ast.Name.Name, "_test")
		if slices.Contains(emptyNames, name) || slices.Contains(emptyNames, path.Base(f.pkg)) {
			t.Errorf("%s: a package named %s says nothing about what lives there", f.path, name)
		}
	}
}

func TestEveryPackageHasADoc(t *testing.T) {
	docs := map[string]int{}
	for _, f := range load(t).files {
		if strings.HasSuffix(f.ast.Name.Name, "_test") {
			continue
		}
		n := docs[f.pkg]
		if f.ast.Doc != nil && startsRight(f.ast) {
			n++
		}
		docs[f.pkg] = n
	}
	for pkg, n := range docs {
		if n != 1 {
			t.Errorf("%s has %d package comments, want one, that starts with \"Package NAME\" or \"Command NAME\"", pkg, n)
		}
	}
}

func startsRight(f *ast.File) bool {
	first := "Package " + f.Name.Name + " "
	if f.Name.Name == "main" {
		first = "Command "
	}
	return strings.HasPrefix(f.Doc.Text(), first)
}

func TestExportedNamesHaveComments(t *testing.T) {
	all := load(t)
	for _, f := range all.product() {
		if ast.IsGenerated(f.ast) {
			continue
		}
		for _, d := range f.ast.Decls {
			for _, name := range bare(d) {
				t.Errorf("%s: %s is exported and has no comment", f.where(all.fset, name.Pos()), name.Name)
			}
		}
	}
}

// bare is the exported names that a declaration leaves without a comment. One
// comment may stand for a whole group of constants or variables.
func bare(d ast.Decl) []*ast.Ident {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && !unexportedReceiver(d) {
			return []*ast.Ident{d.Name}
		}
	case *ast.GenDecl:
		if d.Tok == token.IMPORT {
			return nil
		}
		var out []*ast.Ident
		for _, s := range d.Specs {
			out = append(out, bareSpec(s, d.Doc != nil)...)
		}
		return out
	}
	return nil
}

func bareSpec(s ast.Spec, grouped bool) []*ast.Ident {
	var names []*ast.Ident
	var documented bool
	switch s := s.(type) {
	case *ast.TypeSpec:
		names, documented = []*ast.Ident{s.Name}, s.Doc != nil || grouped
	case *ast.ValueSpec:
		names, documented = s.Names, s.Doc != nil || s.Comment != nil || grouped
	}
	if documented {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(names), func(n *ast.Ident) bool { return !n.IsExported() })
}

// unexportedReceiver is true for methods that documentation never shows.
func unexportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return false
	}
	for t := d.Recv.List[0].Type; ; {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return !x.IsExported()
		default:
			return false
		}
	}
}
