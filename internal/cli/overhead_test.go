package cli

import (
	"bytes"
	"strings"
	"testing"

	nodev1 "k8s.io/api/node/v1"
	"sigs.k8s.io/yaml"

	adminv1 "fairlead.run/api/admin/v1"
)

func TestPodFixedIsRoundedUp(t *testing.T) {
	for name, test := range map[string]struct {
		of   adminv1.Overhead
		want string
	}{
		"nothing":         {adminv1.Overhead{}, " "},
		"a byte":          {adminv1.Overhead{MemoryP99: 1}, " 1Mi"},
		"whole MiB":       {adminv1.Overhead{MemoryP99: 3 << 20}, " 3Mi"},
		"a byte more":     {adminv1.Overhead{MemoryP99: 3<<20 + 1}, " 4Mi"},
		"the monitor's":   {adminv1.Overhead{MemoryP99: 3 << 20, MonitorMemory: 100, CPUP99: 1, MonitorCPU: 0.5}, "2m 4Mi"},
		"noise":           {adminv1.Overhead{CPUP99: 0.09}, " "},
		"hardly anything": {adminv1.Overhead{CPUP99: 0.1}, "1m "},
		"a processor":     {adminv1.Overhead{CPUP99: 1000}, "1 "},
		"of the 99th":     {adminv1.Overhead{MemoryP50: 9 << 30, CPUP50: 400}, " "},
	} {
		fixed := podFixed(&test.of)
		got := ""
		if q, ok := fixed["cpu"]; ok {
			got = q.String()
		}
		got += " "
		if q, ok := fixed["memory"]; ok {
			got += q.String()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestRuntimeClassesAreReadyToApply(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: &out}
	err := a.runtimeClasses([]adminv1.Overhead{
		{Name: "gvisor", Pods: 2, MemoryP99: 30 << 20, CPUP99: 1.5}, {Name: "gone", Reason: "it does not work"}, {Name: "runc", Pods: 2},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []nodev1.RuntimeClass
	for _, text := range strings.Split(out.String(), "---\n")[1:] {
		var class nodev1.RuntimeClass
		if err := yaml.UnmarshalStrict([]byte(text), &class); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		got = append(got, class)
	}
	if len(got) != 2 || got[0].Handler != "gvisor" || got[1].Handler != "runc" || got[1].Overhead != nil {
		t.Fatalf("got %s", out.String())
	}
	if cpu, memory := got[0].Overhead.PodFixed["cpu"], got[0].Overhead.PodFixed["memory"]; cpu.String() != "2m" || memory.String() != "30Mi" {
		t.Errorf("got %s", out.String())
	}
	if strings.Contains(out.String(), "null") || strings.Contains(out.String(), "{}") {
		t.Errorf("there is something empty in\n%s", out.String())
	}
}
