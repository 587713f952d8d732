package rules

import (
	"fmt"
	"strings"
	"testing"
)

// fits says whether a pattern of the table covers a package.
func fits(pattern, pkg string) bool {
	below, tree := strings.CutSuffix(pattern, "/...")
	if tree {
		return in(pkg, below)
	}
	return pattern == pkg
}

func fitsAny(patterns []string, pkg string) bool {
	for _, p := range patterns {
		if strings.HasPrefix(p, "@") {
			if fitsAny(groups[p], pkg) {
				return true
			}
			continue
		}
		if fits(p, pkg) {
			return true
		}
	}
	return false
}

// layerOf is the layer that a package obeys, or nil.
func layerOf(pkg string) *layer {
	var best *layer
	for i, l := range layers {
		if fits(l.place, pkg) && (best == nil || len(l.place) > len(best.place)) {
			best = &layers[i]
		}
	}
	return best
}

// forbidden says why the package may not import what it imports; "" means that
// it may. test is true for _test.go files.
func forbidden(pkg string, test bool, imported string) string {
	if ours, ok := strings.CutPrefix(imported, module+"/"); ok {
		return forbiddenOurs(pkg, test, ours)
	}
	var of fence
	for _, f := range fences {
		if in(imported, f.module) && len(f.module) > len(of.module) {
			of = f
		}
	}
	if of.module != "" && !fitsAny(of.places, pkg) {
		return fmt.Sprintf("%s is fenced in, %s; only %v may import it", of.module, of.why, of.places)
	}
	return ""
}

func forbiddenOurs(pkg string, test bool, ours string) string {
	if test && ours == pkg { // the external tests of a package
		return ""
	}
	l := layerOf(pkg)
	if l == nil {
		return "the package has no place in the table of layers_test.go"
	}
	if fitsAny(l.may, ours) || test && fitsAny(l.tests, ours) {
		return ""
	}
	if len(l.may) == 0 {
		return l.place + " imports nothing of ours"
	}
	return fmt.Sprintf("%s may import only %v", l.place, l.may)
}

func TestImportRule(t *testing.T) {
	for _, tt := range []struct {
		pkg, imported string
		test, ok      bool
	}{
		// Leaves and api import nothing of ours.
		{pkg: "internal/undo", imported: "fairlead.run/internal/errdefs"},
		{pkg: "api/config/v1alpha1", imported: "fairlead.run/internal/errdefs"},
		{pkg: "api/config/v1alpha1", imported: "fairlead.run/api/monitor/v1"},
		{pkg: "internal/undo", imported: "golang.org/x/sys/unix", ok: true},
		// pod -> leaves.
		{pkg: "internal/pod", imported: "fairlead.run/internal/errdefs", ok: true},
		{pkg: "internal/pod", imported: "fairlead.run/internal/store"},
		{pkg: "internal/pod", imported: "fairlead.run/api/monitor/v1"},
		// lifecycle -> pod, leaves.
		{pkg: "internal/lifecycle", imported: "fairlead.run/internal/pod", ok: true},
		{pkg: "internal/lifecycle", imported: "fairlead.run/internal/undo", ok: true},
		{pkg: "internal/lifecycle", imported: "fairlead.run/internal/store"},
		{pkg: "internal/lifecycle", imported: "fairlead.run/internal/store", test: true},
		{pkg: "internal/lifecycle", imported: "fairlead.run/api/config/v1alpha1"},
		// Drivers -> pod, api, leaves.
		{pkg: "internal/image", imported: "fairlead.run/internal/pod", ok: true},
		{pkg: "internal/image", imported: "fairlead.run/api/config/v1alpha1", ok: true},
		{pkg: "internal/image", imported: "fairlead.run/internal/lifecycle"},
		{pkg: "internal/image", imported: "fairlead.run/internal/rootfs"},
		{pkg: "internal/image", imported: "fairlead.run/test/images"},
		{pkg: "internal/image", imported: "fairlead.run/test/images", test: true, ok: true},
		{pkg: "internal/runtime/oci", imported: "fairlead.run/internal/monitor/client", ok: true},
		{pkg: "internal/runtime/shim", imported: "fairlead.run/internal/monitor/client"},
		{pkg: "internal/runtime/oci", imported: "fairlead.run/internal/runtime/shim"},
		{pkg: "internal/runtime/oci", imported: "fairlead.run/internal/runtime/runtimetest"},
		{pkg: "internal/runtime/oci", imported: "fairlead.run/internal/runtime/runtimetest", test: true, ok: true},
		{pkg: "internal/runtime", imported: "fairlead.run/internal/runtime/oci"},
		{pkg: "internal/network/cni", imported: "fairlead.run/internal/network/bridge"},
		{pkg: "internal/network/cni", imported: "fairlead.run/internal/network", ok: true},
		{pkg: "internal/store", imported: "fairlead.run/internal/store", test: true, ok: true},
		// A fence within another one's module.
		{pkg: "internal/nri", imported: "github.com/containerd/nri/pkg/api", ok: true},
		{pkg: "internal/nri", imported: "github.com/containerd/containerd/v2/core/content"},
		{pkg: "internal/image", imported: "github.com/containerd/nri/pkg/api"},
		// The monitor knows nothing of the daemon.
		{pkg: "internal/monitor/inner", imported: "fairlead.run/internal/monitor/wire", ok: true},
		{pkg: "internal/monitor/inner", imported: "fairlead.run/internal/lifecycle"},
		{pkg: "internal/monitor/client", imported: "fairlead.run/internal/monitor/inner"},
		{pkg: "internal/monitor/client", imported: "fairlead.run/internal/monitor/wire", ok: true},
		{pkg: "internal/monitor/client", imported: "fairlead.run/internal/store"},
		// Edges.
		{pkg: "internal/criserver", imported: "fairlead.run/internal/lifecycle", ok: true},
		{pkg: "internal/criserver", imported: "fairlead.run/internal/image"},
		{pkg: "internal/streaming", imported: "fairlead.run/internal/criserver"},
		{pkg: "internal/node/plan", imported: "fairlead.run/internal/node/source", ok: true},
		{pkg: "internal/node/plan", imported: "fairlead.run/pkg/runtimeclass", ok: true},
		{pkg: "internal/node/plan", imported: "fairlead.run/internal/pod"},
		{pkg: "internal/node/endpoint", imported: "fairlead.run/internal/criserver"},
		// Wiring and clients.
		{pkg: "internal/daemon", imported: "fairlead.run/internal/runtime/oci", ok: true},
		{pkg: "internal/daemon", imported: "fairlead.run/internal/cli"},
		{pkg: "internal/daemon", imported: "fairlead.run/internal/node/endpoint"},
		{pkg: "internal/cli", imported: "fairlead.run/internal/daemon", ok: true},
		{pkg: "internal/cli", imported: "fairlead.run/internal/lifecycle"},
		{pkg: "internal/operator/installation", imported: "fairlead.run/internal/daemon"},
		{pkg: "cmd/fairlead", imported: "fairlead.run/internal/cli", ok: true},
		{pkg: "cmd/fairlead-monitor", imported: "fairlead.run/internal/daemon"},
		{pkg: "internal/cli", imported: "fairlead.run/cmd/fairlead"},
		{pkg: "internal/cli", imported: "fairlead.run/test/images"},
		{pkg: "pkg/runtimeclass", imported: "fairlead.run/internal/errdefs"},
		{pkg: "pkg/runtimeclass", imported: "fairlead.run/test/classtable"},
		{pkg: "pkg/runtimeclass", imported: "fairlead.run/test/classtable", test: true, ok: true},
		{pkg: "test/images", imported: "fairlead.run/internal/image"},
		{pkg: "test/images", imported: "fairlead.run/internal/image", test: true, ok: true},
		{pkg: "test/cri", imported: "fairlead.run/internal/image", test: true},
		{pkg: "internal/newcomer", imported: "fairlead.run/internal/pod"},
		// Fences.
		{pkg: "internal/image", imported: "github.com/containerd/containerd/v2/core/images", ok: true},
		{pkg: "internal/lifecycle", imported: "github.com/containerd/errdefs"},
		{pkg: "internal/lifecycle", imported: "github.com/containerdx/errdefs", ok: true},
		{pkg: "internal/criserver", imported: "k8s.io/cri-api/pkg/apis/runtime/v1", ok: true},
		{pkg: "internal/lifecycle", imported: "k8s.io/cri-api/pkg/apis/runtime/v1"},
		{pkg: "internal/lifecycle", imported: "k8s.io/cri-api/pkg/apis/runtime/v1", test: true},
		{pkg: "test/e2e", imported: "k8s.io/kubernetes/test/e2e", ok: true},
		{pkg: "test/cri", imported: "k8s.io/kubernetes/test/e2e"},
		{pkg: "internal/sandbox", imported: "C"},
	} {
		if why := forbidden(tt.pkg, tt.test, tt.imported); (why == "") != tt.ok {
			t.Errorf("%s (test %t) imports %s: allowed %t, want %t (%s)", tt.pkg, tt.test, tt.imported, why == "", tt.ok, why)
		}
	}
}

func TestImports(t *testing.T) {
	all := load(t)
	for _, f := range all.files {
		for _, spec := range f.ast.Imports {
			if why := forbidden(f.pkg, f.test, text(spec.Path)); why != "" {
				t.Errorf("%s: must not import %s: %s", f.where(all.fset, spec.Pos()), text(spec.Path), why)
			}
		}
	}
}

func TestEveryPackageHasALayer(t *testing.T) {
	for _, f := range load(t).files {
		if layerOf(f.pkg) == nil {
			t.Errorf("%s: the package has no place in the table of layers_test.go", f.path)
		}
	}
}

// A misspelt group would forbid everything without saying so.
func TestTableNamesOnlyGroupsThatExist(t *testing.T) {
	for _, l := range layers {
		for _, p := range append(l.may, l.tests...) {
			if strings.HasPrefix(p, "@") && groups[p] == nil {
				t.Errorf("%s names the group %s, which does not exist", l.place, p)
			}
		}
	}
}
