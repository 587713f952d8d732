package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: one, cluster: {server: "https://one.example:6443"}}
- {name: two, cluster: {server: "https://two.example:6443"}}
contexts:
- {name: one, context: {cluster: one, user: u}}
- {name: two, context: {cluster: two, user: u}}
users:
- {name: u, user: {token: t}}
`

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config")
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("clusters: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	idle, empty := filepath.Join(dir, "idle"), filepath.Join(dir, "empty")
	for path, text := range map[string]string{idle: strings.Replace(kubeconfig, "current-context: one\n", "", 1), empty: ""} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		kubeconfig, environment, context string
		host, err                        string
	}{
		"flag":                  {kubeconfig: file, host: "https://one.example:6443"},
		"context":               {kubeconfig: file, context: "two", host: "https://two.example:6443"},
		"environment":           {environment: file, host: "https://one.example:6443"},
		"flag over environment": {kubeconfig: file, environment: broken, host: "https://one.example:6443"},
		"missing file":          {kubeconfig: file + "x", err: file + "x"},
		"broken file":           {kubeconfig: broken, err: broken},
		"no such context":       {kubeconfig: file, context: "three", err: `there is no context "three"; choose one of one, two with --context`},
		"no current context":    {kubeconfig: idle, err: "it has no current-context; choose one of one, two with --context"},
		"empty file":            {kubeconfig: empty, err: "it has no current-context, nor any other"},
		"missing environment":   {environment: file + "x", err: file + "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", test.environment)
			got, err := Config(test.kubeconfig, test.context)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("error %v, not about %s", err, test.err)
				}
				return
			}
			if err != nil || got.Host != test.host || got.QPS != requestsPerSecond {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}
