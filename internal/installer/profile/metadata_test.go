package profile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMetadata(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, MetadataName)
	if said, noted, err := ReadMetadata("/", dir); err != nil || said != (Metadata{}) || noted != said {
		t.Errorf("without a file: %+v %+v %v", said, noted, err)
	}
	own := Metadata{OS: "ubuntu", BinaryPath: "/usr/bin", Distribution: "containerd", Socket: "/run/containerd/containerd.sock", Config: ContainerdMain, Ctr: "/usr/bin/ctr"}
	for range 2 {
		if err := WriteMetadata(dir, own); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), `"binaryPath": "/usr/bin"`) || !strings.Contains(string(text), `"by": "fairlead install"`) {
		t.Errorf("%v: %s", err, text)
	}
	if said, noted, err := ReadMetadata("/", dir); err != nil || said != (Metadata{}) || noted.Distribution != own.Distribution || noted.Socket != own.Socket {
		t.Errorf("its own file says %+v, and it has noted %+v: %v", said, noted, err)
	}
	if err := ForgetMetadata(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("it is left: %v", err)
	}

	const others = `{"apiVersion":"payload.fairlead.run/v1alpha1","kind":"NodeMetadata","by":"images","binaryPath":"/opt/bin"}`
	if err := os.WriteFile(path, []byte(others), 0o644); err != nil {
		t.Fatal(err)
	}
	if said, noted, err := ReadMetadata("/", dir); err != nil || said.BinaryPath != "/opt/bin" || said.OS != "" || noted != (Metadata{}) {
		t.Errorf("%+v %+v %v", said, noted, err)
	}
	if err := WriteMetadata(dir, own); err != nil {
		t.Error(err)
	}
	if err := ForgetMetadata(dir); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != others {
		t.Errorf("somebody else's became %q %v", text, err)
	}
	for _, bad := range []string{"", "{", `{"kind":"Pod"}`, strings.Replace(others, "binaryPath", "binarypath_", 1)} {
		if err := os.WriteFile(path, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ReadMetadata("/", dir); err == nil || !strings.Contains(err.Error(), "take it away") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
