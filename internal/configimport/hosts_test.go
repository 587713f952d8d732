package configimport

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.run/internal/image/registry"
)

// TestHostsThatAreAsked has the code that pulls images read what was written.
func TestHostsThatAreAsked(t *testing.T) {
	tests := map[string]map[string]string{
		"v2": {
			"docker.io":            "https://mirror.example.com/hub http://10.0.0.9:5000/v2 https://registry-1.docker.io/v2",
			"own.example.com:8443": "https://own.example.com:8443/v2",
			"ghcr.example.com":     "https://cache.example.com/v2 https://ghcr.example.com/v2",
		},
		"crio": {
			"docker.io":         "https://mirror.example.com/v2/hub https://10.0.0.9:5000/v2 http://10.0.0.9:5000/v2 https://registry-1.docker.io/v2",
			"registry.lan:5000": "https://registry.lan:5000/v2 http://registry.lan:5000/v2 https://registry.lan:5000/v2",
			"old.example.com":   "https://newer.example.com/v2/moved http://newer.example.com/v2/moved https://old.example.com/v2",
		},
	}
	for name, hosts := range tests {
		source := samples[name]
		source.Folder = t.TempDir()
		result, err := Import(source)
		if err != nil {
			t.Fatal(err)
		}
		// The certificates of the samples are on no machine.
		for i, f := range result.Files {
			result.Files[i].Data = withoutCertificates(f.Data)
		}
		if _, err := result.Write(source.Folder, false); err != nil {
			t.Fatal(err)
		}
		for host, want := range hosts {
			t.Run(name+"/"+host, func(t *testing.T) {
				var tried registry.HostList
				found, err := registry.Hosts(context.Background(), []string{filepath.Join(source.Folder, "certs.d")}, registry.Credentials{}, &tried)(host)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, h := range found {
					got = append(got, fmt.Sprintf("%s://%s%s", h.Scheme, h.Host, h.Path))
				}
				if strings.Join(got, " ") != want {
					t.Errorf("asked are %v, want %s", got, want)
				}
			})
		}
	}
}

func withoutCertificates(text []byte) []byte {
	var out []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "ca = ") && !strings.HasPrefix(line, "client = ") {
			out = append(out, line)
		}
	}
	return []byte(strings.Join(out, ""))
}
