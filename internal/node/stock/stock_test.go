package stock

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/garbage"
	"fairlead.run/internal/node/images"
	"fairlead.run/internal/node/logs/rotate"
)

type noPods struct{}

func (noPods) Has(string) bool                  { return false }
func (noPods) Finished(string) bool             { return false }
func (noPods) Mine(*runtimeapi.PodSandbox) bool { return false }
func (noPods) VolumeImages() []string           { return nil }

// TestSettings refuses what makes no sense, with the name of the part that it is in.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	text := "kind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/v1\nproviders:\n" +
		"- {name: plugin, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: [registry.example], defaultCacheDuration: 0s, " +
		"tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true}}\n"
	for path, text := range map[string]string{config: text, filepath.Join(dir, "plugin"): "#!/bin/sh\n"} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*Settings)
		want   string
	}{
		{"the default", func(*Settings) {}, ""},
		{"half of the providers", func(s *Settings) { s.Providers.Dir = dir }, "need both a configuration and the folder"},
		{"a file that is missing", func(s *Settings) { s.Providers = Providers{dir + "/none", dir} }, "no such file"},
		{"a plugin that wants tokens", func(s *Settings) { s.Providers = Providers{config, dir} }, "this node has none"},
		{"a policy", func(s *Settings) { s.Verify = "Sometimes" }, `verification of pull credentials is "Sometimes"`},
		{"thresholds", func(s *Settings) { s.Images = garbage.ImagePolicy{HighPercent: 50, LowPercent: 60} }, "the low threshold of 60 percent is not below"},
	} {
		settings := Default
		tt.change(&settings)
		s, err := New(Config{Settings: settings, Root: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			_, err = s.Collector(noPods{}, "", nil)
		}
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// opener begins a new log where it is told to.
type opener struct {
	runtimeapi.RuntimeServiceClient
	path string
}

func (o opener) ReopenContainerLog(context.Context, *runtimeapi.ReopenContainerLogRequest, ...grpc.CallOption) (*runtimeapi.ReopenContainerLogResponse, error) {
	return &runtimeapi.ReopenContainerLogResponse{}, os.WriteFile(o.path, nil, 0o600)
}

// TestLogs has a log that is as large as it may be rotated, and no smaller one.
func TestLogs(t *testing.T) {
	for name, tt := range map[string]struct {
		size    int
		every   time.Duration
		rotated bool
	}{"small": {999, 0, false}, "large": {1000, 0, true}, "large and not looked at yet": {1000, 2 * time.Minute, false}} {
		path := filepath.Join(t.TempDir(), "0.log")
		if err := os.WriteFile(path, make([]byte, tt.size), 0o600); err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			list := func(context.Context) ([]rotate.Container, error) {
				return []rotate.Container{{ID: "c", Path: path}}, nil
			}
			r, err := Logs{MaxSize: resource.MustParse("1k"), MaxFiles: 2, Every: tt.every}.Rotator(rotate.Config{Runtime: opener{path: path}, List: list, Failed: func(err error) { t.Error(err) }})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		files, err := filepath.Glob(path + "*")
		if err != nil || (len(files) == 2) != tt.rotated {
			t.Errorf("%s: %v, %v", name, files, err)
		}
	}
}

// TestNodeCredentials are those of the node's docker configuration, then those of plugins.
func TestNodeCredentials(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{
		"config.json": `{"auths":{"registry.example":{"username":"docker"}}}`,
		"plugin": `#!/bin/sh
echo '{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Image","auth":{"registry.example":{"username":"plugin"}}}'
`,
		"config.yaml": "kind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/v1\nproviders:\n" +
			"- {name: plugin, apiVersion: credentialprovider.kubelet.k8s.io/v1, matchImages: [registry.example], defaultCacheDuration: 0s}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c := Config{Docker: images.DockerFiles{dir + "/config.json"}}
	c.Providers = Providers{dir + "/config.yaml", dir}
	credentials, err := c.credentials()
	if err != nil {
		t.Fatal(err)
	}
	got, err := credentials.Lookup(t.Context(), "registry.example/app", nil)
	if err != nil || len(got) != 2 || got[0].Auth.Username != "docker" || got[1].Auth.Username != "plugin" {
		t.Errorf("%+v, %v", got, err)
	}
}
