package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	config "fairlead.run/api/config/v1alpha1"
	"fairlead.run/internal/configimport"
)

const samples = "../configimport/testdata/"

// runImport is the command as a person runs it, to its end.
func runImport(args ...string) (out, report string, code int) {
	var stdout, stderr bytes.Buffer
	a := &app{in: strings.NewReader(""), out: &stdout, err: &stderr}
	code = a.run(context.Background(), append([]string{"config", "import"}, args...))
	return stdout.String(), stderr.String(), code
}

func TestImportToStandardOutput(t *testing.T) {
	out, report, code := runImport(samples + "v2/config.toml")
	if code != 0 {
		t.Fatal(report)
	}
	text, hosts, _ := strings.Cut(out, "\n# ---- /etc/fairlead/certs.d/_default/hosts.toml\n")
	cfg, err := config.Parse("out", []byte(text))
	if err != nil || cfg.Validate() != nil || cfg.Handlers["crun"].Path != "/usr/bin/crun" {
		t.Errorf("standard output: %v\n%s", err, out)
	}
	if !strings.Contains(hosts, "https://cache.example.com") {
		t.Errorf("the other files are missing:\n%s", out)
	}
	if !strings.Contains(report, "WHERE") || !strings.Contains(report, samples+"v2/config.toml:26") {
		t.Errorf("the report is %s", report)
	}
}

func TestImportToFiles(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new")
	args := []string{"-o", folder, "--report", "json", "--from", "crio", samples + "crio/crio.conf", samples + "crio/crio.conf.d"}
	out, report, code := runImport(args...)
	if code != 0 || out != "" {
		t.Fatalf("exit code %d: %s%s", code, out, report)
	}
	cfg, err := config.Load(filepath.Join(folder, "config.toml"))
	if err != nil || cfg.Validate() != nil || cfg.DefaultHandler != "crun" {
		t.Errorf("what was written: %v", err)
	}
	wrote, tail, _ := strings.Cut(report, "\n")
	var result configimport.Result
	if err := json.Unmarshal([]byte(tail), &result); err != nil || result.Runtime != "crio" || len(result.Findings) == 0 {
		t.Errorf("the report: %v\n%s", err, report)
	}
	if !strings.HasPrefix(wrote, "fairlead: wrote "+folder) {
		t.Errorf("it says %q", wrote)
	}
	mine := filepath.Join(folder, "config.toml")
	if err := os.WriteFile(mine, []byte("version = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, report, code = runImport(args...); code != exitFailure || !strings.Contains(report, mine) || !strings.Contains(report, "--force replaces it") {
		t.Errorf("over files: exit code %d: %s", code, report)
	}
	if text, _ := os.ReadFile(mine); string(text) != "version = 1\n" {
		t.Errorf("it was overwritten by %s", text)
	}
	if _, report, code = runImport(append(args, "--force")...); code != 0 {
		t.Errorf("with --force: %s", report)
	}
}

func TestImportsThatAreRefused(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(broken, []byte("version = 3\n[plugins\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--report", "wide", broken}, exitUsage, "not one of table, json, yaml"},
		{[]string{"--from", "docker", broken}, exitFailure, "only from containerd and crio"},
		{[]string{"--from", "containerd", broken, broken}, exitFailure, "has one file"},
		{[]string{"--from", "containerd", "--registries", broken, broken}, exitFailure, "no registries.conf"},
		{[]string{broken}, exitFailure, broken + ":2:"},
		{[]string{broken + ".gone"}, exitFailure, "no such file"},
	} {
		if out, report, code := runImport(test.args...); code != test.code || out != "" || !strings.Contains(report, test.want) {
			t.Errorf("%v: exit code %d, %s%s; want %d, %s", test.args, code, out, report, test.code, test.want)
		}
	}
}
