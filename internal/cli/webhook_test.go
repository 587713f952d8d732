package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

func TestWebhookCommandLine(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	none := filepath.Join(t.TempDir(), "none")
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"an option":     {[]string{"--listen", "here"}, exitUsage, "--listen"},
		"an argument":   {[]string{"here"}, exitUsage, "here"},
		"a flag":        {[]string{"--here"}, exitUsage, "--here"},
		"log level":     {[]string{"--log-level", "loud"}, exitUsage, "--log-level loud"},
		"log format":    {[]string{"--log-format", "xml"}, exitUsage, "--log-format xml"},
		"no kubeconfig": {[]string{"--kubeconfig", none}, exitFailure, none},
	} {
		t.Run(name, func(t *testing.T) {
			var errs bytes.Buffer
			a := &app{version: "test", in: &bytes.Buffer{}, out: &bytes.Buffer{}, err: &errs}
			if code := a.run(t.Context(), append([]string{"webhook"}, test.args...)); code != test.code || !strings.Contains(errs.String(), test.says) {
				t.Errorf("code %d: %s", code, errs.String())
			}
		})
	}
}
