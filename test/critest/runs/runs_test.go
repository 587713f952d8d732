package runs

import (
	"errors"
	"path/filepath"
	"reflect"
	"testing"

	"fairlead.run/test/e2e/results"
)

func TestReadReadsWhatWriteWrote(t *testing.T) {
	want := Run{
		Suite: "v1.2.3", Runtime: Fairlead, Handler: "crun", Cgroup: "v2", NRITimeout: "0s", Programs: []string{"a", "b"}, Kernel: "6.1",
		Specs: results.List{{Name: "x", State: results.Skipped, Seconds: 1.5, Why: "nothing there"}},
	}
	path := filepath.Join(t.TempDir(), want.File())
	if err := want.Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v and %v, want %+v", got, err, want)
	}
	if filepath.Base(path) != "fairlead-crun-v2.json" {
		t.Errorf("the file is %s", path)
	}
}

// Parts of the suite add up, but never those of different builds.
func TestAdd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.json")
	run := func(program string, specs ...results.Spec) Run {
		return Run{Suite: "v1", Programs: []string{program}, Specs: specs}
	}
	spec := func(name string, s results.State) results.Spec { return results.Spec{Name: name, State: s} }
	for _, r := range []Run{
		run("a", spec("x", results.Failed), spec("y", results.Passed)),
		run("a", spec("x", results.Passed), spec("z", results.Skipped)),
	} {
		if err := r.Add(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := run("b", spec("x", results.Failed)).Add(path); !errors.Is(err, ErrOther) {
		t.Errorf("a run of another program was added: %v", err)
	}
	want := run("a", spec("x", results.Passed), spec("y", results.Passed), spec("z", results.Skipped))
	if got, err := Read(path); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v and %v, want %+v", got, err, want)
	}
}

func TestCausesOf(t *testing.T) {
	c := Causes{"a": {"containerd crun": "because"}, "b": {"": "always"}, "c": {"v1": "old"}}
	for _, x := range []struct {
		spec, want string
		run        Run
	}{
		{"a", "because", Run{Runtime: Containerd, Handler: "crun", Cgroup: "v2"}},
		{"a", "", Run{Runtime: Containerd, Handler: "runc", Cgroup: "v2"}},
		{"a", "", Run{Runtime: Fairlead, Handler: "crun", Cgroup: "v2"}},
		{"b", "always", Run{Runtime: Fairlead, Handler: "crun", Cgroup: "v2"}},
		{"c", "old", Run{Runtime: Fairlead, Handler: "crun", Cgroup: "v1"}},
		{"c", "", Run{Runtime: Fairlead, Handler: "crun", Cgroup: "v2"}},
		{"d", "", Run{Runtime: Fairlead, Handler: "crun", Cgroup: "v2"}},
	} {
		if got := c.Of(x.spec, x.run); got != x.want {
			t.Errorf("the cause of %s in %s is %q, want %q", x.spec, x.run, got, x.want)
		}
	}
}
