package stock

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"fairlead.run/internal/node/garbage"
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
