package network

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"fairlead.run/internal/errdefs"
	"fairlead.run/internal/pod"
)

func open(t *testing.T, dir, boot string) *Ledger {
	t.Helper()
	l, err := OpenLedger(LedgerConfig{Dir: dir, BootID: boot})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func entry(id pod.ID) Entry {
	return Entry{
		ID: id, Driver: "d", State: Attached,
		Request: Request{
			ID: id, NetNS: "/n", Metadata: pod.Metadata{Name: "a", Namespace: "b", UID: "c"},
			Ports: []pod.PortMapping{{Protocol: "tcp", HostPort: 1, ContainerPort: 2}},
		},
		Result: Result{IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Interface: "eth0"},
		Data:   []byte(`{"x":1}`),
	}
}

func TestLedgerRemembers(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, "one")
	e := entry("p")
	e.Request.Annotations = map[string]string{"large": "text"}
	if err := l.Record(e); err != nil {
		t.Fatal(err)
	}
	if l.Inherited("p") {
		t.Error("an entry of this process counts as inherited")
	}
	before, _ := l.Get("p")
	l = open(t, dir, "two")
	after, ok := l.Get("p")
	if !ok || !reflect.DeepEqual(before, after) {
		t.Errorf("read back %+v, wrote %+v", after, before)
	}
	if after.Request.Annotations != nil {
		t.Error("annotations are kept, which nobody needs for releasing")
	}
	if l.ThisBoot(after) {
		t.Error("an entry of boot one counts as made in boot two")
	}
	if !l.Inherited("p") {
		t.Error("an entry of an earlier process does not count as inherited")
	}
	l.Adopt("p")
	if l.Inherited("p") {
		t.Error("an adopted entry counts as inherited")
	}
	if err := l.Forget("p"); err != nil {
		t.Fatal(err)
	}
	if err := l.Forget("p"); err != nil {
		t.Errorf("second Forget: %v", err)
	}
	if _, ok := open(t, dir, "two").Get("p"); ok {
		t.Error("a forgotten entry came back")
	}
}

func TestLedgerKeepsDamagedEntries(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, "one")
	for _, id := range []pod.ID{"good", "empty", "torn", "future", "stranger"} {
		if err := l.Record(entry(id)); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{
		"empty.json":            "",
		"torn.json":             `{"version":1,"id":"torn","dri`,
		"future.json":           `{"version":99,"id":"future","driver":"d"}`,
		"stranger.json":         `{"version":1,"id":"other","driver":"d"}`,
		".good.json.tmp-123":    "of a writer that was killed",
		"README":                "not an entry",
		"..%2fescape.json.json": "{}",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l = open(t, dir, "one")
	states := map[pod.ID]State{}
	for _, e := range l.List("d") {
		states[e.ID] = e.State
	}
	want := map[pod.ID]State{"good": Attached, "empty": Damaged, "torn": Damaged, "future": Damaged, "stranger": Damaged}
	if !reflect.DeepEqual(states, want) {
		t.Errorf("states %v, want %v", states, want)
	}
	if _, err := os.Stat(filepath.Join(dir, ".good.json.tmp-123")); !os.IsNotExist(err) {
		t.Error("a left-over temporary file stays")
	}
}

func TestLedgerRefusesPaths(t *testing.T) {
	l := open(t, t.TempDir(), "one")
	for _, id := range []pod.ID{"", "..", "a/b", ".hidden", "a\x00"} {
		if err := l.Record(entry(id)); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("Record of id %q: %v", id, err)
		}
		if err := l.Forget(id); err != nil {
			t.Errorf("Forget of id %q: %v", id, err)
		}
	}
}

func TestLedgerFlushesDurableEntries(t *testing.T) {
	l := open(t, t.TempDir(), "one")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	e := entry("p")
	e.Durable = true
	if err := l.Record(e); err != nil {
		t.Fatal(err)
	}
	waiting := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.unflushed)
	}
	for deadline := time.Now().Add(10 * time.Second); waiting() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the entry was not flushed")
		}
	}
	// One that is forgotten before its flush is no trouble.
	e.ID = "q"
	if err := errors.Join(l.Record(e), l.Forget("q")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}
