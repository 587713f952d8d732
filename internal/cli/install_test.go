package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	payload "fairlead.run/api/payload/v1alpha1"
	"fairlead.run/internal/installer"
)

// probe is what the readiness probe of a process with --stay says.
func probe(t *testing.T, f *installFlags) (code int, said string) {
	t.Helper()
	var out bytes.Buffer
	a := &app{out: io.Discard, err: &out}
	code = a.run(t.Context(), []string{"install", "--ready", "--ready-file", f.readyFile})
	return code, out.String()
}

// Whoever made the command line is told what is wrong with it, also if that is an
// operator that is newer than this program.
func TestWrongFlagsLeaveAResult(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"a flag of a newer release": {[]string{"--payload", "/", "--newer"}, "unknown flag: --newer"},
		"a value":                   {[]string{"--wait", "long"}, "--wait"},
		"no payload":                {nil, "--payload is missing"},
		"too many settings":         {[]string{"--payload", "/", "--settings", "-", "--settings", "-"}, "more --settings"},
		"the format of the log":     {[]string{"--payload", "/", "--log-format", "xml"}, "xml"},
	} {
		t.Run(name, func(t *testing.T) {
			at := filepath.Join(t.TempDir(), "log")
			a := &app{out: io.Discard, err: io.Discard}
			if code := a.run(t.Context(), append([]string{"install", "--termination-log", at}, c.args...)); code != exitUsage {
				t.Errorf("exit code %d", code)
			}
			text, err := os.ReadFile(at)
			if err != nil {
				t.Fatal(err)
			}
			r, err := payload.DecodeResult(text)
			if err != nil || r.State != payload.Refused || r.Reason != payload.ConfigurationProblem || !strings.Contains(r.Message, c.says) || r.Served != nil {
				t.Errorf("%v %+v", err, r)
			}
		})
	}
	at := filepath.Join(t.TempDir(), "log")
	a := &app{out: io.Discard, err: io.Discard}
	if code := a.run(t.Context(), []string{"install", "--termination-log", at, "--ready", "--newer"}); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	if _, err := os.Stat(at); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a probe left a result: %v", err)
	}
}

// Events make one probe fail, and with all that there is to tell.
func TestProbeTellsEventsOnce(t *testing.T) {
	f := &installFlags{readyFile: filepath.Join(t.TempDir(), "run", "ready")}
	if code, said := probe(t, f); code == 0 || !strings.Contains(said, "not ready") {
		t.Errorf("before it is ready: %d %q", code, said)
	}
	if err := f.tellReady(true); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if code, said := probe(t, f); code != 0 {
			t.Fatalf("%d %q", code, said)
		}
		for _, text := range []string{"the first", "the second"} {
			if err := f.tellEvent(text); err != nil {
				t.Fatal(err)
			}
		}
		if code, said := probe(t, f); code == 0 || !strings.Contains(said, "the first") || !strings.Contains(said, "the second") {
			t.Errorf("with events: %d %q", code, said)
		}
	}
	if code, said := probe(t, f); code != 0 {
		t.Errorf("afterwards: %d %q", code, said)
	}
}

// Probes and events come at the same time, and each event is told by exactly one probe.
func TestNoEventIsLostToAProbe(t *testing.T) {
	f := &installFlags{readyFile: filepath.Join(t.TempDir(), "ready")}
	if err := f.tellReady(true); err != nil {
		t.Fatal(err)
	}
	const events = 200
	told, failed := map[string]int{}, make(chan error, 1)
	go func() {
		var err error
		for n := range events {
			err = errors.Join(err, f.tellEvent(fmt.Sprintf("event %d", n)))
		}
		failed <- err
	}()
	look := func() {
		if err := f.isReady(); err != nil {
			for line := range strings.Lines(err.Error()) {
				told[strings.TrimSpace(line)]++
			}
		}
	}
	for done := false; !done; look() {
		select {
		case err := <-failed:
			if err != nil {
				t.Fatal(err)
			}
			done = true
		default:
		}
	}
	if len(told) != events {
		t.Errorf("%d of %d are told", len(told), events)
	}
	for text, n := range told {
		if n != 1 || !strings.HasPrefix(text, "event ") {
			t.Errorf("%q is told %d times", text, n)
		}
	}
	if err := f.isReady(); err != nil {
		t.Error(err)
	}
}

// What was found about the node is told by the first probe of those that find the process
// ready, and by no other.
func TestWarningsFailAProbe(t *testing.T) {
	f := &installFlags{readyFile: filepath.Join(t.TempDir(), "run", "ready")}
	const logs, runtime = "the kubelet does not rotate logs of containers", "the kubelet has --container-runtime=docker"
	err := f.tellWarnings([]payload.InstallResult{{Warnings: []string{logs, runtime}}, {Warnings: []string{logs}}})
	if err != nil {
		t.Fatal(err)
	}
	if code, said := probe(t, f); code == 0 || strings.Contains(said, warned) {
		t.Errorf("before it is ready: %d %q", code, said)
	}
	if err := f.tellReady(true); err != nil {
		t.Fatal(err)
	}
	code, said := probe(t, f)
	if code == 0 || strings.Count(said, warned+logs) != 1 || strings.Count(said, warned+runtime) != 1 {
		t.Errorf("the first probe: %d %q", code, said)
	}
	if code, said := probe(t, f); code != 0 {
		t.Errorf("the second: %d %q", code, said)
	}
	if err := f.tellWarnings([]payload.InstallResult{{}}); err != nil {
		t.Error(err)
	}
	if code, said := probe(t, f); code != 0 {
		t.Errorf("without warnings: %d %q", code, said)
	}
}

// From a runtime that does not answer to what a kubelet makes an event of: the monitor
// has it restarted and leaves that in a file of the node, and the process that watches
// there has a probe fail.
func TestRestartByTheMonitorFailsAProbe(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/os-release"), []byte("ID=debian\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := &installFlags{readyFile: filepath.Join(t.TempDir(), "ready")}
	i, err := installer.New(installer.Options{Root: root, Distribution: "containerd", Restart: "none"}, slog.New(slog.DiscardHandler))
	if err == nil {
		err = f.tellReady(true)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		w := &installer.Watcher{Installer: i, Every: time.Millisecond, Ready: f.tellReady, Tell: f.tellEvent}
		w.Run(ctx)
	})
	var said bytes.Buffer
	all.Go(func() {
		monitor := &app{out: io.Discard, err: &said}
		monitor.run(ctx, []string{"install", "monitor", "--host", root, "--distribution", "containerd", "--restart", "none", "--every", "1ms", "--after", "1ms"})
	})
	defer func() {
		stop()
		all.Wait()
		if t.Failed() {
			t.Logf("the monitor: %s", &said)
		}
	}()
	for {
		code, text := probe(t, f)
		if code == 0 {
			time.Sleep(time.Millisecond)
			continue
		}
		if !strings.Contains(text, "RuntimeRestarted: the container runtime had not answered for ") {
			t.Errorf("%d %q", code, text)
		}
		return
	}
}

// Who uninstalls may say a type by any of its names. One that is not installed is not
// taken for one that was removed.
func TestUninstallByName(t *testing.T) {
	for name, c := range map[string]struct {
		installed, named string
		kind             string
		reason           payload.Reason
		code             int
	}{
		// No runtime answers here, so that one that is installed stays.
		"its own":          {"kata-containers", "kata-containers", "kata-containers", payload.RuntimeUnavailable, exitFailure},
		"another of it":    {"kata-containers", "kata", "kata-containers", payload.RuntimeUnavailable, exitFailure},
		"one of somebody":  {"kata", "kata", "kata", payload.RuntimeUnavailable, exitFailure},
		"a slip":           {"kata-containers", "kat", "kat", payload.NotInstalled, exitPermanent},
		"of another":       {"gvisor", "kata", "kata", payload.NotInstalled, exitPermanent},
		"the other way on": {"kata", "kata-containers", "kata-containers", payload.NotInstalled, exitPermanent},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			journal := filepath.Join(root, "var/lib/fairlead-installer", c.installed+".type.json")
			if err := os.MkdirAll(filepath.Dir(journal), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(journal, []byte("{}"), 0o644); err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(root, "result")
			a := &app{out: io.Discard, err: io.Discard}
			code := a.run(t.Context(), []string{"install", "uninstall", c.named, "--host", root, "--distribution", "containerd", "--restart", "none", "--termination-log", at})
			text, err := os.ReadFile(at)
			if err != nil {
				t.Fatal(err)
			}
			r, err := payload.DecodeResult(text)
			if err != nil || code != c.code || r.State != payload.Refused || r.Reason != c.reason || r.Type != c.kind {
				t.Errorf("%d %v %+v", code, err, r)
			}
			if c.reason == payload.NotInstalled && !strings.HasSuffix(r.Message, "; what is installed is "+c.installed) {
				t.Error(r.Message)
			}
		})
	}
}

// What is on a node is listed also where no runtime is found.
func TestStatusWithoutARuntime(t *testing.T) {
	root := t.TempDir()
	journal := filepath.Join(root, "var/lib/fairlead-installer/gvisor.type.json")
	if err := os.MkdirAll(filepath.Dir(journal), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(journal, []byte(`{"phase": "restarting", "base": "/usr/bin/gvisor"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, failed bytes.Buffer
	a := &app{out: &out, err: &failed}
	if code := a.run(t.Context(), []string{"install", "status", "--host", root, "-o", "json"}); code == 0 || !strings.Contains(out.String(), `"phase": "restarting"`) || !strings.Contains(failed.String(), "--distribution") {
		t.Errorf("%d %s %s", code, &out, &failed)
	}
	if code := a.run(t.Context(), []string{"install", "status", "--host", root, "--log-level", "loud"}); code != 2 {
		t.Errorf("a wrong command line ends with %d", code)
	}
}

// A result fits into what a kubelet keeps of it, however much there is to tell: of one that
// is cut off nothing would be known.
func TestLongResults(t *testing.T) {
	long := payload.InstallResult{
		APIVersion: payload.APIVersion, Kind: payload.KindResult, Type: "kata-containers", Version: strings.Repeat("1", 63), State: payload.Refused,
		Reason: payload.UnsupportedNode, Message: strings.Repeat("<", 2048), Hash: strings.Repeat("a", 64), Runtime: "containerd 2.4.2", Warnings: []string{strings.Repeat("w", 4096)},
	}
	for i := range 64 {
		long.Served = append(long.Served, strings.Repeat("h", 60)+string(rune('0'+i/10))+string(rune('0'+i%10)))
	}
	f := &installFlags{result: filepath.Join(t.TempDir(), "log")}
	if err := f.leave(long); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(f.result)
	if err != nil || len(text) > payload.MaxResult {
		t.Fatalf("%v, %d bytes", err, len(text))
	}
	r, err := payload.DecodeResult(text)
	if err != nil || r.Reason != payload.UnsupportedNode || !strings.HasPrefix(r.Message, "<<<") || r.Served != nil {
		t.Errorf("%v %+v", err, r)
	}
}
