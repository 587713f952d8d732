package runtimeclass_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"fairlead.run/pkg/runtimeclass"
	"fairlead.run/test/classtable"
)

func fieldsOf(faults field.ErrorList) []string {
	var out []string
	for _, f := range faults {
		out = append(out, f.Field)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// stored gives a class what a server would have added to it.
func stored(c *nodev1.RuntimeClass) *nodev1.RuntimeClass {
	c = c.DeepCopy()
	c.UID, c.ResourceVersion = "0f0e", "7"
	return c
}

func TestValidateByTheTable(t *testing.T) {
	for _, c := range classtable.All() {
		t.Run(c.Name, func(t *testing.T) {
			var faults field.ErrorList
			if c.Old == nil {
				faults = runtimeclass.Validate(c.Class)
			} else {
				faults = runtimeclass.ValidateUpdate(stored(c.Class), stored(c.Old))
			}
			if got := fieldsOf(faults); !slices.Equal(got, c.Faults) {
				t.Errorf("refused for %q, want %q:\n%v", got, c.Faults, faults)
			}
		})
	}
}

// The paths of v1alpha1 differ, and nothing else.
func TestValidateV1alpha1ByTheTable(t *testing.T) {
	for _, c := range classtable.All() {
		if c.Old != nil {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			var want []string
			for _, path := range c.Faults {
				switch {
				case path == "handler":
					path = "spec.runtimeHandler"
				case !strings.HasPrefix(path, "metadata."):
					path = "spec." + path
				}
				want = append(want, path)
			}
			slices.Sort(want)
			if got := fieldsOf(runtimeclass.ValidateV1alpha1(runtimeclass.ToV1alpha1(c.Class))); !slices.Equal(got, want) {
				t.Errorf("refused for %q, want %q", got, want)
			}
		})
	}
}

func TestValidateUpdateOfAnOutdatedCopy(t *testing.T) {
	old := stored(full())
	updated := full() // as a file has it, without a version
	updated.UID = old.UID
	if got := fieldsOf(runtimeclass.ValidateUpdate(updated, old)); !slices.Equal(got, []string{"metadata.resourceVersion"}) {
		t.Errorf("refused for %q", got)
	}
}

func TestValidateSaysWhatToDo(t *testing.T) {
	updated := stored(full())
	updated.Handler = "kata"
	for want, faults := range map[string]field.ErrorList{
		"make a class of another name": runtimeclass.ValidateUpdate(updated, stored(full())),
		"name of the runtime handler":  runtimeclass.Validate(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "a"}}),
	} {
		if len(faults) != 1 || !strings.Contains(faults[0].Error(), want) {
			t.Errorf("got %v, want one fault with %q", faults, want)
		}
	}
}

// Faults of maps come in an order of their own, which is the same every time.
func TestValidateAnswersAlike(t *testing.T) {
	for _, c := range classtable.All() {
		if c.Old != nil || len(c.Faults) < 2 {
			continue
		}
		first := runtimeclass.Validate(c.Class)
		for range 20 {
			if again := runtimeclass.Validate(c.Class.DeepCopy()); !reflect.DeepEqual(first, again) {
				t.Fatalf("%s: first\n%v\nand then\n%v", c.Name, first, again)
			}
		}
	}
}
