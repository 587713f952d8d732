package main

import (
	"errors"
	"slices"
	"testing"

	"fairlead.run/test/critest/runs"
	"fairlead.run/test/e2e/results"
)

func TestLinked(t *testing.T) {
	got := linked("\tlinux-vdso.so.1 (0x00007ffe)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007fa2)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007fa2)\n")
	if want := []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}; !slices.Equal(got, want) {
		t.Errorf("linked: %q, want %q", got, want)
	}
}

// A run is good if everything that has not passed has a cause that is known.
func TestVerdict(t *testing.T) {
	spec := func(name string, s results.State) results.Spec { return results.Spec{Name: name, State: s} }
	causes := runs.Causes{"known": {"v2": "the image"}, "elsewhere": {"v1": "the kernel"}}
	suite := errors.New("exit status 1")
	for _, c := range []struct {
		name  string
		specs results.List
		suite error
		good  bool
	}{
		{"all passed", results.List{spec("a", results.Passed)}, nil, true},
		{"known cause", results.List{spec("a", results.Passed), spec("known", results.Failed)}, suite, true},
		{"cause of other runs", results.List{spec("a", results.Passed), spec("elsewhere", results.Skipped)}, nil, false},
		{"unknown cause", results.List{spec("a", results.Passed), spec("b", results.Failed)}, suite, false},
		{"skipped", results.List{spec("a", results.Passed), spec("b", results.Skipped)}, nil, false},
		{"nothing ran", nil, nil, false},
		{"cut off", results.List{spec("a", results.Passed)}, suite, false},
	} {
		if err := verdict(runs.Run{Cgroup: "v2", Specs: c.specs}, causes, c.suite); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Specs tell these images apart by their digests, or by their users.
func TestStandInsDiffer(t *testing.T) {
	seen := map[string]string{}
	for name, spec := range standIns(nil, []byte("program")) {
		key := spec.Config.Env[1]
		if seen[key] != "" {
			t.Errorf("%s and %s are one image", name, seen[key])
		}
		seen[key] = name
	}
	if len(seen) < 15 {
		t.Errorf("%d images, want all that the specs pull", len(seen))
	}
}
