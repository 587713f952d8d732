package install

import (
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	gardener "fairlead.run/api/gardener/v1alpha1"
	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/api/v1alpha1"
	"fairlead.run/internal/operator/names"
)

func order(typ, pool string) *Order {
	return &Order{
		Runtime: &gardener.ContainerRuntime{
			ObjectMeta: metav1.ObjectMeta{Name: typ + "-" + pool, Namespace: "fairlead-system", UID: "1"},
			Spec:       gardener.ContainerRuntimeSpec{Type: typ, BinaryPath: "/usr/bin", WorkerPool: gardener.ContainerRuntimeWorkerPool{Name: pool}},
		},
		Type: typ, CRI: "crio", Distribution: "crio", Restart: v1alpha1.Restart{Method: "command", Command: []string{"/bin/reload", "-f"}}, Cluster: Cluster{Account: "fairlead-installer"},
		Payload: &v1alpha1.RuntimePayload{Spec: v1alpha1.RuntimePayloadSpec{Image: "registry.example/x@sha256:1", PullSecrets: []string{"pull"}}},
	}
}

func daemonSet(t *testing.T, o *Order, work names.PhaseOf) *appsv1.DaemonSet {
	t.Helper()
	ds, err := o.DaemonSet(work, "settings")
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// No two DaemonSets may think that a pod is theirs.
func TestSelectorsAreDisjoint(t *testing.T) {
	type made struct {
		selector labels.Selector
		labels   labels.Set
		name     string
	}
	var all []made
	for _, o := range []*Order{order("gvisor", "a"), order("gvisor", "b"), order("gvisor", "a-cleanup"), order("kata-containers", "a"), order("gvisor", strings.Repeat("a", 40))} {
		for _, work := range []names.PhaseOf{names.Install, names.Cleanup} {
			ds := daemonSet(t, o, work)
			s, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
			if err != nil {
				t.Fatal(err)
			}
			if len(ds.Name) > 52 {
				t.Errorf("%s is too long for the labels of its pods", ds.Name)
			}
			all = append(all, made{s, ds.Spec.Template.Labels, ds.Name})
		}
	}
	for i := range all {
		for j := range all {
			if got := all[i].selector.Matches(all[j].labels); got != (i == j) {
				t.Errorf("%s selects pods of %s: %v", all[i].name, all[j].name, got)
			}
			if i != j && all[i].name == all[j].name {
				t.Errorf("two are called %s", all[i].name)
			}
		}
	}
}

func TestPodHasNoRightsInTheCluster(t *testing.T) {
	p := daemonSet(t, order("gvisor", "a"), names.Install).Spec.Template.Spec
	if p.AutomountServiceAccountToken == nil || *p.AutomountServiceAccountToken || p.HostNetwork {
		t.Error("it gets a token, or the node's network")
	}
	for _, v := range p.Volumes {
		if v.Projected != nil || v.Secret != nil {
			t.Errorf("volume %s", v.Name)
		}
	}
	if len(p.InitContainers) > 0 || p.Containers[0].Image != "registry.example/x@sha256:1" || p.ImagePullSecrets[0].Name != "pull" {
		t.Errorf("%+v", p)
	}
}

// Programs of one machine come to no other, and whatever is on a node is taken away.
func TestArchitectures(t *testing.T) {
	o := order("gvisor", "a")
	if a := daemonSet(t, o, names.Install).Spec.Template.Spec.Affinity; a != nil {
		t.Errorf("of none it has %v", a)
	}
	before := daemonSet(t, o, names.Install).Spec.Template.Annotations[names.AnnotationRevision]
	o.Architectures = []string{"arm64"}
	ds := daemonSet(t, o, names.Install)
	want := corev1.NodeSelectorRequirement{Key: "kubernetes.io/arch", Operator: "In", Values: []string{"arm64"}}
	if got := ds.Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms; len(got) != 1 || len(got[0].MatchExpressions) != 1 || !reflect.DeepEqual(got[0].MatchExpressions[0], want) {
		t.Errorf("%+v", got)
	}
	if ds.Spec.Template.Annotations[names.AnnotationRevision] == before {
		t.Error("it is the revision of before")
	}
	if a := daemonSet(t, o, names.Cleanup).Spec.Template.Spec.Affinity; a != nil {
		t.Errorf("what cleans has %v", a)
	}
}

// A pod sees of the node what is listed here, and writes to no more than that.
func TestMounts(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Order)
		want   []string
	}{
		"containerd": {func(o *Order) { o.CRI, o.Distribution, o.Restart = "containerd", "containerd", v1alpha1.Restart{} }, []string{
			"/etc/containerd DirectoryOrCreate rw", "/etc/os-release File ro", "/etc/systemd/system Directory rw", "/run/containerd Directory ro live",
			"/run/dbus Directory ro", "/run/fairlead-installer DirectoryOrCreate ro", "/usr/bin DirectoryOrCreate rw", "/var/lib/fairlead-installer DirectoryOrCreate rw",
		}},
		"crio by SIGHUP": {func(o *Order) { o.Restart = v1alpha1.Restart{Method: "sighup"} }, []string{
			"/etc/crio DirectoryOrCreate rw", "/etc/os-release File ro", "/run/crio Directory ro live", "/run/fairlead-installer DirectoryOrCreate ro", "/usr/bin DirectoryOrCreate rw", "/var/lib/fairlead-installer DirectoryOrCreate rw",
		}},
		"crio": {func(o *Order) { o.Restart = v1alpha1.Restart{} }, []string{
			"/etc/crio DirectoryOrCreate rw", "/etc/os-release File ro", "/etc/systemd/system Directory ro", "/run/crio Directory ro live", "/run/dbus Directory ro", "/run/fairlead-installer DirectoryOrCreate ro", "/usr/bin DirectoryOrCreate rw", "/var/lib/fairlead-installer DirectoryOrCreate rw",
		}},
		"a command": {func(*Order) {}, []string{
			"/ Directory ro live", "/etc/crio DirectoryOrCreate rw", "/etc/os-release File ro", "/run/crio Directory ro live", "/run/fairlead-installer DirectoryOrCreate ro", "/usr/bin DirectoryOrCreate rw", "/var/lib/fairlead-installer DirectoryOrCreate rw",
		}},
		"rke2 with devices": {func(o *Order) {
			o.CRI, o.Distribution, o.Restart = "containerd", "rke2", v1alpha1.Restart{}
			o.Payload.Spec.Manifest.Devices = []string{"/dev/kvm"}
		}, []string{
			"/dev Directory ro live", "/etc/os-release File ro", "/etc/systemd/system Directory ro", "/run/dbus Directory ro", "/run/fairlead-installer DirectoryOrCreate ro", "/run/k3s/containerd Directory ro live", "/usr/bin DirectoryOrCreate rw",
			"/var/lib/fairlead-installer DirectoryOrCreate rw", "/var/lib/rancher/rke2/agent/etc/containerd Directory rw",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			o := order("gvisor", "a")
			c.change(o)
			p := daemonSet(t, o, names.Install).Spec.Template.Spec
			sources := map[string]corev1.Volume{}
			for _, v := range p.Volumes {
				if len(validation.IsDNS1123Label(v.Name)) > 0 || sources[v.Name].Name != "" {
					t.Errorf("volume %s has no name of its own", v.Name)
				}
				sources[v.Name] = v
			}
			var got []string
			for _, m := range p.Containers[0].VolumeMounts {
				h := sources[m.Name].HostPath
				if h == nil {
					continue
				}
				text := h.Path + " " + string(*h.Type) + map[bool]string{true: " ro", false: " rw"}[m.ReadOnly]
				if m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationHostToContainer {
					text += " live"
				}
				if m.MountPath != path.Join("/host", h.Path) {
					t.Errorf("%s is at %s", h.Path, m.MountPath)
				}
				got = append(got, text)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q", got)
			}
			if len(p.Volumes) != len(c.want)+2 || len(p.Containers[0].VolumeMounts) != len(p.Volumes) {
				t.Errorf("and %d more volumes", len(p.Volumes)-len(c.want))
			}
		})
	}
	o := order("gvisor", "a")
	o.Distribution = "docker"
	if _, err := o.DaemonSet(names.Install, "settings"); err == nil {
		t.Error("docker was taken")
	}
}

func TestPodIsConfined(t *testing.T) {
	s := daemonSet(t, order("gvisor", "a"), names.Cleanup).Spec.Template.Spec.Containers[0].SecurityContext
	want := []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "SYS_CHROOT", "SYS_PTRACE"}
	if *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(s.Capabilities.Add, want) || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%+v", s)
	}
}

// A pod that ends in the middle of a change has the time to undo it.
func TestPodHasTimeToUndo(t *testing.T) {
	for _, work := range []names.PhaseOf{names.Install, names.Cleanup} {
		if s := daemonSet(t, order("gvisor", "a"), work).Spec.Template.Spec.TerminationGracePeriodSeconds; s == nil || *s < 4*60 {
			t.Errorf("%v has %v seconds", work, s)
		}
	}
}

// An API server before 1.30 knows no field for AppArmor, and leaves out what it does not
// know: it has to be told by an annotation, and by nothing else.
func TestAppArmorOfOldServers(t *testing.T) {
	o := order("gvisor", "a")
	for _, work := range []names.PhaseOf{names.Install, names.Cleanup} {
		for old, want := range map[bool]string{false: "", true: "unconfined"} {
			o.Cluster.AnnotatesAppArmor = old
			p := daemonSet(t, o, work).Spec.Template
			field := p.Spec.Containers[0].SecurityContext.AppArmorProfile
			got := p.Annotations["container.apparmor.security.beta.kubernetes.io/"+p.Spec.Containers[0].Name]
			if got != want || (field == nil) != old || field != nil && field.Type != corev1.AppArmorProfileTypeUnconfined {
				t.Errorf("%s, old %v: annotation %q, field %v", work, old, got, field)
			}
		}
	}
}

func TestDistribution(t *testing.T) {
	node := func(name, version string, label ...string) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		n.Status.NodeInfo.KubeletVersion = version
		for _, l := range label {
			n.Labels[l] = "true"
		}
		return n
	}
	for name, c := range map[string]struct {
		cri   v1alpha1.CRIName
		nodes []corev1.Node
		want  string
	}{
		"no nodes yet": {"containerd", nil, "containerd"},
		"kubeadm":      {"containerd", []corev1.Node{node("a", "v1.37.2"), node("b", "v1.36.0-gke.1")}, "containerd"},
		"k3s":          {"containerd", []corev1.Node{node("a", "v1.33.4+k3s1")}, "k3s"},
		"rke2":         {"containerd", []corev1.Node{node("a", "v1.33.4+rke2r1"), node("b", "v1.33.5+rke2r2")}, "rke2"},
		"k0s":          {"containerd", []corev1.Node{node("a", "v1.33.4+k0s")}, "k0s"},
		"microk8s":     {"containerd", []corev1.Node{node("a", "v1.33.4", "microk8s.io/cluster")}, "microk8s"},
		"crio":         {"crio", []corev1.Node{node("a", "v1.33.4")}, "crio"},
		"two":          {"containerd", []corev1.Node{node("a", "v1.33.4+k0s"), node("b", "v1.33.4")}, "!node a has k0s and node b has containerd"},
	} {
		got, err := Distribution(c.cri, c.nodes)
		if words, refused := strings.CutPrefix(c.want, "!"); refused {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %s %v", name, got, err)
			}
			continue
		}
		if got != c.want || err != nil {
			t.Errorf("%s: %s %v", name, got, err)
		}
	}
}

// Whoever adds to these arguments has to think of payloads that are on registries and
// know only what is here: docs/operator.md says that payloads come first.
func TestArguments(t *testing.T) {
	o := order("gvisor", "a")
	want := []string{
		"install", "--payload", "/", "--settings", "/etc/fairlead-install/settings.json", "--host", "/host", "--binary-path", "/usr/bin", "--cri", "crio",
		"--restart", "command", "--restart-command", "/bin/reload", "--restart-command", "-f", "--stay",
	}
	if got := o.arguments(names.Install); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := o.arguments(names.Cleanup); !slices.Equal(got, slices.Insert(want, len(want)-1, "--remove")) {
		t.Errorf("%q", got)
	}
}

func TestSettings(t *testing.T) {
	o := order("gvisor", "a")
	first, err := o.SettingsMap()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := o.Payload.Spec.Manifest.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if s, err := payload.DecodeSettings([]byte(first.Data[settingsFile])); err != nil || s.Manifest != manifest {
		t.Errorf("%v %+v is not for manifest %s", err, s, manifest)
	}
	o.Payload.Spec.Manifest.Version = "2"
	if next, err := o.SettingsMap(); err != nil || next.Name == first.Name {
		t.Errorf("%v: the settings of another release are the same", err)
	}
	o.Payload.Spec.Manifest.Version = ""
	o.Settings.Handlers = []string{"runsc"}
	second, err := o.SettingsMap()
	if err != nil {
		t.Fatal(err)
	}
	if first.Name == second.Name || !*first.Immutable {
		t.Error("pods of an older revision see other settings than they were started with")
	}
}

// A pod tells by its revision whether it is of now: whatever is changed is told, and
// what is taken away as well.
func TestRevision(t *testing.T) {
	seen := map[string]string{}
	for name, change := range map[string]func(*Order){
		"as it is":       func(*Order) {},
		"another image":  func(o *Order) { o.Payload.Spec.Image = "registry.example/x@sha256:2" },
		"no pull secret": func(o *Order) { o.Payload.Spec.PullSecrets = nil },
		"another path":   func(o *Order) { o.Runtime.Spec.BinaryPath = "/opt/bin" },
		"handlers":       func(o *Order) { o.Settings.Handlers = []string{"b"} },
	} {
		o := order("gvisor", "a")
		o.Payload.Spec.Manifest.Handlers = []payload.Handler{{Name: "a", CRIO: &payload.CRIOHandler{}}, {Name: "b", CRIO: &payload.CRIOHandler{}}, {Name: "c", Containerd: &payload.ContainerdHandler{}}}
		change(o)
		var last string
		for range 2 {
			ds, err := o.DaemonSet(names.Install, "settings")
			if err != nil {
				t.Fatal(err)
			}
			now := ds.Spec.Template.Annotations[names.AnnotationRevision]
			if last != "" && last != now {
				t.Errorf("%s: the same has another revision", name)
			}
			last = now
		}
		if other, ok := seen[last]; ok || last == "" {
			t.Errorf("%s and %s are both %q", name, other, last)
		}
		seen[last] = name
	}
}

// An installer that is asked for all handlers refuses those of another CRI runtime.
func TestHandlersOfTheRuntime(t *testing.T) {
	o := order("gvisor", "a")
	o.Payload.Spec.Manifest.Handlers = []payload.Handler{{Name: "both", CRIO: &payload.CRIOHandler{}, Containerd: &payload.ContainerdHandler{}}, {Name: "one", Containerd: &payload.ContainerdHandler{}}}
	m, err := o.SettingsMap()
	if err != nil {
		t.Fatal(err)
	}
	s, err := payload.DecodeSettings([]byte(m.Data[settingsFile]))
	if err != nil || !slices.Equal(s.Handlers, []string{"both"}) {
		t.Errorf("%+v %v", s, err)
	}
	o.CRI = v1alpha1.CRIContainerd
	if m, err = o.SettingsMap(); err != nil || strings.Contains(m.Data[settingsFile], "handlers") {
		t.Errorf("%v %v", m, err)
	}
	o.Settings.Handlers = []string{"one"}
	if got := o.Handlers(); !slices.Equal(got, []string{"one"}) {
		t.Errorf("%q", got)
	}
}
