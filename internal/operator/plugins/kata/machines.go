package kata

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.run/internal/operator/plugin"
)

// machines is what the names of a provider's machines tell. What fits none of the three
// has to be tried.
type machines struct {
	whole  *regexp.Regexp // those that have the processor's own virtualisation
	nested *regexp.Regexp // those that pass it on once that is turned on
	never  *regexp.Regexp // those that do not
	choose string         // instead of these; %s is the family
}

// providers are those whose names of machines tell anything.
var providers = map[string]machines{
	// Intel's families of the 8th generation and later ones pass it on; AWS has all
	// machines named by family and size.
	"aws": {
		whole:  regexp.MustCompile(`^[a-z0-9-]+\.metal(-[0-9a-z]+)?$`),
		nested: regexp.MustCompile(`^[a-z]+8i(-flex|[a-z]*)\.[0-9a-z]+$`),
		never:  regexp.MustCompile(`^([a-z]+[0-9]+[a-z]*|[a-z]+-[0-9a-z]+)(-flex)?\.(nano|micro|small|medium|large|[0-9]*xlarge)$`),
		choose: "%s.metal",
	},
	// Of Google's, none with processors of AMD (a d after the number) or Arm (an a), no
	// E2, and none that is optimised for memory:
	// https://cloud.google.com/compute/docs/instances/nested-virtualization/overview
	"gcp": {
		whole:  regexp.MustCompile(`^[a-z0-9-]+-metal$`),
		never:  regexp.MustCompile(`^(e2|[a-z][0-9]+d|[cnt][0-9]+a|m[0-9]+)-[a-z0-9-]+$`),
		nested: regexp.MustCompile(`^(n1|n2|n4|c2|c3|c4)-[a-z0-9-]+$`),
		choose: "n2-standard-4 with nested virtualisation turned on",
	},
	// These rent out whole machines and no others.
	"metal":        {whole: regexp.MustCompile(`.`)},
	"equinixmetal": {whole: regexp.MustCompile(`.`)},
}

// instead is what to choose in the place of a type. Of AWS's families the burstable
// ones have no whole machines.
func (m machines) instead(name string) string {
	family, _, _ := strings.Cut(name, ".")
	switch {
	case !strings.Contains(m.choose, "%s"):
		return "choose one such as " + m.choose
	case strings.HasPrefix(family, "t"):
		return "choose one that ends in .metal"
	}
	return "choose one such as " + fmt.Sprintf(m.choose, family)
}

func (m machines) is(what *regexp.Regexp, name string) bool {
	return what != nil && what.MatchString(name)
}

// Suits goes by what is known of the machines, and else by their names. The last word has
// the /dev/kvm of a node, which the payload asks for.
func (kata) Suits(m plugin.Machine, at *field.Path) (*field.Error, string) {
	switch m.Virtual.Says {
	case plugin.Yes:
		return nil, ""
	case plugin.No:
		return field.Invalid(at, m.Type, fmt.Sprintf("%s, and kata-containers needs machines that can run virtual machines; %s, or take kata-containers off this pool", m.Virtual.By, m.Virtual.Instead)), ""
	case plugin.Unknown:
	}
	fault, warning := byName(m, at)
	if fault == nil && m.Virtual.By != "" {
		warning = fmt.Sprintf("%s: %s; kata-containers cannot run on nodes without /dev/kvm", at, m.Virtual.By)
	}
	return fault, warning
}

// byName has a table for those providers whose names of machines tell it. All others have
// to be tried, and so have those of which nobody says whose they are.
func byName(m plugin.Machine, at *field.Path) (*field.Error, string) {
	table, name := providers[m.Provider], m.Type
	switch {
	case name == "" || table.is(table.whole, name):
		return nil, ""
	case m.Provider == "":
		return nil, fmt.Sprintf("%s: nobody says whose machines of type %s are, so that nothing is known of them; give the provider beside it, such as aws; kata-containers cannot run on nodes without /dev/kvm", at, name)
	case table.is(table.nested, name):
		return nil, fmt.Sprintf("%s: machines of type %s can run virtual machines only if nested virtualisation is turned on for them; kata-containers cannot run on nodes without /dev/kvm", at, name)
	case table.is(table.never, name):
		do := m.Virtual.Instead
		if do == "" {
			do = table.instead(name)
		}
		return field.Invalid(at, name, fmt.Sprintf("machines of type %s cannot run virtual machines, which kata-containers needs; %s, or take kata-containers off this pool", name, do)), ""
	}
	return nil, fmt.Sprintf("%s: nothing is known of machines of type %s; kata-containers cannot run on nodes without /dev/kvm", at, name)
}
