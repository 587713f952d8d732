package daemon

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestListenIsPrivateAndReplacesStaleSockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "fl") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "run", "f.sock")
	stale, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*socket).UnixListener.Close() // as a crash does: the file stays
	l, err := listen("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 || st.Mode().Type() != fs.ModeSocket {
		t.Fatal(st, err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
		t.Fatal(left)
	}
}

func TestListenRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ endpoint, want string }{
		{"tcp://127.0.0.1:1", "want unix:///path"},
		{"relative", "want unix:///path"},
		{"/" + strings.Repeat("x", 120), "shorter"},
		{file, "no socket"},
	} {
		if _, err := listen(tt.endpoint); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.endpoint, err)
		}
	}
	if _, err := os.Stat(file); err != nil {
		t.Error("a file that is no socket was removed")
	}
}
