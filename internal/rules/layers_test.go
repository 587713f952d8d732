package rules

// layer says what the packages of one place may import of ours. Everything
// else is forbidden. A pattern is a folder from the top of the tree; "/..."
// after it takes in the folders below. A word with "@" stands for a group.
//
// A package obeys the layer with the longest pattern that fits it. It may
// always import nothing; a folder below another has no rights over it.
type layer struct {
	place string
	may   []string
	tests []string // what _test.go files may import beyond that
}

var groups = map[string][]string{
	"@leaves": {
		"internal/undo", "internal/keylock", "internal/atomicfile", "internal/fdtest",
		"internal/failpoint", "internal/errdefs", "internal/telemetry",
		"internal/inroot", "internal/stage", "internal/hostpath", "internal/filelock",
		"internal/sealed", "internal/filelabel", "internal/userns", "internal/sentry", "internal/taskapi", "internal/resident", "internal/inprocess", "internal/osimage", "internal/threads", "internal/dirwatch",
	},
	"@api":    {"api/..."},
	"@public": {"pkg/..."},
	"@drivers": {
		"internal/runtime/...", "internal/network/...", "internal/image/...", "internal/rootfs/...",
		"internal/store/...", "internal/sandbox/...", "internal/spec/...", "internal/stats/...", "internal/checkpoint", "internal/selinux", "internal/nri", "internal/monitor/client",
	},
	"@core": {
		"internal/pod", "internal/lifecycle/...", "internal/audit", "internal/criserver/...", "internal/streaming/...",
	},
	"@monitorbase": {"internal/monitor/wire", "internal/monitor/linux", "internal/monitor/cgroup"},
	// What tests and contract suites may use: images made on the spot, and a
	// host prepared for crun.
	"@testkit": {"test/images/...", "test/hostprep/..."},
}

var layers = []layer{
	// The bottom.
	{place: "internal/undo"},
	{place: "internal/keylock"},
	{place: "internal/atomicfile"},
	{place: "internal/fdtest"},
	{place: "internal/failpoint"},
	{place: "internal/errdefs"},
	{place: "internal/osimage"},
	{place: "internal/dirwatch"},
	{place: "internal/inroot", may: []string{"internal/errdefs"}},
	{place: "internal/telemetry"},
	{place: "internal/stage"},
	{place: "internal/sealed"},
	{place: "internal/resident"},
	{place: "internal/inprocess"},
	{place: "internal/filelabel"},
	{place: "internal/userns", may: []string{"internal/errdefs", "internal/threads"}},
	{place: "internal/sentry", may: []string{"internal/errdefs"}},
	{place: "internal/taskapi", may: []string{"internal/atomicfile", "internal/errdefs"}},
	{place: "internal/filelock", may: []string{"internal/atomicfile"}},
	{place: "internal/threads", may: []string{"internal/errdefs"}},
	{place: "internal/hostpath", may: []string{"internal/errdefs", "internal/keylock", "internal/stage", "internal/threads"}},
	{place: "api/..."},
	// A payload in a cluster has what it says of itself.
	{place: "api/v1alpha1", may: []string{"api/payload/v1alpha1"}},
	// A program that go generate runs; nothing links it.
	{place: "api/config/v1alpha1/docgen", may: []string{"api/config/v1alpha1"}},
	// Its tests and those with a real API server share one table.
	{place: "pkg/runtimeclass/...", may: []string{"pkg/runtimeclass/..."}, tests: []string{"test/classtable"}},
	{place: "pkg/runtimeclass/policy", may: []string{"pkg/runtimeclass", "api/v1alpha1"}, tests: []string{"test/classtable"}},

	// The domain and the core.
	{place: "internal/pod", may: []string{"@leaves"}},
	{place: "internal/lifecycle/...", may: []string{"internal/lifecycle/...", "internal/pod", "@leaves"}},
	{place: "internal/audit", may: []string{"internal/pod", "@leaves"}},

	// What limits a pod and a container alike; sandbox and spec stand on it.
	{place: "internal/limits", may: []string{"internal/pod", "@leaves"}},

	// The drivers: never lifecycle, never each other. A kind of driver has
	// its common part in the folder above it.
	{place: "internal/runtime", may: []string{"internal/runtime/shelf", "internal/pod", "@api", "@leaves"}},
	{place: "internal/runtime/shelf", may: []string{"internal/pod", "@api", "@leaves"}},
	{place: "internal/runtime/oci/release", may: []string{"internal/pod"}},
	{place: "internal/runtime/oci/abilities", may: []string{"internal/pod"}},
	{place: "internal/runtime/oci/cgroup", may: []string{"@leaves"}},
	{place: "internal/runtime/oci/criu", may: []string{"@leaves"}},
	{place: "internal/runtime/oci/disk", may: []string{"@leaves"}},
	{place: "internal/runtime/oci/filter", may: []string{"@leaves"}},
	{place: "internal/runtime/oci/mark", may: []string{"@api"}},
	{place: "internal/runtime/oci/owner", may: []string{"@api"}},
	{place: "internal/runtime/oci/process", may: []string{"internal/pod"}},
	{place: "internal/runtime/oci/signame", may: []string{"@leaves"}},
	{place: "internal/runtime/oci/trial", may: []string{"@api", "@leaves"}},
	{place: "internal/runtime/oci/warmth"},
	{place: "internal/runtime/oci", may: []string{"internal/runtime/oci/abilities", "internal/runtime/oci/cgroup", "internal/runtime/oci/criu", "internal/runtime/oci/disk", "internal/runtime/oci/filter", "internal/runtime/oci/mark", "internal/runtime/oci/owner", "internal/runtime/oci/process", "internal/runtime/oci/release", "internal/runtime/oci/signame", "internal/runtime/oci/trial", "internal/runtime/oci/warmth", "internal/runtime", "internal/monitor/client", "internal/pod", "@api", "@leaves"}, tests: []string{"internal/runtime/runtimetest", "@testkit"}},
	{place: "internal/runtime/shim/...", may: []string{"internal/runtime/shim/...", "internal/runtime/oci", "internal/runtime", "internal/pod", "@api", "@leaves"}, tests: []string{"internal/runtime/runtimetest", "internal/monitor/client", "@testkit"}},
	{place: "internal/runtime/vm/...", may: []string{"internal/runtime/vm/...", "internal/runtime", "internal/pod", "@api", "@leaves"}, tests: []string{"internal/runtime/runtimetest", "@testkit"}},
	{place: "internal/runtime/runtimetest", may: []string{"internal/runtime", "internal/pod", "@testkit", "@api", "@leaves"}},
	{place: "internal/network", may: []string{"internal/pod", "@api", "@leaves"}, tests: []string{"internal/network/networktest", "@testkit"}},
	{place: "internal/network/bridge/...", may: []string{"internal/network/bridge/...", "internal/network", "internal/pod", "@api", "@leaves"}, tests: []string{"internal/network/networktest", "@testkit"}},
	{place: "internal/network/cni/...", may: []string{"internal/network/cni/...", "internal/network", "internal/pod", "@api", "@leaves"}, tests: []string{"internal/network/networktest", "@testkit"}},
	{place: "internal/network/networktest", may: []string{"internal/network", "internal/pod", "@testkit", "@api", "@leaves"}},
	{place: "internal/image/...", may: []string{"internal/image/...", "internal/pod", "@api", "@leaves"}, tests: []string{"@testkit"}},
	{place: "internal/rootfs/...", may: []string{"internal/rootfs/...", "internal/pod", "@api", "@leaves"}, tests: []string{"@testkit"}},
	{place: "internal/store/...", may: []string{"internal/store/...", "internal/pod", "@api", "@leaves"}},
	{place: "internal/sandbox/...", may: []string{"internal/sandbox/...", "internal/limits", "internal/pod", "@api", "@leaves"}},
	{place: "internal/spec/...", may: []string{"internal/spec/...", "internal/limits", "internal/pod", "@api", "@leaves"}},
	{place: "internal/checkpoint", may: []string{"internal/pod", "@leaves"}},
	{place: "internal/selinux", may: []string{"internal/pod", "@leaves"}},
	{place: "internal/nri", may: []string{"internal/pod", "@api", "@leaves"}},
	{place: "internal/stats/...", may: []string{"internal/stats/...", "internal/pod", "@api", "@leaves"}},

	// The monitor is a program of its own; client is the daemon's side. The two
	// share what reads frames and handles descriptors, and nothing that serves.
	{place: "internal/monitor/...", may: []string{"internal/monitor/...", "@api", "@leaves"}},
	{place: "internal/monitor/client", may: []string{"@monitorbase", "internal/pod", "@api", "@leaves"}, tests: []string{"internal/monitor/..."}},

	// The edges.
	// The stream of events is tested with what feeds it: none may be lost in between.
	{place: "internal/criserver/...", may: []string{"internal/criserver/...", "@coredown"}, tests: []string{"internal/lifecycle/events"}},
	{place: "internal/streaming/...", may: []string{"internal/streaming/...", "@coredown"}},
	// Clients of an API server, which know nothing of the daemon.
	{place: "internal/cluster", may: []string{"@public", "@api", "@leaves"}, tests: []string{"test/apiserver"}},
	// Its manifests name flags of the command.
	{place: "internal/webhook/...", may: []string{"internal/webhook/...", "internal/cluster", "internal/operator/names", "internal/operator/plugin", "internal/operator/plugins", "internal/operator/validate", "@public", "@api", "@leaves"}, tests: []string{"test/apiserver", "internal/cli"}},
	{place: "internal/node/...", may: []string{"internal/node/...", "@public", "@api", "@leaves"}, tests: []string{"test/deviceplugin"}},
	// The one part of a node that is a client of an API server, too.
	{place: "internal/node/cluster/...", may: []string{"internal/node/...", "internal/cluster", "@public", "@api", "@leaves"}, tests: []string{"test/apiserver", "test/deviceplugin", "@testkit"}},

	// Wiring, and the clients of sockets and APIs.
	{place: "internal/daemon/...", may: []string{"internal/daemon/...", "@core", "@drivers", "@api", "@leaves"}},
	{place: "internal/configimport/...", may: []string{"internal/configimport/...", "@api", "@leaves"}, tests: []string{"internal/image/registry"}},
	{place: "internal/classes", may: []string{"internal/classes/manifests", "@public", "@api", "@leaves"}},
	{place: "internal/classes/manifests", may: []string{"internal/node/manifest/fields", "@api", "@leaves"}},
	// It knows types of runtimes by their other names, too.
	{place: "internal/cli/...", may: []string{"internal/cli/...", "internal/classes/...", "internal/cluster", "internal/configimport/...", "internal/daemon", "internal/installer/...", "internal/node/...", "internal/operator/options", "internal/operator/plugins", "internal/webhook", "@public", "@api", "@leaves"}, tests: []string{"test/apiserver"}},
	{place: "internal/dashboard/...", may: []string{"internal/dashboard/...", "@public", "@api", "@leaves"}},
	// What is known of types of runtimes, and the rules, are the webhook's as well.
	{place: "internal/operator/plugin", may: []string{"@api", "@leaves"}},
	{place: "internal/operator/plugins/...", may: []string{"internal/operator/plugin", "internal/operator/plugins/...", "@api", "@leaves"}},
	// Its table of images is compared with the installer's profiles.
	{place: "internal/operator/placed", may: []string{"@api"}},
	{place: "internal/operator/validate", may: []string{"internal/operator/names", "internal/operator/placed", "internal/operator/plugin", "@api", "@leaves"}, tests: []string{"internal/operator/plugins", "internal/installer/fault", "internal/installer/profile"}},
	// Its command line is fairlead's as well, which must not link the rest.
	{place: "internal/operator/options"},
	// What of a node is mounted is what the installer needs, and is written down there.
	{place: "internal/operator/install", may: []string{"internal/operator/names", "internal/installer/view", "@api"}},
	{place: "internal/operator/names", may: []string{"@api"}},
	{place: "internal/operator/...", may: []string{"internal/operator/...", "internal/cluster", "internal/webhook/certs", "@public", "@api", "@leaves"}, tests: []string{"test/apiserver"}},
	{place: "internal/installer/view"},
	{place: "internal/installer/...", may: []string{"internal/installer/...", "@public", "@api", "@leaves"}},
	{place: "cmd/fairlead", may: []string{"internal/cli", "internal/daemon", "internal/node/...", "internal/operator/...", "internal/installer/...", "internal/dashboard", "@api", "@leaves"}},
	{place: "cmd/fairlead-operator", may: []string{"internal/operator", "internal/operator/options"}},
	{place: "cmd/fairlead-monitor", may: []string{"internal/monitor/...", "@api", "@leaves"}},

	// What never reaches a user.
	{place: "internal/rules", tests: []string{"internal/pod"}},
	{place: "build/...", may: []string{"@testkit"}},
	{place: "build/images", may: []string{"api/payload/v1alpha1", "api/v1alpha1"}},
	{place: "examples/...", may: []string{"@testkit"}},
	// The images made here are tried on the drivers that they are made for.
	{place: "test/images/...", may: []string{"test/...", "@public", "@api", "@leaves"}, tests: []string{"internal/image", "internal/rootfs", "internal/pod"}},
	// What the installer writes for systemd, and the commands that units name.
	{place: "test/units", tests: []string{"internal/cli", "internal/installer/profile", "internal/installer/view", "internal/monitor"}},
	// What drives the real programs talks to their sockets, the monitor's too.
	{place: "test/node", may: []string{"test/images", "test/hostprep", "internal/monitor/client", "@api", "@leaves"}},
	{place: "test/...", may: []string{"test/...", "@public", "@api", "@leaves"}, tests: []string{"internal/monitor/client", "internal/store"}},
}

// fence keeps modules of others to a few places. An import belongs to the fence
// with the longest prefix that fits it.
type fence struct {
	module string
	places []string
	why    string
}

var fences = []fence{
	{
		module: "github.com/containerd",
		places: []string{"internal/image/...", "internal/rootfs/..."},
		why:    "its types stay behind our own, so that it can be replaced",
	},
	{
		module: "github.com/containerd/nri",
		places: []string{"internal/nri", "test/..."},
		why:    "the wire form of NRI is not the domain",
	},
	{
		module: "k8s.io/cri-api",
		places: []string{"internal/criserver/...", "internal/streaming/...", "internal/node/...", "internal/installer/cri/...", "internal/installer", "test/..."},
		why:    "the wire form of the CRI is not the domain",
	},
	{
		module: "github.com/google/go-containerregistry",
		places: []string{"build/images"},
		why:    "no program that runs anywhere needs a second library for images",
	},
	{
		module: "k8s.io/kubernetes",
		places: []string{"test/e2e/..."},
		why:    "it drags a second version of every k8s.io module along",
	},
	{
		module: "sigs.k8s.io/controller-runtime",
		places: []string{"internal/operator/..."},
		why:    "it registers all of Kubernetes' types when a program starts that links it",
	},
	{
		module: "C",
		why:    "the binaries are static and are built without cgo",
	},
}

func init() {
	groups["@coredown"] = append([]string{"internal/lifecycle", "internal/pod"}, append(groups["@api"], groups["@leaves"]...)...)
}
