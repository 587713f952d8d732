package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "fairlead.run"

// source is one parsed Go file.
type source struct {
	path string // from the top of the tree, with slashes
	pkg  string // its folder; "." is the top
	test bool   // named *_test.go
	ast  *ast.File
}

// where is the position of a node for a message: "internal/pod/id.go:12".
func (s source) where(fset *token.FileSet, at token.Pos) string {
	return s.path + ":" + itoa(fset.Position(at).Line)
}

// tree is every Go file of the project, generated ones and those that build
// tags leave out included.
type tree struct {
	fset  *token.FileSet
	files []source
}

var parseOnce = sync.OnceValues(func() (*tree, error) {
	top, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	t := &tree{fset: token.NewFileSet()}
	err = fs.WalkDir(os.DirFS(top), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skip(name)
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(t.fset, filepath.Join(top, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		t.files = append(t.files, source{path: name, pkg: path.Dir(name), test: strings.HasSuffix(name, "_test.go"), ast: f})
		return nil
	})
	return t, err
})

// skip leaves out what the go command leaves out, and the built tools.
func skip(dir string) error {
	base := path.Base(dir)
	if dir != "." && (base[0] == '.' || base[0] == '_' || base == "testdata" || dir == "bin") {
		return fs.SkipDir
	}
	return nil
}

func load(t *testing.T) *tree {
	t.Helper()
	all, err := parseOnce()
	if err != nil {
		t.Fatal(err)
	}
	if len(all.files) < 10 {
		t.Fatalf("found %d Go files, so the tests look in the wrong place", len(all.files))
	}
	return all
}

// product is every file that ends up in a binary.
func (t *tree) product() []source {
	var out []source
	for _, f := range t.files {
		if !f.test && !strings.HasPrefix(f.pkg, "test/") && f.pkg != "internal/rules" {
			out = append(out, f)
		}
	}
	return out
}

// in says whether the package is under one of the folders.
func in(pkg string, folders ...string) bool {
	for _, f := range folders {
		if pkg == f || strings.HasPrefix(pkg, f+"/") {
			return true
		}
	}
	return false
}

// text is what a string literal means, or "".
func text(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	return unquote(lit.Value)
}
