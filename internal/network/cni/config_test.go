package cni

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoad(t *testing.T) {
	const good = `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"a"}]}`
	for name, tc := range map[string]struct {
		files    map[string]string
		file     string // that counts
		plugins  int
		err      string
		version  string
		noConfig bool
	}{
		"empty directory":     {noConfig: true},
		"other files":         {files: map[string]string{"README": "", "a.conflist.bak": "{"}, noConfig: true},
		"first in order":      {files: map[string]string{"20-b.conflist": "{", "10-a.conflist": good}, file: "10-a.conflist", plugins: 1},
		"a broken one first":  {files: map[string]string{"20-b.conflist": good, "10-a.conflist": "{"}, file: "10-a.conflist", err: "10-a.conflist is not usable"},
		"single plugin":       {files: map[string]string{"1.conf": `{"cniVersion":"0.4.0","name":"n","type":"a"}`}, file: "1.conf", plugins: 1, version: "0.4.0"},
		"list named json":     {files: map[string]string{"1.json": good}, file: "1.json", plugins: 1},
		"empty file":          {files: map[string]string{"1.conflist": " \n"}, file: "1.conflist", err: "the file is empty"},
		"no name":             {files: map[string]string{"1.conflist": `{"cniVersion":"1.0.0","plugins":[{"type":"a"}]}`}, file: "1.conflist", err: "no name"},
		"bad name":            {files: map[string]string{"1.conflist": `{"name":"a/b","plugins":[{"type":"a"}]}`}, file: "1.conflist", err: `network name "a/b"`},
		"no plugins":          {files: map[string]string{"1.conflist": `{"name":"n","plugins":[]}`}, file: "1.conflist", err: "no plugins"},
		"plugin without type": {files: map[string]string{"1.conflist": `{"name":"n","plugins":[{}]}`}, file: "1.conflist", err: "missing 'type'"},
		"version of tomorrow": {files: map[string]string{"1.conflist": `{"cniVersion":"9.9.9","name":"n","plugins":[{"type":"a"}]}`}, file: "1.conflist", err: `cniVersion "9.9.9" is none of`},
		"highest known of cniVersions": {
			files: map[string]string{"1.conflist": `{"cniVersions":["0.4.0","1.1.0","9.9.9"],"name":"n","plugins":[{"type":"a"}]}`},
			file:  "1.conflist", plugins: 1, version: "1.1.0",
		},
		"plugins in a folder": {
			files: map[string]string{"1.conflist": `{"cniVersion":"1.1.0","name":"n"}`, "n/a.conf": `{"type":"a"}`, "n/b.conf": `{"type":"b"}`},
			file:  "1.conflist", plugins: 2,
		},
		"both kinds": {
			files: map[string]string{"1.conflist": good, "n/b.conf": `{"type":"b"}`}, file: "1.conflist", plugins: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for f, content := range tc.files {
				path := filepath.Join(dir, f)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cfg := Config{ConfDir: dir}
			cl := cfg.load()
			if cl.configured == tc.noConfig {
				t.Fatalf("configured = %t", cl.configured)
			}
			if tc.noConfig {
				return
			}
			if filepath.Base(cl.file) != tc.file {
				t.Errorf("file %s, want %s", cl.file, tc.file)
			}
			if tc.err != "" {
				if cl.err == nil || !strings.Contains(cl.err.Error(), tc.err) {
					t.Errorf("error %v, want one with %q", cl.err, tc.err)
				}
				return
			}
			if cl.err != nil {
				t.Fatal(cl.err)
			}
			if len(cl.list.Plugins) != tc.plugins {
				t.Errorf("%d plugins, want %d", len(cl.list.Plugins), tc.plugins)
			}
			if tc.version != "" && cl.list.CNIVersion != tc.version {
				t.Errorf("cniVersion %s, want %s", cl.list.CNIVersion, tc.version)
			}
		})
	}
}

func TestMissingDirectoryIsNoConfiguration(t *testing.T) {
	cfg := Config{ConfDir: filepath.Join(t.TempDir(), "none")}
	if cl := cfg.load(); cl.configured || cl.err != nil {
		t.Errorf("load gave %+v", cl)
	}
}

func TestNamedConflistCountsWhileMissing(t *testing.T) {
	cfg := Config{Conflist: filepath.Join(t.TempDir(), "x.conflist")}
	if cl := cfg.load(); !cl.configured || cl.err == nil {
		t.Errorf("load gave %+v", cl)
	}
}

func TestValidateConfig(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no cache":          {},
		"relative bin":      {CacheDir: "/x", BinDirs: []string{"bin"}},
		"relative dir":      {CacheDir: "/x", ConfDir: "net.d"},
		"relative conflist": {CacheDir: "/x", Conflist: "a.conflist"},
	} {
		if cfg.Validate() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := (Config{CacheDir: "/x"}).Validate(); err != nil {
		t.Error(err)
	}
}
