package shimcmd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"fairlead.run/internal/taskapi"
)

func TestParse(t *testing.T) {
	always := []string{"--events", "/e", "--root", "/r"}
	for line, want := range map[string]struct {
		verb, id string
		detach   bool
		err      string
	}{
		"run --bundle /b --pid-file /p --detach c": {verb: "run", id: "c", detach: true},
		"run --bundle /b c":                        {verb: "run", id: "c"},
		"run --bundle /b --detach c":               {err: "an argument of run is missing"},
		"run c":                                    {err: "an argument of run is missing"},
		"exec --process /p c":                      {verb: "exec", id: "c"},
		"exec c":                                   {err: "an argument of exec is missing"},
		"update --resources /f c":                  {verb: "update", id: "c"},
		"delete --force c":                         {verb: "delete", id: "c"},
		"delete":                                   {err: "an argument of delete is missing"},
		"pause c":                                  {err: `no subcommand "pause"`},
		"":                                         {err: "no subcommand"},
		"--options-type t --options dg== delete c": {verb: "delete", id: "c"},
		"--options not-base64! delete c":           {err: "--options"},
		"--log-format json --systemd-cgroup run c": {err: "an argument of run is missing"},
		"--nonsense": {err: "nonsense"},
	} {
		o, err := parse(slices.Concat(always, strings.Fields(line)))
		switch {
		case want.err != "" && (err == nil || !strings.Contains(err.Error(), want.err)):
			t.Errorf("%q: the error %v lacks %q", line, err, want.err)
		case want.err == "" && (err != nil || o.verb != want.verb || o.id != want.id || o.detach != want.detach):
			t.Errorf("%q: %+v, %v", line, o, err)
		}
	}
	if _, err := parse([]string{"delete", "c"}); err == nil {
		t.Error("a command line without --events and --root was accepted")
	}
}

func TestIsPublish(t *testing.T) {
	if !IsPublish([]string{"monitor", "--address", "x", "publish", "--topic", "t"}) || IsPublish([]string{"monitor", "publish"}) {
		t.Error("events are told from other calls wrongly")
	}
}

// server is a shim's task service that answers by a table; the default is success.
type server struct {
	mu      sync.Mutex
	refuse  map[string]uint64 // code by method
	called  []string
	entered chan string   // gets each method, if it is not nil
	hold    chan struct{} // is waited for in Create, if it is not nil
}

func (s *server) calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.called)
}

func (s *server) serve(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.answer(conn)
		}
	}()
}

func (s *server) answer(conn net.Conn) {
	defer conn.Close()
	header := make([]byte, 10)
	if _, err := io.ReadFull(conn, header); err != nil {
		return
	}
	body := make([]byte, binary.BigEndian.Uint32(header))
	if _, err := io.ReadFull(conn, body); err != nil {
		return
	}
	method := field(body, 2)
	s.mu.Lock()
	s.called = append(s.called, method)
	code := s.refuse[method]
	s.mu.Unlock()
	if s.entered != nil {
		s.entered <- method
	}
	if method == "Create" && s.hold != nil {
		<-s.hold
	}
	var status, response []byte
	if code != 0 {
		status = protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), code)
	}
	response = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), status)
	binary.BigEndian.PutUint32(header, uint32(len(response)))
	header[8] = 2
	_, _ = conn.Write(append(header, response...))
}

// field is one of a message's that is bytes.
func field(data []byte, want protowire.Number) string {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return ""
		}
		if number == want {
			b, _ := protowire.ConsumeBytes(data[n:])
			return string(b)
		}
		size := protowire.ConsumeFieldValue(number, kind, data[n:])
		if size < 0 {
			return ""
		}
		data = data[n+size:]
	}
	return ""
}

// member is a container of a pod whose shim is s, as a stand-in has it that is to
// start it.
func member(t *testing.T, s *server) *task {
	t.Helper()
	dir := t.TempDir()
	o := &options{verb: "run", id: "c", bundle: filepath.Join(dir, "bundle"), root: filepath.Join(dir, "root"), events: filepath.Join(dir, "e"), detach: true, shim: "/bin/false"}
	for _, d := range []string{o.bundle, o.root, filepath.Join(o.root, "pod")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	config := fmt.Sprintf(`{"annotations": {%q: "pod"}}`, sandboxAnnotation)
	if err := os.WriteFile(filepath.Join(o.bundle, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	s.serve(t, path)
	of := taskapi.Record{Shim: o.shim, Sandbox: "pod", Stage: taskapi.Running, Endpoint: taskapi.Endpoint{Address: "unix://" + path, Version: 3}}
	if err := of.Write(o.root, "pod"); err != nil {
		t.Fatal(err)
	}
	lock, err := o.reserve()
	if err != nil {
		t.Fatal(err)
	}
	return &task{options: o, lock: lock}
}

func (t *task) gone() bool {
	_, err := os.Lstat(t.folder())
	return errors.Is(err, fs.ErrNotExist)
}

func TestBeginJoinsTheShimOfThePod(t *testing.T) {
	s := &server{}
	c := member(t, s)
	if err := c.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.calls(); !slices.Equal(got, []string{"Create", "Start"}) {
		t.Errorf("called %v", got)
	}
	r, err := taskapi.ReadRecord(c.root, "c")
	if err != nil || r.Stage != taskapi.Running || r.Sandbox != "pod" || r.Address == "" {
		t.Errorf("the record is %+v, %v", r, err)
	}
}

// A start that fails, at whatever call, leaves nothing of the container.
func TestBeginFails(t *testing.T) {
	for method, want := range map[string][]string{
		// In vain, and once more after the program was asked to tidy up.
		"Create": {"Create", "Kill", "Wait", "Delete", "Kill", "Wait", "Delete"},
		"Start":  {"Create", "Start", "Kill", "Wait", "Delete"},
	} {
		s := &server{refuse: map[string]uint64{method: 9}}
		if method == "Create" {
			s.refuse["Kill"], s.refuse["Wait"], s.refuse["Delete"] = 5, 5, 5
		}
		c := member(t, s)
		if err := c.begin(t.Context()); err == nil {
			t.Errorf("%s was refused, and the container runs", method)
		}
		if got := s.calls(); !slices.Equal(got, want) {
			t.Errorf("%s refused: called %v, not %v", method, got, want)
		}
		if !c.gone() {
			t.Errorf("%s refused: the folder is left", method)
		}
	}
}

// Whoever started it gives up while the shim creates it: the call is let end, and
// what it has made is deleted.
func TestBeginIsGivenUp(t *testing.T) {
	s := &server{entered: make(chan string, 9), hold: make(chan struct{})}
	c := member(t, s)
	ctx, giveUp := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() { ended <- c.begin(ctx) }()
	<-s.entered
	giveUp(errGivenUp)
	close(s.hold)
	if err := <-ended; !errors.Is(err, errGivenUp) {
		t.Errorf("it ended with %v", err)
	}
	if got, want := s.calls(), []string{"Create", "Kill", "Wait", "Delete"}; !slices.Equal(got, want) {
		t.Errorf("called %v, not %v", got, want)
	}
	if !c.gone() {
		t.Error("the folder is left")
	}
}

func TestRemoveWaitsForAStart(t *testing.T) {
	s := &server{}
	c := member(t, s)
	if err := c.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	removed := make(chan error, 1)
	go func() { removed <- c.remove(t.Context()) }()
	select {
	case err := <-removed:
		t.Fatalf("removed in the middle of a start: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := c.lock.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-removed; err != nil || !c.gone() {
		t.Errorf("removed: %v", err)
	}
	if err := c.remove(t.Context()); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("removed again: %v", err)
	}
}

// What a shim refuses to delete its program deletes, and the others in the pod
// keep their shim; where the program fails, the caller hears of it.
func TestRemoveRefused(t *testing.T) {
	for program, fails := range map[string]bool{"/bin/true": false, "/bin/false": true} {
		s := &server{}
		c := member(t, s)
		c.shim = program
		c.settle(t)
		s.mu.Lock()
		s.refuse = map[string]uint64{"Delete": 2}
		s.mu.Unlock()
		if err := c.remove(t.Context()); (err != nil) != fails {
			t.Errorf("%s: %v", program, err)
		}
		if c.gone() == fails {
			t.Errorf("%s: gone is %t", program, c.gone())
		}
	}
}

// settle starts the container by the program that is set.
func (t *task) settle(tt *testing.T) {
	tt.Helper()
	of, err := taskapi.ReadRecord(t.root, "pod")
	if err != nil {
		tt.Fatal(err)
	}
	of.Shim = t.shim
	err = errors.Join(of.Write(t.root, "pod"), t.begin(tt.Context()), t.lock.Close())
	if err != nil {
		tt.Fatal(err)
	}
}

func TestReserveTwice(t *testing.T) {
	o := &options{id: "c", root: t.TempDir()}
	lock, err := o.reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := o.reserve(); err == nil || !strings.Contains(err.Error(), "container with given ID already exists") {
		t.Errorf("reserved twice: %v", err)
	}
	if _, err := o.lock(0); err == nil {
		t.Error("locked twice")
	}
}

func TestWatch(t *testing.T) {
	hear, tell, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer tell.Close()
	gone := make(chan struct{})
	go watch(tell, func() { close(gone) })
	select {
	case <-gone:
		t.Fatal("a launcher that lives is gone")
	case <-time.After(20 * time.Millisecond):
	}
	_ = hear.Close()
	<-gone
}

// A program that prints without end is killed, and quoted in part.
func TestFlood(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "shim")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec yes no-end >&2\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	o := &options{shim: script, id: "c", bundle: dir, events: dir}
	_, err := o.runShim(t.Context(), "c", nil, "start")
	if !errors.Is(err, errFlood) || !strings.Contains(err.Error(), "no-end") || len(err.Error()) > 2*quoteLimit {
		t.Errorf("%.200v", err)
	}
}

func TestSpeech(t *testing.T) {
	told := 0
	s := &speech{tooMuch: func() { told++ }}
	for range floodLimit/1000 + 1 {
		if n, err := s.Write(make([]byte, 1000)); n != 1000 || err != nil {
			t.Fatal(n, err)
		}
	}
	if len(s.kept) != quoteLimit || told != 1 {
		t.Errorf("%d bytes kept, told %d times", len(s.kept), told)
	}
}

func TestSandbox(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "c",
		`{"annotations":{"io.kubernetes.cri.sandbox-id":"pod"}}`:    "pod",
		`{"annotations":{"io.kubernetes.cri.sandbox-id":"../pod"}}`: "c", // no folder of the root
		`{`: "",
	} {
		c := &task{options: &options{id: "c", bundle: t.TempDir()}}
		if err := os.WriteFile(filepath.Join(c.bundle, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := c.sandbox(); got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}

func TestMessage(t *testing.T) {
	refusal := fmt.Errorf("Start of the shim: %w", &taskapi.Refusal{Code: 2, Message: "no such program"})
	if got := message(refusal); got != "no such program" {
		t.Errorf("%q", got)
	}
	if got := message(io.EOF); got != "EOF" {
		t.Errorf("%q", got)
	}
}
