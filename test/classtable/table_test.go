package classtable

import (
	"slices"
	"testing"
)

func TestTheTableIsSound(t *testing.T) {
	all := All()
	if len(all) < 150 {
		t.Errorf("there are %d cases, too few to say that all answers are the same", len(all))
	}
	seen := map[string]bool{}
	accepted := 0
	for _, c := range all {
		if seen[c.Name] {
			t.Errorf("%s: is there twice", c.Name)
		}
		seen[c.Name] = true
		if !slices.IsSorted(c.Faults) || len(slices.Compact(slices.Clone(c.Faults))) != len(c.Faults) {
			t.Errorf("%s: the faults are not sorted, or not each there once: %q", c.Name, c.Faults)
		}
		if len(c.Faults) == 0 {
			accepted++
		}
	}
	if accepted < 50 || len(all)-accepted < 80 {
		t.Errorf("of %d cases %d are accepted, so one answer is hardly tested", len(all), accepted)
	}
}

func TestAtServer(t *testing.T) {
	c := Case{Faults: []string{"handler", "metadata.ownerReferences[0].kind", "metadata.ownerReferences[1]", "overhead", "overhead.podFixed[cpu]", "scheduling.nodeSelector[a]", "scheduling.nodeSelector[b]"}}
	want := []string{"handler", "metadata.ownerReferences", "metadata.ownerReferences.kind", "overhead", "overhead.limits[cpu]", "scheduling.nodeSelector"}
	if got := c.AtServer(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if c.Mended = true; len(c.AtServer()) > 0 {
		t.Errorf("what the server mends is refused for %q", c.AtServer())
	}
}

func TestThePoliciesAreSound(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Policies() {
		if seen[c.Name] {
			t.Errorf("%s: is there twice", c.Name)
		}
		seen[c.Name] = true
		if !slices.IsSorted(c.Faults) || !slices.IsSorted(c.AtServer()) {
			t.Errorf("%s: the faults are not sorted: %q, %q", c.Name, c.Faults, c.AtServer())
		}
	}
}
