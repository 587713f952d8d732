package criserver

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// unread are the fields of requests that change nothing, by patterns of path.Match,
// each for a reason.
var unread = map[string]string{
	"VersionRequest.Version":               "the answer is the same to all: there is one version",
	"CreateContainerRequest.SandboxConfig": "is that of RunPodSandbox, which is on record",
	"*.Image.Annotations":                  "a kubelet puts the pod's annotations here, and no pod decides how an image is found or pulled",
	"*.Image.UserSpecifiedImage":           "is what somebody wrote; image is what it means",
	"*.Image.ImageRef":                     "set by the runtime only",
	"ListImages*.Image.RuntimeHandler":     "images are the same for all handlers",
	"ImageStatus*.Image.RuntimeHandler":    "images are the same for all handlers",
	"RemoveImage*.Image.RuntimeHandler":    "images are the same for all handlers",
	"PullImageRequest.SandboxConfig.*":     "an image is pulled in the same way for all pods; metadata says in whose trace it is",
}

// reason is why a field is not read, and the pattern that says so.
func reason(name string) (why, pattern string) {
	for p, why := range unread {
		if ok, _ := path.Match(p, name); ok {
			return why, p
		}
	}
	return "", ""
}

// TestEveryFieldOfARequestIsRead parses the calls: each field of a request is read
// there, or given to a converter as a whole, or has a reason not to be. What becomes
// of the configurations is what TestNoFieldIsLost looks at.
func TestEveryFieldOfARequestIsRead(t *testing.T) {
	bodies := calls(t)
	seen := map[string]bool{}
	for _, service := range []string{"RuntimeService", "ImageService"} {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("runtime.v1." + service))
		if err != nil {
			t.Fatal(err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			m := methods.Get(i)
			fn := bodies[string(m.Name())]
			if fn == nil {
				t.Errorf("%s is nowhere", m.Name())
				continue
			}
			read := readBy(fn)
			for _, field := range notRead(m.Input(), "", read) {
				name := string(m.Input().Name()) + "." + field
				why, pattern := reason(name)
				seen[pattern] = true
				if why == "" {
					t.Errorf("%s is not read, and there is no reason why", name)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unread)) {
		if !seen[name] {
			t.Errorf("%s fits nothing that is not read", name)
		}
	}
}

// calls are the methods of this package's Server.
func calls(t *testing.T) map[string]*ast.FuncDecl {
	t.Helper()
	out := map[string]*ast.FuncDecl{}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				out[fn.Name.Name] = fn
			}
		}
	}
	return out
}

// readBy are the paths of fields that a call reads of its request, such as
// "Image.Image". "" stands for all of it.
func readBy(fn *ast.FuncDecl) map[string]bool {
	out := map[string]bool{}
	request := ""
	for _, p := range fn.Type.Params.List {
		if star, ok := p.Type.(*ast.StarExpr); ok && len(p.Names) == 1 {
			if sel, ok := star.X.(*ast.SelectorExpr); ok && strings.HasSuffix(sel.Sel.Name, "Request") {
				request = p.Names[0].Name
			}
		}
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		path, ok := fieldOf(e, request)
		if ok {
			out[strings.Join(path, ".")] = true
		}
		return !ok
	})
	return out
}

// fieldOf is the path of r.GetX().GetY() and r.X.Y.
func fieldOf(e ast.Expr, request string) ([]string, bool) {
	switch e := e.(type) {
	case *ast.Ident:
		return nil, e.Name == request
	case *ast.CallExpr:
		sel, ok := e.Fun.(*ast.SelectorExpr)
		if !ok || !strings.HasPrefix(sel.Sel.Name, "Get") {
			return nil, false
		}
		path, ok := fieldOf(sel.X, request)
		return append(path, strings.TrimPrefix(sel.Sel.Name, "Get")), ok
	case *ast.SelectorExpr:
		path, ok := fieldOf(e.X, request)
		return append(path, e.Sel.Name), ok
	}
	return nil, false
}

// notRead are the fields below a path that nothing reads.
func notRead(m protoreflect.MessageDescriptor, above string, read map[string]bool) (out []string) {
	if read[""] {
		return nil
	}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		at := above + goName(f.Name())
		below := func(p string) bool { return strings.HasPrefix(p, at+".") }
		switch {
		case read[at]:
		case f.Message() != nil && slices.ContainsFunc(slices.Collect(maps.Keys(read)), below):
			out = append(out, notRead(f.Message(), at+".", read)...)
		default:
			out = append(out, at)
		}
	}
	return out
}

func goName(field protoreflect.Name) string {
	var out strings.Builder
	for word := range strings.SplitSeq(string(field), "_") {
		out.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return out.String()
}
