package oci

import (
	"testing"

	monitorv1 "fairlead.run/api/monitor/v1"
)

func TestTakeOfATrial(t *testing.T) {
	s := &seen{wanted: inside, lacks: map[string]error{}}
	s.take("seccomp yes\nrecursive-read-only-mounts no: it can be written\nword\n")
	if s.lacks[monitorv1.TrialSeccomp] != nil {
		t.Error("seccomp was seen")
	}
	if err := s.lacks[monitorv1.TrialReadOnly]; err == nil || err.Error() != "it can be written" {
		t.Errorf("read-only mounts: %v", err)
	}
	if s.lacks[monitorv1.TrialDevice] == nil {
		t.Error("nothing was said of devices")
	}
}

// A runtime that fails on one feature works without it.
func TestOneFeatureFails(t *testing.T) {
	d := testDriver(t)
	def := fakeRuntime(t, `case "$1" in --version) echo "fakerun version 1.2.3"; exit;; features) exit 1;; delete) fail "container does not exist";; esac
bundle "$@" | grep -q '"seccomp"' && fail "seccomp: no such thing"
bundle "$@" | grep -q '"rro"' && echo recursive-read-only-mounts no: it is writable
bundle "$@" | grep -q '"/dev/fairlead-trial"' && echo devices yes
ran "$@"`)
	got := d.Probe(t.Context(), def)
	if f := got.Features; !got.Ready || f.Seccomp || f.RecursiveReadOnlyMounts || !f.Devices || f.Resize || f.Stats {
		t.Errorf("%+v", got)
	}
}
