package images

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDockerFilesOf(t *testing.T) {
	want := DockerFiles{"/var/lib/kubelet/config.json", "/root/.docker/config.json", "/.docker/config.json", "/var/lib/kubelet/.dockercfg", "/root/.dockercfg", "/.dockercfg"}
	if got := DockerFilesOf("/var/lib/kubelet", "/root", "/"); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := DockerFilesOf("/a", "", "/"); len(got) != 4 {
		t.Errorf("without a home: %q", got)
	}
}

// TestDockerFiles takes the first configuration that can be read, says what is wrong with those
// before it, and sees what changes.
func TestDockerFiles(t *testing.T) {
	dir := t.TempDir()
	files := DockerFilesOf(dir+"/a", dir+"/b", dir+"/c")
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(user, problem string) {
		t.Helper()
		got, err := files.Lookup(t.Context(), "r.example/team/app:1", nil)
		switch {
		case user == "" && len(got) > 0, user != "" && (len(got) != 1 || got[0].Auth.Username != user || got[0].Source != Source{}):
			t.Errorf("%+v, want %q", got, user)
		case problem == "" && err != nil, problem != "" && (err == nil || !strings.Contains(err.Error(), problem)):
			t.Errorf("%v, want %q", err, problem)
		}
	}
	expect("", "")
	write("c/.dockercfg", `{"https://r.example/v1/":{"auth":"b2xkOnA="}}`)
	expect("old", "")
	write("b/.docker/config.json", `{"auths":{"r.example":{"auth":"bmV3OnA="}},"credsStore":"x"}`)
	expect("new", "")
	write("a/config.json", `{"auths":`)
	expect("new", dir+"/a/config.json of the node: no docker configuration: it is not JSON")
	write("a/config.json", `{"auths":{"r.example":{"auth":"?"},"r.example/team":{"username":"team","password":"p"}}}`)
	expect("team", "registry r.example: its auth is not in base64")
	write("a/config.json", `{"auths":{"s.example":{"username":"other"}}}`)
	expect("", "")
}
