package certificates

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFiles takes a certificate that is renewed, and keeps it while the files are not right.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	put := func(name, from string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	made := func(name string) string {
		t.Helper()
		folder := Folder{filepath.Join(dir, name), name}
		if _, err := SelfSigned(folder, []string{"n"}, nil, time.Now()); err != nil {
			t.Fatal(err)
		}
		return folder.CurrentPath() // certificate and key
	}
	first, second := made("a"), made("b")
	put("crt", first)
	var told []string
	a := Asker{Warn: func(reason, message string) { told = append(told, reason+": "+message) }}
	crt, key := filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	if _, err := NewFiles(a, crt, key); err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("without a key: %v", err)
	}
	put("key", first)
	f, err := NewFiles(a, crt, key)
	if err != nil {
		t.Fatal(err)
	}
	has := func() string {
		t.Helper()
		c, err := f.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf.SerialNumber.String()
	}
	old := has()
	put("crt", second) // the key is not there yet
	for range 2 {
		if has() != old {
			t.Error("a certificate is used without its key")
		}
	}
	if len(told) != 1 || !strings.HasPrefix(told[0], ServingNotRead+": ") || !strings.Contains(told[0], key) {
		t.Errorf("told %q", told)
	}
	put("key", second)
	renewed := has()
	if renewed == old {
		t.Error("the certificate stays")
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if has() != renewed || len(told) != 2 {
		t.Errorf("without the file: another certificate, or told %q", told)
	}
}
