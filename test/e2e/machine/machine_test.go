package machine

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const patience = time.Minute

// Both kinds of machine do the same.
func TestMachines(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- Serve(l, Local(patience)) }()
	remote, err := Dial(t.Context(), l.Addr().String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = remote.Close(), l.Close()
		<-served
	})
	for name, m := range map[string]Machine{"local": Local(patience), "remote": remote} {
		t.Run(name, func(t *testing.T) {
			t.Run("programs", func(t *testing.T) { programs(t, m) })
			t.Run("files", func(t *testing.T) { files(t, m) })
			t.Run("addresses", func(t *testing.T) {
				if err := m.Accepts("tcp", l.Addr().String()); err != nil {
					t.Error(err)
				}
				if err := m.Accepts("unix", filepath.Join(t.TempDir(), "nobody")); err == nil {
					t.Error("somebody listens on a socket that is not there")
				}
			})
		})
	}
}

func programs(t *testing.T, m Machine) {
	p := Program{
		Name: "talks", Argv: []string{"/bin/sh", "-c", "echo $SAYS; exec sleep 1000"},
		Env: []string{"SAYS=hello", "PATH=" + os.Getenv("PATH")}, Output: filepath.Join(t.TempDir(), "talks.log"),
	}
	for range 2 { // it can be started again
		if err := m.Start(p); err != nil {
			t.Fatal(err)
		}
		if err := m.Start(p); err == nil {
			t.Error("what runs was started once more")
		}
		if ended, err := m.Ended(p.Name); ended || err != nil {
			t.Errorf("Ended of what runs = %v (%v)", ended, err)
		}
		if err := m.End(p.Name, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if ended, err := m.Ended(p.Name); !ended || err != nil {
			t.Errorf("Ended of what was ended = %v (%v)", ended, err)
		}
	}
	if err := m.End(p.Name, syscall.SIGKILL); err != nil {
		t.Errorf("end what has ended: %v", err)
	}
	p.Name, p.Argv, p.Output = "says", []string{"/bin/sh", "-c", "echo $SAYS"}, p.Output+".2"
	if err := m.Start(p); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if ended, err := m.Ended(p.Name); err != nil || time.Now().After(end) {
			t.Fatalf("Ended of what ends by itself = %v (%v)", ended, err)
		} else if ended {
			break
		}
	}
	if said, err := m.Read(p.Output); said != "hello\n" || err != nil {
		t.Errorf("it said %q (%v)", said, err)
	}
	if err := m.End("unknown", syscall.SIGKILL); err == nil {
		t.Error("what was never started was ended")
	}
	p.Name, p.Argv = "missing", []string{"/is/missing"}
	if err := m.Start(p); err == nil {
		t.Error("a program was started that is not there")
	}
}

func files(t *testing.T, m Machine) {
	path := filepath.Join(t.TempDir(), "folder", "file")
	if err := m.Write(path, "text\n"); err != nil {
		t.Fatal(err)
	}
	if data, err := m.Read(strings.Replace(path, "folder", "f*", 1)); data != "text\n" || err != nil {
		t.Errorf("Read = %q (%v)", data, err)
	}
	if err := m.Write(path+"2", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Read(path + "*"); err == nil || !strings.Contains(err.Error(), "2 times") {
		t.Errorf("err = %v, want one of two files", err)
	}
	if err := m.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Read(path); err == nil {
		t.Error("a removed file can be read")
	}
}
