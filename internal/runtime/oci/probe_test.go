package oci

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go/features"

	"fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/pod"
	"fairlead.run/internal/runtime"
)

// fakeRuntime is a shell script in the place of a runtime. body decides by $1,
// the subcommand, after the flags were taken away.
func fakeRuntime(t *testing.T, body string) runtime.Definition {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fakerun")
	head := `#!/bin/sh
while :; do case "$1" in --root|--log|--log-format) shift 2;; --systemd-cgroup) shift;; *) break;; esac; done
ran() { bundle "$@" | sed 's/.*"trial","\([0-9a-f]*\)".*/\1/'; cat >/dev/null; exit; }
fail() { echo "{\"level\":\"error\",\"msg\":\"$1\"}" >&2; exit 1; }
bundle() { while [ $# -gt 0 ]; do [ "$1" = --bundle ] && cat "$2/config.json"; shift; done; }
`
	if err := os.WriteFile(path, []byte(head+body), 0o755); err != nil {
		t.Fatal(err)
	}
	return runtime.Definition{Name: "fake", Handler: v1alpha1.Handler{Path: path}}
}

func testDriver(t *testing.T) *Driver {
	t.Helper()
	d, err := New(Config{StateDir: t.TempDir(), Monitor: &fakeMonitor{}, StandIn: "/fairlead-monitor"})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestProbe(t *testing.T) {
	const version = `case "$1" in --version) echo "fakerun version 1.2.3"; exit;; features) exit 1;; delete) fail "container does not exist";; esac
`
	tests := map[string]struct {
		body string
		want pod.HandlerInfo
	}{
		"works":               {version + `ran "$@"`, pod.HandlerInfo{Ready: true, Version: "1.2.3", OCI: "1.1.0"}},
		"old OCI version":     {version + `bundle "$@" | grep -q '"1.0.2"' && ran "$@"; fail "unknown version specified"`, pod.HandlerInfo{Ready: true, Version: "1.2.3", OCI: "1.0.2"}},
		"no OCI version":      {version + `fail "unknown version specified"`, pod.HandlerInfo{Version: "1.2.3", Reason: "it accepts none of the OCI versions 1.1.0, 1.0.2"}},
		"fails":               {version + `fail "the moon is in the wrong phase"`, pod.HandlerInfo{Version: "1.2.3", Reason: "a container on trial fails: the moon is in the wrong phase"}},
		"says it worked":      {version + `exit 0`, pod.HandlerInfo{Version: "1.2.3", Reason: "whose program never ran"}},
		"says another word":   {version + `echo fairlead; exit 0`, pod.HandlerInfo{Version: "1.2.3", Reason: "whose program never ran"}},
		"fails at the end":    {version + `bundle "$@" | sed 's/.*"trial","\([0-9a-f]*\)".*/\1/'; fail "it is stuck"`, pod.HandlerInfo{Version: "1.2.3", Reason: "it is stuck"}},
		"no runtime":          {`echo hello`, pod.HandlerInfo{Reason: `is no OCI runtime: --version prints "hello"`}},
		"version fails":       {`fail "no way"`, pod.HandlerInfo{Reason: "--version fails: no way"}},
		"hangs":               {version + "sleep 1000 & wait", pod.HandlerInfo{Version: "1.2.3", Reason: "did not end in time"}},
		"prints 50 MB":        {version + `head -c 50000000 /dev/zero >&2; echo >&2; ran "$@"`, pod.HandlerInfo{Ready: true, Version: "1.2.3", OCI: "1.1.0"}},
		"crun in hybrid mode": {version + `fail "cgroups in hybrid mode not supported, drop all controllers from cgroupv2"`, pod.HandlerInfo{Version: "1.2.3", Reason: "cgroups in hybrid mode not supported"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := testDriver(t)
			limit := time.Minute
			if name == "hangs" {
				limit = 2 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			got := d.Probe(ctx, fakeRuntime(t, test.body))
			if got.Ready != test.want.Ready || got.Version != test.want.Version || got.OCI != test.want.OCI && got.Ready {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if !strings.Contains(got.Reason, test.want.Reason) || (got.Reason == "") != got.Ready {
				t.Errorf("reason %q, want %q", got.Reason, test.want.Reason)
			}
			if left, _ := filepath.Glob(filepath.Join(d.cfg.StateDir, "trials", "*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestProbeOfAnOldVersion(t *testing.T) {
	d := testDriver(t)
	def := fakeRuntime(t, `case "$1" in --version) echo "runc version 1.1.5+ds1"; exit;; features) exit 1;; delete) fail "container does not exist";; esac
ran "$@"`)
	got := d.Probe(t.Context(), def)
	if !got.Ready || len(got.Flaws) == 0 || got.Flaws[0].ID != "CVE-2024-21626" || !slices.Equal(got.Flaws[0].MendedIn, []string{"1.1.12"}) {
		t.Errorf("without a floor: %+v", got)
	}
	def.MinVersion = "1.1.6"
	if got := d.Probe(t.Context(), def); got.Ready || !strings.HasPrefix(got.Reason, "it is runc 1.1.5+ds1, and handlers.fake.min_version wants 1.1.6 (by its version it has CVE-2024-21626, ") {
		t.Errorf("below the floor: %+v", got)
	}
	def.MinVersion = "1.1.5"
	if got := d.Probe(t.Context(), def); !got.Ready {
		t.Errorf("on the floor: %+v", got)
	}
}

func TestProbeWithoutProgram(t *testing.T) {
	d := testDriver(t)
	got := d.Probe(t.Context(), runtime.Definition{Name: "crun", Search: []string{"/no"}})
	if got.Ready || got.Reason != "there is no program crun in /no; install it, or set handlers.crun.path" {
		t.Errorf("got %+v", got)
	}
}

func TestFingerprintSeesAnotherProgram(t *testing.T) {
	d := testDriver(t)
	def := fakeRuntime(t, "exit 0")
	before := d.Fingerprint(def)
	if d.Fingerprint(def) != before {
		t.Error("it changes by itself")
	}
	if err := os.WriteFile(def.Path, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if d.Fingerprint(def) == before {
		t.Error("an upgrade goes unnoticed")
	}
	if err := os.Remove(def.Path); err != nil {
		t.Fatal(err)
	}
	if d.Fingerprint(def) == before {
		t.Error("a removal goes unnoticed")
	}
}

func TestParseVersion(t *testing.T) {
	v, err := parseVersion("crun", []byte("crun version 1.8.1\ncommit: f8a\nrundir: /run/crun\nspec: 1.0.0\n+SYSTEMD +SELINUX +SECCOMP -X\n"))
	if err != nil || v.Name != "crun" || v.Number != "1.8.1" || !strings.Contains(v.Flags, "+SECCOMP") {
		t.Errorf("got %+v (%v)", v, err)
	}
	v, err = parseVersion("runc", []byte("runc version 1.1.5+ds1\ncommit: 1\nspec: 1.0.2-dev\n"))
	if err != nil || v.Name != "runc" || v.Number != "1.1.5+ds1" || v.Flags != "" {
		t.Errorf("got %+v (%v)", v, err)
	}
}

func TestCandidates(t *testing.T) {
	for most, want := range map[string]string{"": "1.1.0", "1.0.2-dev": "1.0.2-dev", "1.0.1": "1.0.1", "1.1.0": "1.1.0", "1.2.0+dev": "1.1.0", "2.0.0": "1.1.0"} {
		if got := candidates(&features.Features{OCIVersionMax: most})[0]; got != want {
			t.Errorf("for %q it is %s, want %s", most, got, want)
		}
	}
	if got := candidates(nil); !slices.Equal(got, []string{"1.1.0", "1.0.2"}) {
		t.Errorf("without features: %v", got)
	}
}

// A runtime that prints without end is killed for it, and nobody keeps what it
// prints.
func TestProbeOfAFlood(t *testing.T) {
	d := testDriver(t)
	got := d.Probe(t.Context(), fakeRuntime(t, `case "$1" in --version) echo "fakerun version 1.2.3"; exit;; delete) fail "container does not exist";; esac
exec cat /dev/zero >&2`))
	if got.Ready || !strings.Contains(got.Reason, "was killed: it printed more than 64 MiB") {
		t.Errorf("%+v", got)
	}
	if _, readsFrom := any(&tail{}).(io.ReaderFrom); readsFrom {
		t.Error("what is written to a tail goes past its limit")
	}
}
