package install

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

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
		Type: typ, CRI: "crio", Restart: v1alpha1.Restart{Method: "command", Command: []string{"/bin/reload", "-f"}}, Account: "fairlead-installer",
		Payload: &v1alpha1.RuntimePayload{Spec: v1alpha1.RuntimePayloadSpec{Image: "registry.example/x@sha256:1", PullSecrets: []string{"pull"}}},
	}
}

// No two DaemonSets may think that a pod is theirs.
func TestSelectorsAreDisjoint(t *testing.T) {
	type made struct {
		selector labels.Selector
		labels   labels.Set
		name     string
	}
	var all []made
	for _, o := range []*Order{order("gvisor", "a"), order("gvisor", "b"), order("kata-containers", "a"), order("gvisor", strings.Repeat("a", 40))} {
		for _, work := range []names.PhaseOf{names.Install, names.Cleanup} {
			ds := o.DaemonSet(work, "settings")
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
	p := order("gvisor", "a").DaemonSet(names.Install, "settings").Spec.Template.Spec
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

func TestArguments(t *testing.T) {
	o := order("gvisor", "a")
	want := []string{
		"install", "--payload", "/", "--settings", "/etc/fairlead-install/settings.json", "--host", "/host", "--binary-path", "/usr/bin", "--cri", "crio",
		"--restart", "command", "--restart-command", "/bin/reload", "--restart-command", "-f", "--stay",
	}
	if got := o.arguments(names.Install); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := o.arguments(names.Cleanup); !slices.Contains(got, "--remove") {
		t.Errorf("%q", got)
	}
}

func TestSettings(t *testing.T) {
	o := order("gvisor", "a")
	first, err := o.SettingsMap()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := payload.DecodeSettings([]byte(first.Data[settingsFile])); err != nil {
		t.Error(err)
	}
	o.Settings.Handlers = []string{"runsc"}
	second, err := o.SettingsMap()
	if err != nil {
		t.Fatal(err)
	}
	if first.Name == second.Name || !*first.Immutable {
		t.Error("pods of an older revision see other settings than they were started with")
	}
}
