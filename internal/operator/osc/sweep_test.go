package osc

import (
	"encoding/json"
	"testing"
)

// Entries of others are theirs, also those that take something away.
func TestSweepLeavesOthersAlone(t *testing.T) {
	table := func(op, name string) string {
		return `{"op":"` + op + `","path":["io.containerd.grpc.v1.cri","containerd","runtimes","` + name + `"]`
	}
	for name, c := range map[string]struct{ notes, plugins, want string }{
		"nothing":          {``, `[]`, `[]`},
		"gone":             {`"operator.fairlead.run/removed":"b,a"`, `[]`, `[` + table("remove", "a") + `},` + table("remove", "b") + `}]`},
		"there":            {`"operator.fairlead.run/removed":"a"`, `[` + table("add", "a") + `,"values":{"x":1}}]`, `[` + table("add", "a") + `,"values":{"x":1}}]`},
		"said by others":   {`"operator.fairlead.run/removed":"a"`, `[` + table("remove", "a") + `}]`, `[` + table("remove", "a") + `}]`},
		"somebody's":       {``, `[` + table("remove", "a") + `}]`, `[` + table("remove", "a") + `}]`},
		"not even a name":  {`"operator.fairlead.run/removed":",,"`, `[]`, `[]`},
		"another's plugin": {`"operator.fairlead.run/removed":"a"`, `[{"path":["x"]}]`, `[{"path":["x"]},` + table("remove", "a") + `}]`},
	} {
		var object map[string]any
		text := `{"metadata":{"annotations":{` + c.notes + `}},"spec":{"criConfig":{"containerd":{"plugins":` + c.plugins + `}}}}`
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			Sweep(object)
			got, _ := json.Marshal(containerdOf(object["spec"].(Entry))["plugins"])
			if string(got) != c.want {
				t.Errorf("%s: %s", name, got)
			}
		}
	}
	for _, bare := range []Entry{{}, {"spec": Entry{}}, {"metadata": Entry{"annotations": Entry{Removed: "a"}}, "spec": Entry{"criConfig": Entry{}}}} {
		Sweep(bare)
	}
}

// One that takes a table away stays where it stands, whichever type puts its own in.
func TestWhatGoesComesToRest(t *testing.T) {
	var had map[string]any
	if err := json.Unmarshal([]byte(`{"spec":{"criConfig":{"containerd":{"plugins":[
		{"op":"add","path":["io.containerd.grpc.v1.cri","containerd","runtimes","runsc"],"values":{"runtime_type":"/usr/bin/gvisor/1/shim"}},
		{"op":"remove","path":["io.containerd.grpc.v1.cri","containerd","runtimes","theirs"]}]}}}}`), &had); err != nil {
		t.Fatal(err)
	}
	kata := Entries{
		Base: "/usr/bin/kata", Handlers: []string{"kata"}, Files: []any{Entry{"path": "/usr/bin/kata/1/shim"}},
		Plugins: []any{Entry{"op": "add", "path": list(append(append([]string{}, runtimes...), "kata")), "values": Entry{"runtime_type": "/usr/bin/kata/1/shim"}}},
	}
	turn := func() string {
		for _, with := range []Entries{{Base: "/usr/bin/gvisor", Handlers: []string{"runsc"}}, kata} {
			if err := Put(had, with); err != nil {
				t.Fatal(err)
			}
		}
		text, _ := json.Marshal(had)
		return string(text)
	}
	first := turn()
	if second := turn(); second != first {
		t.Errorf("%s becomes %s", first, second)
	}
	all := containerdOf(had["spec"].(Entry))["plugins"].([]any)
	if len(all) != 3 || !goes(all[0].(Entry)) || handler(all[0].(Entry)) != "theirs" || handler(all[1].(Entry)) != "runsc" || handler(all[2].(Entry)) != "kata" {
		t.Errorf("%v", all)
	}
}
