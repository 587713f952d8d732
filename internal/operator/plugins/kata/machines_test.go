package kata

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.run/internal/operator/plugin"
)

func TestMachines(t *testing.T) {
	const fine, turnedOn, unknown, whose, no = "", "only if nested virtualisation is turned on", "nothing is known of", "nobody says whose", "cannot run virtual machines"
	for what, want := range map[string]string{
		"aws m5.metal": fine, "aws u-6tb1.metal": fine, "aws c7g.metal-48xl": fine, "aws ": fine,
		"aws m5.large": no, "aws m7i-flex.large": no, "aws u-3tb1.56xlarge": no, "aws t3.nano": no,
		"aws m8i.large": turnedOn, "aws c8i-flex.4xlarge": turnedOn, "aws r8id.xlarge": turnedOn,
		"aws n2-standard-4": unknown,
		// By Google's table: AMD, Arm, E2, and what is optimised for memory.
		"gcp c3-standard-192-metal": fine, "gcp x4-megamem-960-metal": fine, "gcp m4-ultramem-224-metal": fine,
		"gcp e2-medium": no, "gcp e2-custom-4-8192": no, "gcp n2d-standard-4": no, "gcp t2d-standard-1": no, "gcp c3d-highmem-8": no, "gcp c4d-standard-96-lssd": no,
		"gcp t2a-standard-1": no, "gcp c4a-standard-4": no, "gcp n4a-standard-4": no, "gcp m1-ultramem-40": no, "gcp m3-megamem-64": no,
		"gcp n1-standard-4": turnedOn, "gcp n2-custom-6-3072": turnedOn, "gcp c3-standard-4-lssd": turnedOn, "gcp n4-highcpu-2": turnedOn,
		"gcp a2-highgpu-1g": unknown, "gcp f1-micro": unknown, "gcp m5.large": unknown, "gcp z3-highmem-88": unknown,
		"metal c1-xlarge-x86": fine, "equinixmetal m3.small.x86": fine,
		"azure Standard_D4s_v5": unknown, "openstack m1.large": unknown, "alicloud ecs.g7.large": unknown,
		" m5.large": whose, " e2-medium": whose, " ": fine,
	} {
		provider, name, _ := strings.Cut(what, " ")
		fault, warning := New().Suits(plugin.Machine{Type: name, Provider: provider}, field.NewPath("machine"))
		said := warning
		if fault != nil {
			said = fault.Error()
		}
		if (fault != nil) != (want == no) || want == "" && said != "" || !strings.Contains(said, want) {
			t.Errorf("%s: %q, not about %q", what, said, want)
		}
		if said != "" && (!strings.HasPrefix(said, "machine: ") || strings.Contains(said, "%!")) {
			t.Errorf("%s: %q", what, said)
		}
	}
	// What somebody says of the machines goes before their names.
	for _, name := range []string{"m5.large", "m5.metal", "m8i.large", "x"} {
		m := plugin.Machine{Type: name, Provider: "aws", Virtual: plugin.Virtual{Says: plugin.Yes}}
		if fault, warning := New().Suits(m, field.NewPath("machine")); fault != nil || warning != "" {
			t.Errorf("%s: %v %s", name, fault, warning)
		}
		m.Virtual = plugin.Virtual{Says: plugin.No, By: "the profile says no", Instead: "choose b"}
		want := `machine: Invalid value: "` + name + `": the profile says no, and kata-containers needs machines that can run virtual machines; choose b, or take kata-containers off this pool`
		if fault, warning := New().Suits(m, field.NewPath("machine")); fault == nil || fault.Error() != want || warning != "" {
			t.Errorf("%s: %v %s", name, fault, warning)
		}
	}
	// What makes it doubtful is told in the place of what the name leaves open, and refuses
	// nothing.
	for _, name := range []string{"", "m5.metal", "m8i.large", "x"} {
		m := plugin.Machine{Type: name, Provider: "aws", Virtual: plugin.Virtual{By: "somebody doubts it"}}
		fault, warning := New().Suits(m, field.NewPath("machine"))
		if fault != nil || warning != "machine: somebody doubts it; kata-containers cannot run on nodes without /dev/kvm" {
			t.Errorf("%s: %v %s", name, fault, warning)
		}
	}
	doubted := plugin.Machine{Type: "r6a.large", Provider: "aws", Virtual: plugin.Virtual{By: "somebody doubts it"}}
	if fault, warning := New().Suits(doubted, field.NewPath("machine")); fault == nil || warning != "" {
		t.Errorf("%v %s", fault, warning)
	}
	burstable, _ := New().Suits(plugin.Machine{Type: "t3.large", Provider: "aws"}, field.NewPath("machine"))
	if burstable == nil || strings.Contains(burstable.Error(), "t3.metal") || !strings.Contains(burstable.Error(), "choose one that ends in .metal") {
		t.Errorf("there is none of that name: %v", burstable)
	}
	told, _ := New().Suits(plugin.Machine{Type: "r6a.large", Provider: "aws", Virtual: plugin.Virtual{Instead: "choose b"}}, field.NewPath("machine"))
	if told == nil || !strings.Contains(told.Error(), "needs; choose b, or take") {
		t.Errorf("%v", told)
	}
	fault, _ := New().Suits(plugin.Machine{Type: "r6a.large", Provider: "aws"}, field.NewPath("machine"))
	if fault == nil || !strings.Contains(fault.Error(), "choose one such as r6a.metal") {
		t.Errorf("%v", fault)
	}
}
