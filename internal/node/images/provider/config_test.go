package provider

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestDecode(t *testing.T) {
	good := head + entry("p", "", "*.example")
	got, err := decode([]byte(good))
	if err != nil || len(got) != 1 || got[0].Name != "p" || got[0].DefaultCacheDuration.Duration != time.Hour {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := decode([]byte("---\n" + good)); err != nil {
		t.Error(err)
	}
	tokens := func(text string) string { return head + entry("p", "  tokenAttributes: {"+text+"}\n", "r.example") }
	const audience = "serviceAccountTokenAudience: a, "
	for text, want := range map[string]string{
		"":                                     `want kind: CredentialProviderConfig, apiVersion: kubelet.config.k8s.io/v1`,
		"a: [":                                 "yaml",
		head:                                   "providers is empty",
		strings.Replace(good, "/v1", "/v2", 1): `kubelet.config.k8s.io/v2`,
		good + "  color: red\n":                `unknown field "providers[0].color"`,
		good + "  name: q\n":                   `already set`,
		strings.Replace(good, "matchImages", "MatchImages", 1):                 `unknown field "providers[0].MatchImages"`,
		strings.Replace(good, "1h", "long", 1):                                 "long",
		strings.Replace(good, "1h", "-1s", 1):                                  "defaultCacheDuration is negative",
		strings.Replace(good, "  defaultCacheDuration: 1h\n", "", 1):           "providers[0] (p): defaultCacheDuration is missing",
		strings.Replace(good, "['*.example']", "[]", 1):                        "matchImages is empty",
		strings.Replace(good, "*.example", "r.example/*", 1):                   "only the host may have globs",
		strings.Replace(good, "name: p", "name: ../p", 1):                      "name has to be that of a program",
		strings.Replace(good, "credentialprovider.kubelet.k8s.io/v1", "v2", 1): `apiVersion is "v2"; it is credentialprovider.kubelet.k8s.io/v1, v1beta1, v1alpha1`,
		good + entry("p", "", "r.example"):                                     "providers[1] (p): name is used before",
		good + "  env: [{name: a=b}]\n":                                        `"a=b" is no name of a variable`,
		strings.Replace(tokens(audience+"cacheType: Token, requireServiceAccount: true"), "provider.kubelet.k8s.io/v1", "provider.kubelet.k8s.io/v1beta1", 1): "tokenAttributes needs apiVersion: credentialprovider.kubelet.k8s.io/v1",
		good + "---\n" + good: "more than one document",
		tokens("cacheType: Token, requireServiceAccount: true"):                                                        "serviceAccountTokenAudience is empty",
		tokens(audience + "requireServiceAccount: true"):                                                               `cacheType is ""; it is Token or ServiceAccount`,
		tokens(audience + "cacheType: Token"):                                                                          "requireServiceAccount is missing",
		tokens(audience + "cacheType: Token, requireServiceAccount: false, requiredServiceAccountAnnotationKeys: [a]"): "needs requireServiceAccount: true",
		tokens(audience + "cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [a], optionalServiceAccountAnnotationKeys: [a]"): `"a" is there twice`,
		tokens(audience + "cacheType: Token, requireServiceAccount: true, optionalServiceAccountAnnotationKeys: ['a b']"):                                        `"a b": name part must consist`,
	} {
		if _, err := decode([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nerr = %v, want %q", text, err, want)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "none of its files ends with .yaml") {
		t.Error(err)
	}
	write("b.yaml", head+entry("b", "", "r.example"))
	write("a.json", `{"apiVersion":"kubelet.config.k8s.io/v1","kind":"CredentialProviderConfig","providers":[{"name":"a","matchImages":["r.example"],"defaultCacheDuration":"0s","apiVersion":"credentialprovider.kubelet.k8s.io/v1"}]}`)
	write("README", "no configuration")
	got, err := Load(dir)
	if err != nil || len(got) != 2 || got[0].Name != "a" || got[1].Name != "b" {
		t.Errorf("%+v, %v", got, err)
	}
	write("c.yml", head+entry("a", "", "r.example"))
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), `provider "a" is in `+dir+"/a.json, too") {
		t.Error(err)
	}
	if _, err := Load(dir + "/none"); err == nil {
		t.Error("no error")
	}

	for _, text := range []string{"", "missing"} {
		if text == "" {
			if err := os.WriteFile(filepath.Join(dir, "b"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := New(Config{Plugins: got, Dir: dir}); err == nil || !strings.Contains(err.Error(), "its program has to be in the folder") {
			t.Error(err)
		}
	}
	withTokens, err := decode([]byte(head + entry("b", "  tokenAttributes: {serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true}\n", "r.example")))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Plugins: withTokens, Dir: dir}); err == nil || !strings.Contains(err.Error(), "need an API server") {
		t.Error(err)
	}
}
