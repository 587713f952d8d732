package manifest

import (
	"strings"
	"testing"

	"fairlead.run/internal/node/priority"
)

func priorityClass(name, more string) string {
	return "---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: " + name + "}\n" + more
}

// TestPriorityClass gives pods the priorities of their classes, and says what does not fit.
func TestPriorityClass(t *testing.T) {
	gold := priorityClass("gold", "value: 1000\ndescription: d\n")
	for _, tt := range []struct {
		name, text string
		want       int32
		fault      string
	}{
		{"of its own", onePod + "  priorityClassName: gold\n" + gold, 1000, ""},
		{"default", onePod + priorityClass("low", "value: 3\nglobalDefault: true\n"), 3, ""},
		{"of a template", templated("apps/v1", "Deployment", selector, "      priorityClassName: gold\n") + gold, 1000, ""},
		{"of a Job", strings.Replace(templated("batch/v1", "Job", "", never), never, never+"      priorityClassName: gold\n", 1) + gold, 1000, ""},
		{"another value", onePod + "  priorityClassName: gold\n  priority: 3\n" + gold, 0, "web.yaml:1: document 1: Pod default/web: spec.priority: 3 is not the value of its PriorityClass gold, 1000; leave the field out"},
		{"policy", onePod + "  preemptionPolicy: Always\n", 0, `spec.preemptionPolicy: "Always" is not one of`},
		{"two defaults", onePod + priorityClass("a", "value: 3\nglobalDefault: true\n") + priorityClass("b", "value: 2\nglobalDefault: true\n"), 0, "document 2: PriorityClass a: globalDefault: PriorityClass b is the default already"},
		{"too high", priorityClass("a", "value: 1000000001\n"), 0, "value: 1000000001 is more than 1000000000"},
		{"a name of the system's", priorityClass("system-mine", "value: 1\n"), 0, `metadata.name: "system-mine": names that begin with system-`},
		{"the system's with another value", priorityClass("system-node-critical", "value: 1\n"), 0, "the class system-node-critical that every cluster has has the value 2000001000"},
		{"the system's", onePod + "  priorityClassName: system-node-critical\n" + priorityClass("system-node-critical", "value: 2000001000\n"), 2_000_001_000, ""},
		{"unknown policy", priorityClass("a", "value: 1\npreemptionPolicy: Maybe\n"), 0, `preemptionPolicy: "Maybe" is not one of`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, err := decode(tt.text)
			if tt.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fault) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || len(o.Pods) != 1 || priority.Of(o.Pods[0].Pod) != tt.want {
				t.Errorf("%v, %+v", err, o)
			}
		})
	}
}

// TestStaticPriorityClass leaves classes of static pods to their cluster.
func TestStaticPriorityClass(t *testing.T) {
	f, err := DecodeStatic(Source{"web.yaml", []byte(onePod + "  priorityClassName: gold\n")})
	if err != nil {
		t.Fatal(err)
	}
	first, _ := Merge([]*File{f})
	all, _ := MergeAll([]string{"file"}, []*Objects{first})
	if lost := all.References(); len(lost) > 0 || len(all.Pods) != 1 {
		t.Errorf("%v", lost)
	}
}
