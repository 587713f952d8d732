package configimport

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	config "fairlead.run/api/config/v1alpha1"
)

var update = flag.Bool("update", false, "write what is wanted anew")

// samples are configurations as nodes have them.
var samples = map[string]Source{
	"v2": {Paths: []string{"testdata/v2/config.toml"}},
	"v3": {Paths: []string{"testdata/v3/config.toml"}},
	"v4": {Paths: []string{"testdata/v4/config.toml"}},
	"crio": {
		Paths:      []string{"testdata/crio/crio.conf", "testdata/crio/crio.conf.d"},
		Registries: []string{"testdata/crio/registries.conf", "testdata/crio/registries.conf.d"},
	},
}

func TestSamples(t *testing.T) {
	for name, source := range samples {
		t.Run(name, func(t *testing.T) {
			source.Folder = "/etc/fairlead"
			got, err := Import(source)
			if err != nil {
				t.Fatal(err)
			}
			text := show(got)
			want := filepath.Join("testdata", name, "want.txt")
			if *update {
				if err := os.WriteFile(want, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			wanted, err := os.ReadFile(want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(wanted), text); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// show is a result as a person compares it.
func show(r *Result) string {
	var b strings.Builder
	for _, f := range r.Files {
		fmt.Fprintf(&b, "==== %s\n%s", f.Path, f.Data)
	}
	fmt.Fprintf(&b, "==== report on %s\n", strings.Join(r.Read, " "))
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s:%d %s %s\n    %s\n", f.File, f.Line, f.Effect, f.Key, f.Why)
	}
	return b.String()
}

// TestWhatIsWrittenIsRead has the daemon's own decoder read the files from where
// they were written.
func TestWhatIsWrittenIsRead(t *testing.T) {
	for name, source := range samples {
		t.Run(name, func(t *testing.T) {
			source.Folder = t.TempDir()
			got, err := Import(source)
			if err != nil {
				t.Fatal(err)
			}
			paths, err := got.Write(source.Folder, false)
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := config.Load(paths[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := cfg.Validate(); err != nil {
				t.Error(err)
			}
			if len(cfg.Handlers) == 0 {
				t.Error("there are no handlers")
			}
		})
	}
}

func TestNothingIsOverwritten(t *testing.T) {
	source := samples["v2"]
	source.Folder = t.TempDir()
	result, err := Import(source)
	if err != nil {
		t.Fatal(err)
	}
	there := filepath.Join(source.Folder, "certs.d/docker.io/hosts.toml")
	if err := os.MkdirAll(filepath.Dir(there), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(there, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := result.Write(source.Folder, false); err == nil || !strings.Contains(err.Error(), there) {
		t.Errorf("over a file that is there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(source.Folder, "config.toml")); err == nil {
		t.Error("the other files were written all the same")
	}
	if _, err := result.Write(source.Folder, true); err != nil {
		t.Error(err)
	}
	if text, _ := os.ReadFile(there); string(text) == "mine" {
		t.Error("with force nothing was replaced")
	}
}

func TestSecretsAreNotTold(t *testing.T) {
	source := samples["v2"]
	source.Folder = "/etc/fairlead"
	got, err := Import(source)
	if err != nil {
		t.Fatal(err)
	}
	if text := show(got); strings.Contains(text, "correct horse") {
		t.Error("a password is told:", text)
	}
}

func TestWhoseFilesTheseAre(t *testing.T) {
	for path, want := range map[string]string{
		"testdata/v2/config.toml": Containerd, "testdata/crio/crio.conf": CRIO, "testdata/crio/crio.conf.d": CRIO,
	} {
		s := Source{Paths: []string{path}}
		if got, err := s.runtime(); got != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", path, got, err, want)
		}
	}
	s := Source{Runtime: "docker"}
	if _, err := s.runtime(); err == nil || !strings.Contains(err.Error(), "containerd and crio") {
		t.Errorf("docker: %v", err)
	}
}
