package policy_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.run/pkg/runtimeclass/policy"
)

func TestValidateClass(t *testing.T) {
	for name, tt := range map[string]struct {
		class []classOption
		says  string
	}{
		"nothing":     {nil, ""},
		"everything":  {[]classOption{isolating("vm"), saying(policy.AnnotationDefault, "true"), saying(policy.AnnotationLacks, "hostNetwork, checkpoint"), saying(policy.AnnotationSupports, "userNamespaces")}, ""},
		"empty lists": {[]classOption{saying(policy.AnnotationLacks, ""), saying(policy.AnnotationSupports, " ")}, ""},
		"isolation":   {[]classOption{isolating("VM")}, "metadata.labels[fairlead.run/isolation]"},
		"default":     {[]classOption{saying(policy.AnnotationDefault, "yes")}, "metadata.annotations[fairlead.run/is-default-class]"},
		"a list":      {[]classOption{saying(policy.AnnotationLacks, "host network")}, "metadata.annotations[fairlead.run/lacks]"},
		"both lists":  {[]classOption{saying(policy.AnnotationLacks, "hostNetwork"), saying(policy.AnnotationSupports, "host-network")}, "host-network is in fairlead.run/lacks, too"},
	} {
		t.Run(name, func(t *testing.T) {
			faults := policy.ValidateClass(class("x", tt.class...))
			if (len(faults) > 0) != (tt.says != "") || tt.says != "" && !strings.Contains(faults.ToAggregate().Error(), tt.says) {
				t.Errorf("got %v, want one that says %q", faults, tt.says)
			}
		})
	}
}

func TestDefaultOf(t *testing.T) {
	old := func(c *nodev1.RuntimeClass) {
		c.CreationTimestamp = metav1.NewTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	}
	young := func(c *nodev1.RuntimeClass) {
		c.CreationTimestamp = metav1.NewTime(time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC))
	}
	is := saying(policy.AnnotationDefault, "true")
	if c, all := policy.DefaultOf([]*nodev1.RuntimeClass{class("a"), class("b", saying(policy.AnnotationDefault, "false"))}); c != nil || all != nil {
		t.Errorf("found %v, %v", c, all)
	}
	c, all := policy.DefaultOf([]*nodev1.RuntimeClass{class("a", is, young), class("c", is, old), class("b", is, old), class("z", old)})
	if c == nil || c.Name != "b" || !slices.Equal(all, []string{"b", "c", "a"}) {
		t.Errorf("found %v of %v", c, all)
	}
}
